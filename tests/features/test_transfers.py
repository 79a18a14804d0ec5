from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features import link_shares as module
from features.schemas import with_all_columns
from features.transfers import flows as module_flows
from features.transfers import transfers

START_US = 1_767_571_200_000_000
FACTS = {"p0": ("a", 10.0), "p1": ("b", 20.0), "d0": ("a", 15.0), "d1": ("b", 40.0)}
UPLINKS = {("a", "b"): 8.0}
Flow = tuple[str, str, int, int]


def flows(*rows: Flow, size: int | None = 100) -> pl.DataFrame:
    return with_all_columns(
        "requests",
        pl.DataFrame(
            {
                "request_id": [f"r{i:03}" for i in range(len(rows))],
                "prefill_node": [row[0] for row in rows],
                "decode_node": [row[1] for row in rows],
                "transfer_started_at_us": [START_US + row[2] for row in rows],
                "transfer_finished_at_us": [START_US + row[3] for row in rows],
                "transferred_bytes": pl.Series([size] * len(rows), dtype=pl.Int64),
            }
        ),
    )


def brute_share(rows: list[Flow], at: int) -> float:
    """Mean over whole microseconds, all bounds being whole."""

    def resources(row: Flow) -> list[tuple[str, float]]:
        (rack_p, out), (rack_d, into) = FACTS[row[0]], FACTS[row[1]]
        up = UPLINKS.get((rack_p, rack_d)) if rack_p != rack_d else None
        return [("o" + row[0], out), ("i" + row[1], into), *([("u" + rack_p + rack_d, up)] if up else [])]

    mine = rows[at]
    total = 0.0
    for t in range(mine[2], mine[3]):
        live = [name for row in rows if row[2] <= t < row[3] for name, _ in resources(row)]
        total += min(capacity / live.count(name) for name, capacity in resources(mine))
    return total / (mine[3] - mine[2])


def test_a_lone_transfer_has_its_narrowest_resource() -> None:
    table = transfers(flows(("p0", "d0", 0, 10), ("p0", "d1", 20, 30), ("p1", "d0", 40, 60)), FACTS, UPLINKS)
    assert table["share_bytes_per_s"].to_list() == [10.0, 8.0, 15.0]
    assert table["alone_bytes_per_s"].to_list() == [10.0, 8.0, 15.0]
    assert table["shared_frac"].to_list() == [0.0, 0.0, 0.0]
    assert table["path"].to_list() == ["local", "cross", "cross"]
    assert table["duration_us"].to_list() == [10, 10, 20]


def test_two_transfers_share_for_as_long_as_both_last() -> None:
    table = transfers(flows(("p0", "d0", 0, 10), ("p0", "d0", 5, 15)), FACTS, UPLINKS)
    assert table["share_bytes_per_s"].to_list() == pytest.approx([7.5, 7.5])
    assert table["shared_frac"].to_list() == pytest.approx([0.5, 0.5])


def test_a_transfer_without_bytes_is_a_flow_without_size() -> None:
    both = pl.concat([flows(("p0", "d0", 0, 10)), flows(("p0", "d0", 0, 10), size=None)])
    table = transfers(both, FACTS, UPLINKS)
    assert table["share_bytes_per_s"].to_list() == [5.0, 5.0]
    assert table["bytes"].to_list() == [100, None]


def test_nodes_that_are_not_known_and_colocated_requests_are_left_out() -> None:
    table = transfers(flows(("x", "d0", 0, 10), ("p0", "p0", 0, 10), ("p0", "d0", 3, 3)), FACTS, UPLINKS)
    assert table.is_empty()


some_flows = st.lists(
    st.tuples(st.sampled_from(["p0", "p1"]), st.sampled_from(["d0", "d1"]), st.integers(0, 12), st.integers(1, 12)).map(
        lambda f: (f[0], f[1], f[2], f[2] + f[3])
    ),
    min_size=1,
    max_size=9,
)


@settings(deadline=None)
@given(some_flows, st.sampled_from([1, 3, 4_000_000]))
def test_shares_equal_the_plain_sum(rows: list[Flow], pairs_at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PAIRS_AT_ONCE", pairs_at_once)
        table = transfers(flows(*rows), FACTS, UPLINKS)
    found = dict(table.select("request_id", "share_bytes_per_s").rows())
    for at in range(len(rows)):
        assert found[f"r{at:03}"] == pytest.approx(brute_share(rows, at), rel=1e-12)
    assert (table["share_bytes_per_s"] <= table["alone_bytes_per_s"] + 1e-9).all()


def test_what_the_kv_and_the_overlap_of_a_transfer_are() -> None:
    log = flows(("p0", "d0", 0, 10), ("p0", "d0", 20, 30), ("p0", "d1", 40, 50)).with_columns(
        prompt_tokens=pl.Series([100, 100, 100]),
        decode_resident_tokens=pl.Series([None, 36, 100], dtype=pl.Int64),
        prefill_started_at_us=pl.Series([START_US - 8, None, START_US + 20], dtype=pl.Int64),
        prefill_finished_at_us=pl.Series([START_US + 4, None, START_US + 30], dtype=pl.Int64),
    )
    table = transfers(log, FACTS, UPLINKS, kv_bytes_per_token=8, block_tokens=16)
    assert table["kv_bytes"].to_list() == [800.0, 512.0, None]
    assert table["kv_blocks"].to_list() == [7.0, 4.0, None]
    assert table["compute_us"].to_list() == [12, None, 10]
    assert table["overlap_us"].to_list()[0] == 4
    assert table["overlap_us"].to_list()[2] == 0
    assert table["first_of_pair"].to_list() == [True, False, True]
    assert table["up_bytes_per_s"].to_list() == [None, None, 8.0]
    assert transfers(log, FACTS, UPLINKS)["kv_bytes"].null_count() == 3


@settings(deadline=None)
@given(some_flows, st.floats(0.2, 1.0))
def test_shares_follow_other_capacities(rows: list[Flow], factor: float) -> None:
    table = transfers(flows(*rows), FACTS, UPLINKS)
    found = module.shares(module_flows(table))
    assert found.share == pytest.approx(table["share_bytes_per_s"].to_numpy(), rel=1e-12)
    assert found.bound_frac.sum(axis=1) == pytest.approx(np.ones(table.height))
    narrow = replace(module_flows(table), capacity=module_flows(table).capacity * factor)
    assert module.shares(narrow).share == pytest.approx(found.share * factor)
    some = module.shares(module_flows(table), parts=[(table.height - 1, table.height)])
    assert some.share.tolist() == [found.share[-1]]


def test_a_flow_is_held_up_by_its_narrowest_resource() -> None:
    table = transfers(flows(("p0", "d1", 0, 10), ("p1", "d0", 20, 30)), FACTS, UPLINKS)
    assert module.shares(module_flows(table)).bound_frac.tolist() == [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
