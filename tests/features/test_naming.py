from __future__ import annotations

import polars as pl
import pytest

from features.errors import SettingsError
from features.naming import Alias, NodeNames


def translate(aliases: list[Alias], *names: str | None, at: int = 5) -> tuple[list[str | None], dict[str, int]]:
    held = NodeNames(aliases)
    frame = pl.DataFrame({"node": names, "t": [at] * len(names)}, schema={"node": pl.String, "t": pl.Int64})
    return held.translate(frame, "node", "t")["node"].to_list(), held.unmapped


def test_without_aliases_names_stay_and_nothing_is_missed() -> None:
    assert translate([], "x/dp0", None) == (["x/dp0", None], {})


def test_a_worker_carries_its_ranks_and_a_whole_name_wins() -> None:
    aliases = [Alias("http://10.0.0.1:30000/", "p0"), Alias("w7", "d0/dp3"), Alias("w8/dp1", "d1/dp0")]
    names, unmapped = translate(aliases, "10.0.0.1:30000/dp2", "w7", "w7/dp0", "w8/dp1", "w9/dp0", "w9/dp0", None)
    assert names == ["p0/dp2", "d0/dp3", "d0/dp3", "d1/dp0", "w9/dp0", "w9/dp0", None]
    assert unmapped == {"w9/dp0": 2}


@pytest.mark.parametrize(("at", "node"), [(9, "old"), (10, "new"), (19, "new"), (20, "pod")])
def test_an_alias_is_valid_for_its_time(at: int, node: str) -> None:
    aliases = [Alias("pod", "old", valid_to_us=10), Alias("pod", "new", valid_from_us=10, valid_to_us=20)]
    assert translate(aliases, "pod", at=at)[0] == [node]


def test_one_name_means_one_node_at_a_time() -> None:
    with pytest.raises(SettingsError, match="one node at a time"):
        NodeNames([Alias("pod", "a"), Alias("http://pod", "b", valid_from_us=3)])
