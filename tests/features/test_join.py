from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from features.join import decision_time_view
from features.schemas import with_all_columns

START_US = 1_767_571_200_000_000


def requests(*rows: tuple[str, int | None, str | None, str | None]) -> pl.DataFrame:
    columns = ["request_id", "decided_at_us", "prefill_node", "decode_node"]
    frame = pl.DataFrame(
        rows, schema=dict(zip(columns, [pl.String, pl.Int64, pl.String, pl.String], strict=True)), orient="row"
    )
    return with_all_columns("requests", frame.with_columns(pl.col("decided_at_us") + START_US))


def loads(*rows: tuple[str, int, int | None]) -> pl.DataFrame:
    frame = pl.DataFrame(
        rows, schema={"node": pl.String, "observed_at_us": pl.Int64, "active_blocks": pl.Int64}, orient="row"
    )
    return with_all_columns("node_loads", frame.with_columns(pl.col("observed_at_us") + START_US, block_tokens=1))


def test_each_side_sees_its_own_node_as_of_the_decision() -> None:
    view = decision_time_view(
        requests(("r1", 100, "p0", "d0"), ("r0", 50, "p0", "d0"), ("r2", None, "p0", "d0"), ("r3", 100, None, "d9")),
        loads(("p0", 40, 1), ("p0", 100, 2), ("p0", 101, 3), ("d0", 60, 4)),
    )
    shown = view.select("request_id", "prefill_active_blocks", "prefill_telemetry_age_us", "decode_active_blocks")
    assert shown.rows() == [("r0", 1, 10, None), ("r1", 2, 0, 4), ("r3", None, None, None)]


def test_a_sample_is_known_after_its_delay() -> None:
    view = decision_time_view(requests(("r", 100, "p0", "d0")), loads(("p0", 80, 1), ("p0", 95, 2)), delay_us=10)
    assert view.select("prefill_active_blocks", "prefill_telemetry_age_us").rows() == [(1, 20)]


def test_nothing_in_nothing_out() -> None:
    assert decision_time_view(requests(), loads()).is_empty()
    assert decision_time_view(requests(("r", 5, "p0", "d0")), loads()).height == 1


times = st.integers(0, 60)
nodes = st.sampled_from(["p0", "p1"])


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.tuples(times, nodes), max_size=8),
    st.lists(st.tuples(nodes, times), max_size=12, unique=True),
    st.integers(0, 10),
)
def test_the_view_is_the_newest_known_sample_and_never_the_future(
    decisions: list[tuple[int, str]], samples: list[tuple[str, int]], delay: int
) -> None:
    view = decision_time_view(
        requests(*((f"r{i:02}", at, node, node) for i, (at, node) in enumerate(decisions))),
        loads(*((node, at, at) for node, at in samples)),
        delay_us=delay,
    )
    assert view.height == len(decisions)
    seen = dict(view.select("request_id", "prefill_active_blocks").rows())
    for i, (at, node) in enumerate(decisions):
        known = [s for n, s in samples if n == node and s + delay <= at]
        assert seen[f"r{i:02}"] == max(known, default=None)
    assert (view["prefill_telemetry_age_us"].drop_nulls() >= delay).all()
    assert (view["decode_observed_at_us"].drop_nulls() <= view["decided_at_us"].max()).all() if decisions else True
