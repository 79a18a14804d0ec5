"""The future never leaks: what a decision is given are the newest samples that were known when it was taken."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.join import candidate_view, decision_time_view
from features.schemas import with_all_columns
from tests.features.logs import START_US

SIDES = ("prefill", "decode")
NODES = st.sampled_from(["n0", "n1", "n2"])
TIMES = st.integers(0, 40)
DELAYS = st.integers(0, 10)
# Every sample has a value of its own, so that a view shows which sample it took.
SAMPLES = st.dictionaries(st.tuples(NODES, TIMES), st.integers(0, 10**6), max_size=12)
DECISIONS = st.lists(st.tuples(TIMES, st.none() | NODES, NODES), min_size=1, max_size=6)
Decisions = list[tuple[int, str | None, str]]
Samples = dict[tuple[str, int], int]
examples = settings(deadline=None, max_examples=20)


def requests_of(decisions: Decisions) -> pl.DataFrame:
    """Requests with a decision each, and one without."""
    rows = [
        {"request_id": f"r{i}", "decided_at_us": START_US + at, "prefill_node": p, "decode_node": d}
        for i, (at, p, d) in enumerate(decisions)
    ]
    waiting = {"request_id": "waiting", "decided_at_us": None, "prefill_node": "n0", "decode_node": "n0"}
    return with_all_columns("requests", pl.DataFrame([*rows, waiting]))


def candidates_of(decisions: Decisions) -> pl.DataFrame:
    """Two candidates a decision: its pair, chosen, and D with itself."""
    rows = [
        {"request_id": f"r{i}", "decided_at_us": START_US + at, "prefill_node": p, "decode_node": d, "chosen": p != d}
        for i, (at, first, d) in enumerate(decisions)
        for p in dict.fromkeys((first or "absent", d))
    ]
    return with_all_columns("decisions", pl.DataFrame(rows))


def loads_of(samples: Samples) -> pl.DataFrame:
    schema = {"node": pl.String, "observed_at_us": pl.Int64, "active_blocks": pl.Int64, "block_tokens": pl.Int64}
    rows = [(node, START_US + at, value, 1) for (node, at), value in samples.items()]
    return with_all_columns("node_loads", pl.DataFrame(rows, schema=schema, orient="row"))


def view_of(kind: str, decisions: Decisions, samples: Samples, delay: int) -> pl.DataFrame:
    if kind == "requests":
        return decision_time_view(requests_of(decisions), loads_of(samples), delay_us=delay)
    return candidate_view(candidates_of(decisions), loads_of(samples), delay_us=delay)


BOTH = pytest.mark.parametrize("kind", ["requests", "candidates"])


@BOTH
@examples
@given(DECISIONS, SAMPLES, DELAYS)
def test_the_newest_known_sample_is_taken_and_its_age_is_right(
    kind: str, decisions: Decisions, samples: Samples, delay: int
) -> None:
    view = view_of(kind, decisions, samples, delay)
    assert view.height == (len(decisions) if kind == "requests" else candidates_of(decisions).height)
    for row in view.iter_rows(named=True):
        at = row["decided_at_us"] - START_US
        for side in SIDES:
            known = [s for node, s in samples if node == row[f"{side}_node"] and s <= at - delay]
            newest = max(known, default=None)
            assert row[f"{side}_telemetry_age_us"] == (None if newest is None else at - newest)
            assert row[f"{side}_observed_at_us"] == (None if newest is None else START_US + newest)
            taken = None if newest is None else samples[row[f"{side}_node"], newest]
            assert row[f"{side}_active_blocks"] == taken


@BOTH
@examples
@given(DECISIONS, SAMPLES, SAMPLES, DELAYS, st.data())
def test_nothing_that_comes_later_changes_a_decision(
    kind: str, decisions: Decisions, samples: Samples, later: Samples, delay: int, data: st.DataObject
) -> None:
    """For each moment: other samples after it, or none, leave what was decided up to then as it was."""
    moment = data.draw(TIMES)
    known = {key: value for key, value in samples.items() if key[1] <= moment - delay}
    other = known | {key: value for key, value in later.items() if key[1] > moment - delay}
    until = pl.col("decided_at_us") <= START_US + moment
    whole = view_of(kind, decisions, samples, delay).filter(until)
    assert view_of(kind, decisions, known, delay).filter(until).equals(whole)
    assert view_of(kind, decisions, other, delay).filter(until).equals(whole)


@BOTH
@settings(deadline=None, max_examples=10)
@given(DECISIONS, SAMPLES, DELAYS)
def test_partitions_give_what_their_rows_give(
    kind: str, tmp_path_factory: pytest.TempPathFactory, decisions: Decisions, samples: Samples, delay: int
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    rows = requests_of(decisions) if kind == "requests" else candidates_of(decisions)
    loads = loads_of(samples)
    view = decision_time_view if kind == "requests" else candidate_view
    found = view(_halves(rows, folder / "rows"), _halves(loads, folder / "loads"), delay_us=delay)
    assert found.equals(view(rows, loads, delay_us=delay))


def _halves(rows: pl.DataFrame, folder: Path) -> list[Path]:
    """Two days; one without rows has no partition."""
    folder.mkdir()
    half = rows.height // 2
    paths = []
    for name, part in (("a", rows.head(half)), ("b", rows.tail(rows.height - half))):
        if part.height:
            part.write_parquet(folder / f"{name}.parquet")
            paths.append(folder / f"{name}.parquet")
    return paths
