from __future__ import annotations

from datetime import date
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.columns import TIME_MAX_US, TIME_MIN_US
from features.lake import Lake
from features.quality import QUARANTINE, check
from features.schemas import TABLES, with_all_columns
from tests.features.logs import START_US

UNITS = ("_us", "_s", "_ms", "_tokens", "_blocks", "_bytes", "_frac")


@pytest.mark.parametrize("table", list(TABLES))
def test_tables_are_described(table: str) -> None:
    spec = TABLES[table]
    assert spec.schema.__doc__
    assert set(spec.key) <= set(spec.dtypes)
    assert set(spec.order) >= set(spec.key)
    assert spec.dtypes[spec.time_column] == pl.Int64
    times = [name for name in spec.dtypes if name.endswith("_at_us")]
    assert all(spec.dtypes[name] == pl.Int64 for name in times)


def test_requests_have_the_columns_of_the_design_in_its_order() -> None:
    wanted = """
        request_id pool arrived_at_us arrival_spread_us slo_class priority deadline_us tenant app session_id
        parent_request_id model prompt_tokens output_tokens max_output_tokens finish_reason block_tokens
        block_hashes block_hash_scope prefill_cached_tokens cached_tier decode_resident_tokens router_id
        policy_version decided_at_us prefill_node decode_node prefill_started_at_us prefill_finished_at_us
        transfer_started_at_us transfer_finished_at_us decode_admitted_at_us first_token_at_us finished_at_us
        transferred_bytes transfer_descriptors preemptions source source_file source_row"""
    assert " ".join(TABLES["requests"].dtypes) == " ".join(wanted.split())


def test_missing_columns_are_null_and_foreign_ones_go() -> None:
    frame = with_all_columns("node_loads", pl.DataFrame({"node": ["d0"], "weather": ["rain"], "active_blocks": [3]}))
    assert frame.columns == list(TABLES["node_loads"].dtypes)
    assert frame.row(0, named=True)["active_blocks"] == 3
    assert frame["free_blocks"].null_count() == 1
    assert with_all_columns("requests", pl.DataFrame()).height == 0


@pytest.mark.parametrize(
    ("table", "row", "rule"),
    [
        ("node_loads", {"node": "d0", "block_tokens": 1, "role": "worker"}, "role_known"),
        ("node_loads", {"node": "d0", "block_tokens": 1, "state": "fine"}, "state_known"),
        ("node_loads", {"node": "d0", "block_tokens": 0}, "block_tokens|min"),
        (
            "node_loads",
            {"node": "d0", "block_tokens": 1, "usable_blocks": 5, "active_blocks": 6},
            "active_within_usable",
        ),
        ("node_loads", {"node": "d0", "block_tokens": 1, "decode_moments": [1.0]}, "decode_moments|min_length"),
        ("node_loads", {"node": "d0", "block_tokens": 1, "decode_moments": [-1.0] * 6}, "decode_moments|inner_min"),
        ("steps", {"node": "d0", "phase": "idle", "n_steps": 1, "busy_us": 1, "source": "x"}, "phase_known"),
        ("steps", {"node": "d0", "phase": "decode", "n_steps": 0, "busy_us": 1, "source": "x"}, "n_steps|min"),
        ("topology", {"kind": "rack", "name": "a"}, "kind_known"),
        ("topology", {"kind": "node", "name": "a", "valid_to_us": TIME_MIN_US}, "validity_in_order"),
    ],
)
def test_rules_of_tables(table: str, row: dict[str, Any], rule: str) -> None:
    time = TABLES[table].time_column
    checked = check(table, pl.DataFrame([{time: START_US, "source_file": "f", "source_row": 1, "source": "x", **row}]))
    assert checked.accepted.is_empty()
    assert checked.quarantined["rule"].to_list() == [rule]


maybe_time = st.none() | st.integers(TIME_MIN_US - 3, TIME_MIN_US + 3) | st.integers(TIME_MAX_US - 2, TIME_MAX_US + 1)
some_row = st.fixed_dictionaries(
    {
        "request_id": st.none() | st.sampled_from(["a", "b", "c", ""]),
        "arrived_at_us": maybe_time,
        "finished_at_us": maybe_time,
        "prompt_tokens": st.none() | st.integers(-1, 3),
        "finish_reason": st.sampled_from([None, "stop", "never"]),
    }
)


@settings(deadline=None, max_examples=60)
@given(st.lists(some_row, max_size=8))
def test_no_row_is_lost_and_none_accepted_that_breaks_a_rule(rows: list[dict[str, Any]]) -> None:
    dtypes = {name: TABLES["requests"].dtypes[name] for name in ("request_id", "arrived_at_us", "finished_at_us")}
    frame = pl.DataFrame(rows, schema={**dtypes, "prompt_tokens": pl.Int64, "finish_reason": pl.String}).with_columns(
        pool=pl.lit("a"), source=pl.lit("s"), source_file=pl.lit("f"), source_row=pl.int_range(1, pl.len() + 1)
    )
    checked = check("requests", frame)
    assert checked.accepted.height + checked.quarantined.height + checked.duplicates == len(rows)
    assert checked.quarantined.columns == list(QUARANTINE)
    for row in checked.accepted.iter_rows(named=True):
        assert row["request_id"]
        assert TIME_MIN_US <= row["arrived_at_us"] < TIME_MAX_US
        assert row["prompt_tokens"] >= 1
        assert row["finish_reason"] in (None, "stop")
        assert row["finished_at_us"] is None or row["finished_at_us"] >= row["arrived_at_us"]
    assert checked.quarantined["rule"].null_count() == 0


some_load = st.fixed_dictionaries(
    {
        "observed_at_us": st.integers(START_US, START_US + 20),
        "node": st.sampled_from(["d0", "d1"]),
        "block_tokens": st.integers(1, 64),
        "active_blocks": st.none() | st.integers(0, 2**62),
        "decode_moments": st.none() | st.lists(st.floats(0, 1e15), min_size=6, max_size=6),
    }
)


@settings(deadline=None, max_examples=30)
@given(st.lists(some_load, max_size=8), st.integers(0, 8))
def test_the_lake_gives_back_what_it_took(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], cut: int
) -> None:
    day = date(2026, 1, 5)
    frame = with_all_columns(
        "node_loads", pl.DataFrame(rows, schema={name: TABLES["node_loads"].dtypes[name] for name in some_load_names})
    )
    whole = Lake(tmp_path_factory.mktemp("whole"))
    whole.merge("node_loads", day, "a", frame, sources={})
    parts = Lake(tmp_path_factory.mktemp("parts"))
    added = [parts.merge("node_loads", day, "a", part, sources={}).added for part in (frame[:cut], frame[cut:])]
    expected = frame.unique(["observed_at_us", "node"], keep="first", maintain_order=True).sort(
        "observed_at_us", "node"
    )
    assert whole.read("node_loads", day, "a").equals(expected)
    assert parts.read("node_loads", day, "a").equals(expected)
    assert sum(added) == expected.height
    assert whole.digest("node_loads", day, "a") == parts.digest("node_loads", day, "a")


some_load_names = ("observed_at_us", "node", "block_tokens", "active_blocks", "decode_moments")
