"""Transfers against line rate, and which link slow pairs have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from features.diagnosis.facts import DiagnosisFacts, NodeFact, UplinkFact
from features.diagnosis.rules_links import congested_links
from tests.features.diagnosis.tiny import only, request, tables

GB = 1e9
FACTS = DiagnosisFacts(
    nodes=(
        NodeFact("p0", "prefill", "a", GB), NodeFact("d0", "decode", "a", GB), NodeFact("d1", "decode", "b", 2 * GB),
    ),
    uplinks=(UplinkFact("a", "b", GB / 2),),
)  # fmt: skip


def test_rates_and_concurrency(tmp_path: Path) -> None:
    common = {"decided": 0, "p_start": 0, "p_end": 0, "prefill_node": "p0", "first": 500}
    rows = [
        # Both leave p0 from 0 to 100 ms: half of its egress each; the second goes to the other rack.
        request(0, **common, t_start=0, t_end=100, decode_node="d0", transferred_bytes=50_000_000),
        request(0, **common, t_start=0, t_end=100, decode_node="d1", transferred_bytes=50_000_000),
        request(0, **common, t_start=200, t_end=300, end=400, decode_node="d0", transferred_bytes=80_000_000),
    ]
    found = tables(tmp_path, facts=FACTS, requests=rows)
    egress = only(found["links"], kind="egress", name="p0")
    assert (egress["transfers"], egress["bytes"], egress["mean_ms"]) == (3, 180e6, 100)
    assert egress["flows_mean"] == pytest.approx((2 + 2 + 1) / 3)
    assert egress["shared_frac"] == pytest.approx(2 / 3)
    assert egress["bytes_per_s"] == pytest.approx(0.5 * GB)
    assert egress["busy_frac"] == pytest.approx(200 / 500)  # the span ends with the first tokens at 500 ms
    assert egress["line_use_frac"] == pytest.approx(180e6 / (GB * 0.2))
    path = only(found["links"], kind="path")
    assert (path["name"], path["transfers"], path["line_bytes_per_s"]) == ("a → b", 1, GB / 2)
    assert only(found["links"], kind="ingress", name="d1")["alone_bytes_per_s"] == pytest.approx(GB)
    assert only(found["links"], kind="pair", name="p0 → d1")["line_bytes_per_s"] == GB


def pairs(slow: set[tuple[int, int]], crossing: set[tuple[int, int]] = frozenset()) -> list[dict[str, Any]]:
    """4 × 4 pairs of 30 transfers; a slow one has a quarter of the rate and four times the time."""
    found = []
    for p in range(4):
        for d in range(4):
            crosses, late = (p, d) in crossing, (p, d) in slow
            found.append(
                {
                    "p": f"p{p}",
                    "d": f"d{d}",
                    "path": "a → b" if crosses else "a → a",
                    "crosses": crosses,
                    "transfers": 30,
                    "alone_bytes_per_s": GB / 4 if late else GB,
                    "bytes": 3e9,
                    "transfer_ms": 12_000.0 if late else 3_000.0,
                    "ttft_ms": 20_000.0,
                }
            )
    return found


@pytest.mark.parametrize(
    ("slow", "crossing", "subjects"),
    [
        ({(p, 2) for p in range(4)}, set(), ["ingress of d2"]),
        ({(1, d) for d in range(4)}, set(), ["egress of p1"]),
        ({(1, 2)}, set(), ["p1 → d2"]),
        ({(p, d) for p in (0, 1) for d in (2, 3)}, {(p, d) for p in (0, 1) for d in (2, 3)}, ["path a → b"]),
        ({(p, 0) for p in range(4)} | {(2, d) for d in range(4)}, set(), ["egress of p2", "ingress of d0"]),
        (set(), set(), []),
    ],
)
def test_the_link_that_slow_pairs_share_is_named(
    slow: set[tuple[int, int]], crossing: set[tuple[int, int]], subjects: list[str]
) -> None:
    found = congested_links({"pair_rates": pairs(slow, crossing), "links": []})
    assert sorted(finding.subject for finding in found) == subjects
    for finding in found:
        assert finding.value == pytest.approx(2.0)
        assert finding.compared_to == pytest.approx(8.0)


def test_a_slow_link_that_costs_nothing_is_not_named() -> None:
    cheap = [pair | {"transfer_ms": pair["transfer_ms"] / 100} for pair in pairs({(p, 2) for p in range(4)})]
    assert congested_links({"pair_rates": cheap, "links": []}) == []
    few = [pair | {"transfers": 4} for pair in pairs({(p, 2) for p in range(4)})]
    assert congested_links({"pair_rates": few, "links": []}) == []


def test_a_full_link_is_named() -> None:
    row = {
        "kind": "egress", "name": "p0", "line_use_frac": 0.8, "busy_frac": 0.95, "flows_mean": 6.0,
        "ttft_share_frac": 0.5, "transfers": 100,
    }  # fmt: skip
    (finding,) = congested_links({"pair_rates": [], "links": [row]})
    assert finding.subject == "egress of p0"
    for change in ({"line_use_frac": None}, {"busy_frac": 0.5}, {"flows_mean": 1.0}, {"transfers": 5}):
        assert congested_links({"pair_rates": [], "links": [row | change]}) == []


def test_totals_of_a_nodes_own_counters(tmp_path: Path) -> None:
    from tests.features.diagnosis.tiny import us

    totals = [
        {"observed_at_us": us(1000 * k), "node": "p0", "interval_us": 1_000_000, "transfers": 4, "bytes": 2e9,
         "busy_us": 4e6, "failures": k, "source": "x"}
        for k in range(2)
    ]  # fmt: skip
    got = only(tables(tmp_path, requests=[request(0)], transfer_totals=totals)["transfer_totals"], node="p0")
    assert (got["transfers"], got["bytes_per_s"], got["failures"]) == (8, 0.5e9, 1)
