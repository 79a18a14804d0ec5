"""Transfers faster than their line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.firewall.facts import PoolFacts
from features.firewall.physics import LINE_BYTES_PER_S_MAX, physics
from features.schemas import with_all_columns
from tests.features.firewall.judging import judged, served
from tests.features.logs import START_US

FACTS = PoolFacts(line_bytes_per_s=25e9)  # 200 Gbit/s
RULE = "transfer_above_line_rate"


def moved(took_us: int, moved_bytes: int | None, *, began_us: int = START_US + 123, **changes: Any) -> dict[str, Any]:
    return served(
        0,
        transferred_bytes=moved_bytes,
        transfer_started_at_us=began_us,
        transfer_finished_at_us=began_us + took_us,
        **changes,
    )


def holds(row: dict[str, Any], facts: PoolFacts = FACTS) -> bool:
    frame = with_all_columns("requests", pl.DataFrame([{**row, "pool": "a"}], infer_schema_length=None))
    return bool(physics(facts)[RULE](frame).fill_null(value=True).item())


def test_kv_that_outran_the_line_is_quarantined(tmp_path: Path) -> None:
    # 19.998 ms at 25e9 bytes/s carry 499 950 000 bytes; 25 % and 2 µs are conceded.
    most = int(25e9 * 1.25 * 20_000 / 1e6)
    sizes = [499_950_000, most, most + 1, None, 0, 5_000_000_000]
    found = judged(tmp_path, [served(i, transferred_bytes=size) for i, size in enumerate(sizes)], facts=FACTS)
    assert found.refused == [(RULE, 3), (RULE, 6)]
    assert found.report.rules == {RULE: 2}
    assert "line" in found.quarantine["reason"][0]


def test_without_facts_only_what_no_machine_can_do_is_refused() -> None:
    nothing_known = PoolFacts()
    assert holds(moved(101, 200_000_000), nothing_known)  # 1.98e12 bytes/s
    assert not holds(moved(101, 260_000_000), nothing_known)
    assert LINE_BYTES_PER_S_MAX == 2e12
    assert holds(moved(101, 8 * 200_000_000), PoolFacts(tensor_parallel=8))  # a port a rank


@pytest.mark.parametrize(
    ("took_us", "began_us", "most_bytes"),
    [
        (0, START_US + 123, 31_250_000),  # less than a ms by a clock of ms: 1 ms * 31.25e9
        (1_000, START_US + 123, 62_500_000),  # up to 2 ms
        (0, START_US, 31_250_000_000),  # by a clock of whole seconds
        (1_001, START_US + 123, 31_343_750),  # a clock of µs: 1.003 ms
    ],
)
def test_a_coarse_clock_may_be_late_by_one_tick(took_us: int, began_us: int, most_bytes: int) -> None:
    assert holds(moved(took_us, most_bytes, began_us=began_us))
    assert not holds(moved(took_us, most_bytes + 100, began_us=began_us))


def test_kv_that_stays_on_its_host_needs_no_port() -> None:
    fast = 10_000_000_000
    assert not holds(moved(1_001, fast))
    assert holds(moved(1_001, fast, prefill_node="n0/dp0", decode_node="n0/dp0"))
    assert holds(moved(1_001, fast, prefill_node="n0/dp0", decode_node="n0/dp1"))
    assert not holds(moved(1_001, fast, prefill_node="n1/dp0", decode_node="n11/dp0"))
    assert not holds(moved(1_001, fast, prefill_node=None, decode_node=None))


def test_what_is_unknown_breaks_nothing() -> None:
    assert holds(moved(5, None))
    assert holds(served(0, transferred_bytes=10**15, transfer_finished_at_us=None))
    assert holds(served(0, transferred_bytes=10**15, transfer_started_at_us=None))


@settings(max_examples=60, deadline=None)
@given(
    took_us=st.integers(0, 10_000_000),
    rate=st.floats(0, 25e9),
    began_us=st.integers(0, 3_000_000),
    tick_us=st.sampled_from([1, 1_000, 1_000_000]),
)
def test_no_honest_transfer_is_refused_whatever_the_clock(
    took_us: int, rate: float, began_us: int, tick_us: int
) -> None:
    start, end = (at // tick_us * tick_us for at in (began_us, began_us + took_us))
    assert holds(moved(end - start, int(rate * took_us / 1e6), began_us=START_US + start))
