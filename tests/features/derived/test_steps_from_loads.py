"""Steps from differences of what an engine counts."""

from __future__ import annotations

from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

from features.schemas import with_all_columns
from features.tables import decode_steps
from tests.features.derived.running import SECOND, derived
from tests.features.logs import START_US

STEP_COLUMNS = ("n_steps", "busy_us", "sequences", "tokens", "new_tokens")


def load(at_s: int, node: str = "d0/dp0", **columns: Any) -> dict[str, Any]:
    return {
        "observed_at_us": START_US + at_s * SECOND,
        "node": node,
        "block_tokens": 1,
        "source": "sglang-loads",
        **columns,
    }


def decode(at_s: int, moments: list[float] | None, tokens: int | None, **columns: Any) -> dict[str, Any]:
    return load(at_s, **{"decode_moments": moments, "running_tokens": tokens, **columns})


LOADS = [
    decode(0, [10.0, 30.0, 1_000.0, 90.0, 3_000.0, 30.0], 800),
    decode(2, [14.0, 42.0, 3_000.0, 126.0, 9_000.0, 42.0], 900),  # 4 steps of 3 sequences in 2,000 us
    decode(4, None, 900),  # not told: the next pair spans it
    decode(6, [15.0, 44.0, 3_700.0, 130.0, 10_400.0, 44.0], 1_000),  # 1 step of 2 sequences
    decode(8, [2.0, 4.0, 500.0, 8.0, 1_000.0, 4.0], 100),  # restarted
    decode(9, [2.0, 4.0, 500.0, 8.0, 1_000.0, 4.0], 100),  # idle
    decode(10, [4.0, 8.0, 1_100.0, 16.0, 2_200.0, 8.0], None),
    decode(3, [9.0, 9.0, 9.0, 9.0, 9.0, 9.0], 5, node="d1/dp0"),
    decode(7, [99.0, 99.0, 99_000.0, 99.0, 99.0, 99.0], 5, source="prometheus"),  # another account of the node
]


def test_decode_steps_by_hand() -> None:
    steps = derived("steps_from_decode_moments", "node_loads", LOADS, "steps")
    assert [(at - START_US) // SECOND for at in steps["observed_at_us"]] == [2, 6, 10]
    assert set(steps["phase"]) == {"decode"}
    assert steps.select(STEP_COLUMNS).rows() == [
        (4, 2_000, 3.0, 850.0, 12),
        (1, 700, 2.0, 950.0, 2),
        (2, 600, 2.0, None, 4),
    ]
    assert steps["context_tokens"].null_count() == 3


def test_decode_steps_are_those_that_estimators_are_fitted_on() -> None:
    loads = [row for row in LOADS if row["source"] == "sglang-loads"]
    fitted = decode_steps(with_all_columns("node_loads", pl.DataFrame(loads, infer_schema_length=None)))
    steps = derived("steps_from_decode_moments", "node_loads", loads, "steps").drop("source")
    assert_frame_equal(steps, fitted.select(steps.columns))


def prefill(at_s: int, busy_us: int | None, tokens: int | None, **columns: Any) -> dict[str, Any]:
    return load(at_s, "p0/dp0", **{"prefill_busy_us": busy_us, "prefill_computed_tokens": tokens, **columns})


def test_prefill_steps_by_hand() -> None:
    loads = [
        prefill(0, 1_000, 100),
        prefill(1, 6_000, 1_600),
        prefill(2, 6_000, 1_600),  # idle
        prefill(3, None, 1_700),  # not told
        prefill(4, 9_000, 2_000),
        prefill(5, 500, 40),  # restarted
        prefill(6, 700, 60),
        prefill(7, 900, 30),  # one counter alone fell
        prefill(8, 1_000, 90, generated_tokens=50),
        prefill(9, 1_200, 99, generated_tokens=10),  # restarted, and already beyond where it was
    ]
    steps = derived("steps_from_prefill_counters", "node_loads", loads, "steps")
    assert [(at - START_US) // SECOND for at in steps["observed_at_us"]] == [1, 4, 6, 8]
    assert steps.select("busy_us", "new_tokens").rows() == [(5_000, 1_500), (3_000, 400), (200, 20), (100, 60)]
    assert steps["n_steps"].null_count() == 4
    assert set(steps["phase"]) == {"prefill"}


def test_without_samples_there_are_no_steps() -> None:
    for file in ("steps_from_decode_moments", "steps_from_prefill_counters"):
        assert derived(file, "node_loads", [], "steps").is_empty()
        assert derived(file, "node_loads", [load(0)], "steps").is_empty()
