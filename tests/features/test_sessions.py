"""Sessions from hash chains: who goes on with whom, and what is only a shared head."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from features.schemas import with_all_columns
from features.sessions import SHARED_FROM, lineage

BLOCK = 256


def requests(*chains: list[int] | None, scope: str = "a", block: int = BLOCK) -> pl.DataFrame:
    rows: list[dict[str, Any]] = [
        {
            "request_id": f"r{i}", "arrived_at_us": i, "prompt_tokens": max(1, len(chain or []) * block),
            "block_tokens": None if chain is None else block, "block_hashes": chain, "block_hash_scope": scope,
        }
        for i, chain in enumerate(chains)
    ]  # fmt: skip
    schema = {"block_hashes": pl.List(pl.UInt64), "block_tokens": pl.Int64}
    return with_all_columns("requests", pl.DataFrame(rows, schema_overrides=schema))


def test_a_turn_goes_on_with_the_prompt_of_an_earlier_one() -> None:
    found = lineage(requests([1, 2], [7, 8], [1, 2, 3], [7, 8, 9, 10], [1, 2, 3, 4], [20]))
    assert found.session.tolist() == [0, 1, 0, 1, 0, 5]
    assert found.seen_frac.tolist() == [0.0, 0.0, 2 / 3, 0.5, 0.75, 0.0]


def test_a_turn_whose_last_block_changed_belongs_to_the_session() -> None:
    assert lineage(requests([1, 2, 3], [1, 2, 4, 5], [1, 2, 3, 6])).session.tolist() == [0, 0, 0]


def test_a_system_prompt_is_no_session() -> None:
    users = [[1, 100 + i] for i in range(40)]
    found = lineage(requests(*users, [1, 100 + 39, 7]))
    assert found.session[: SHARED_FROM + 1].tolist() == [0] * SHARED_FROM + [SHARED_FROM]
    assert found.session[SHARED_FROM:40].tolist() == list(range(SHARED_FROM, 40))
    assert found.session[40] == 39
    assert found.seen_frac[39] == 0.5


def test_requests_without_hashes_have_no_session() -> None:
    found = lineage(requests(None, [1], None, [1, 2], []))
    assert found.session.tolist() == [-1, 1, -1, 1, -1]
    assert np.isnan(found.seen_frac[[0, 2, 4]]).all()
    assert lineage(requests(None, None)).session.tolist() == [-1, -1]
    assert lineage(requests()).session.tolist() == []


def test_scopes_and_block_sizes_do_not_meet() -> None:
    frame = pl.concat([requests([1, 2]), requests([1, 2, 3], scope="b"), requests([1, 2, 4], block=512)])
    assert lineage(frame).session.tolist() == [0, 1, 2]


def plain(chains: list[list[int]]) -> list[int]:
    """The rule of `lineage`, request by request."""
    session: list[int] = []
    for i, chain in enumerate(chains):
        paths = [tuple(chain[: k + 1]) for k in range(len(chain))]
        earlier = [{tuple(other[: k + 1]) for k in range(len(other))} for other in chains[:i]]
        seen = [path for path in paths if any(path in held for held in earlier)]
        session.append(i)
        if not seen:
            continue
        longest = seen[-1]
        ways = {path for held in earlier for path in held if path[:-1] == longest}
        ends = sum(tuple(other) == longest for other in chains[:i])
        if len(ways) + ends < SHARED_FROM:
            session[i] = session[max(j for j in range(i) if longest in earlier[j])]
    return session


def hashed(chains: list[list[int]]) -> list[list[int]]:
    """Contents of blocks as chained hashes: one number a prefix."""
    number: dict[tuple[int, ...], int] = {}
    return [[number.setdefault(tuple(chain[: k + 1]), len(number) + 1) for k in range(len(chain))] for chain in chains]


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_the_fast_form_follows_the_rule(chains: list[list[int]]) -> None:
    assert lineage(requests(*hashed(chains))).session.tolist() == plain(chains)
