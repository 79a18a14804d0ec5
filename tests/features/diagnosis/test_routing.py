"""Herding, misplacement, avoidable waits and telemetry, from numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.diagnosis.rules_routing import routing_findings
from features.diagnosis.tables import period_us
from tests.features.diagnosis.tiny import only, request, sample, tables, us

STEP_MS = 100.0


def placed(nodes: str, router: str = "a", **more: float) -> list[dict]:
    """One decision every 100 ms; each character is the D's number."""
    return [
        request(STEP_MS * k, decided=STEP_MS * k, decode_node=f"d{node}", router_id=router, **more)
        for k, node in enumerate(nodes)
    ]


def test_repeats_against_chance(tmp_path: Path) -> None:
    got = only(tables(tmp_path, requests=placed("000111"))["repeats"], side="decode", router_id="a")
    assert (got["decisions"], got["pairs"], got["repeats"], got["longest_run"]) == (6, 5, 4, 3)
    # Random order of three and three: each of the 5 pairs is equal with 2 · 3 · 2 / (6 · 5) = 0.4.
    assert got["expected_frac"] == pytest.approx(0.4)
    assert got["repeat_frac"] == pytest.approx(0.8)


def test_waits_late_in_a_run(tmp_path: Path) -> None:
    rows = []
    for k, (node, wait) in enumerate(zip("00000110", (10, 20, 30, 40, 50, 10, 12, 14), strict=True)):
        at = STEP_MS * k
        rows.append(request(at, decided=at, decode_node=f"d{node}", router_id="a", t_start=at, t_end=at + wait))
    got = only(tables(tmp_path, requests=rows)["repeats"], side="decode", router_id="a")
    assert got["first_wait_ms"] == pytest.approx((10 + 10 + 14) / 3)
    assert got["late_wait_ms"] == pytest.approx((40 + 50) / 2)


def test_prefix_hits_excuse_repeats_on_p(tmp_path: Path) -> None:
    rows = [request(STEP_MS * k, prefill_node="p0", prefill_cached_tokens=500 * (k > 0)) for k in range(6)]
    assert not [row for row in tables(tmp_path, requests=rows)["repeats"] if row["side"] == "prefill"]


def test_routers_that_agree_within_a_period(tmp_path: Path) -> None:
    rows = []
    for second in range(6):
        for router in ("a", "b"):
            at = 1000.0 * second
            rows.append(request(at, decided=at, decode_node=f"d{second % 2}", router_id=router))
    got = only(tables(tmp_path, requests=rows)["agreement"], side="decode")
    # The period is a second where nothing is known; both always choose alike, chance gives one half.
    assert got["pairs"] == 6
    assert got["agreement_frac"] == pytest.approx(1.0)
    assert got["expected_frac"] == pytest.approx(0.5)


def herd(cost_ms: float) -> list[dict]:
    rows = []
    for k in range(400):
        at, place = STEP_MS * k, k % 20
        wait = 10 + cost_ms * place
        rows.append(request(at, decided=at, decode_node=f"d{k // 20 % 4}", router_id="a", t_start=at, t_end=at + wait))
    return rows


def test_herding_is_named_where_it_costs(tmp_path: Path) -> None:
    found = routing_findings(tables(tmp_path / "dear", requests=herd(5.0)))
    (finding,) = [f for f in found if f.name == "herding"]
    assert finding.subject == "a on D"
    assert finding.value > 0.9 > 0.4 > finding.compared_to
    assert finding.low is not None
    assert finding.low < finding.value
    assert not [f for f in routing_findings(tables(tmp_path / "free", requests=herd(0.0))) if f.name == "herding"]
    few = herd(5.0)[:150]
    assert not [f for f in routing_findings(tables(tmp_path / "few", requests=few)) if f.name == "herding"]


def test_a_wait_beside_an_idle_p_is_avoidable(tmp_path: Path) -> None:
    common = {"decode_node": "d0", "prefill_cached_tokens": 0}
    rows = [
        request(0, decided=0, p_start=0, p_end=10, first=20, prefill_node="p1", **common),
        request(20, decided=20, p_start=20, p_end=120, first=130, prefill_node="p0", **common),
        # p0 has 1,000 tokens left to do, p1 none: its 90 ms of queue were avoidable.
        request(30, decided=30, p_start=120, p_end=130, first=140, prefill_node="p0", **common),
        request(200, decided=200, p_start=200, p_end=210, first=220, prefill_node="p1", **common),
    ]
    found = tables(tmp_path, requests=rows)
    assert sum(row["queue_saved_ms"] for row in found["sums"]) == pytest.approx(90)
    assert sum(row["saved_ms"] for row in found["sums"]) == pytest.approx(90)
    got = only(found["misplaced"], side="prefill")
    assert got["idle_elsewhere_frac"] == pytest.approx(1 / got["decisions"])


def test_a_wait_for_a_prefix_hit_is_avoidable_less_the_hit(tmp_path: Path) -> None:
    miss, hit = ({"decode_node": "d0", "prefill_cached_tokens": cached} for cached in (0, 800))
    rows = [
        request(0, decided=0, p_start=0, p_end=10, first=20, prefill_node="p1", **miss),
        request(20, decided=20, p_start=20, p_end=120, first=130, prefill_node="p0", **miss),
        # 20 ms for 200 new tokens: the 800 cached ones would have cost 80 ms on p1.
        request(30, decided=30, p_start=120, p_end=140, first=150, prefill_node="p0", **hit),
        request(200, decided=200, p_start=200, p_end=210, first=220, prefill_node="p1", **miss),
    ]  # fmt: skip
    assert sum(row["queue_saved_ms"] for row in tables(tmp_path, requests=rows)["sums"]) == pytest.approx(90 - 80)


def test_where_all_are_busy_a_wait_is_nobodys_fault(tmp_path: Path) -> None:
    rows = []
    for k in range(8):
        common = {"decode_node": "d0", "prefill_cached_tokens": 0, "prefill_node": f"p{k % 2}"}
        rows.append(
            request(
                k, decided=k, p_start=100 * (k // 2), p_end=100 * (k // 2) + 100, first=100 * (k // 2) + 110, **common
            )
        )
    assert sum(row["queue_saved_ms"] for row in tables(tmp_path, requests=rows)["sums"]) == 0


def test_telemetry_age_comes_from_the_decision_log(tmp_path: Path) -> None:
    decisions = [
        {"request_id": f"q{k}", "decided_at_us": us(k), "router_id": "a", "prefill_node": "p0", "decode_node": node,
         "chosen": node == "d0", "telemetry_age_us": 1000 * (k + 1)}
        for k in range(3) for node in ("d0", "d1")
    ]  # fmt: skip
    loads = [sample(500 * k, "d0", "decode") for k in range(4)]
    rows = [request(0, end=3000, decode_node="d0")]
    found = tables(tmp_path, requests=rows, loads=loads, decisions=decisions)
    got = only(found["telemetry"], router_id="a")
    assert (got["decisions"], got["known"], got["age_p50_ms"]) == (3, 3, 2.0)
    assert found["telemetry_period"][0]["period_p50_ms"] == 500
    assert period_us(found["telemetry"], found["telemetry_period"]) == 4000
    assert period_us([], found["telemetry_period"]) == 500_000
    assert period_us([], []) == 1_000_000
