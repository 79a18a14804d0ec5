"""TTFT by stage and targets met, from numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.diagnosis.facts import ClassTarget, DiagnosisFacts
from tests.features.diagnosis.tiny import only, request, tables

WHOLE = {
    "decided": 2, "p_start": 12, "p_end": 42, "t_start": 47, "t_end": 67, "admitted": 70, "first": 80, "end": 280,
}  # fmt: skip


def stages(found: dict, dimension: str = "all", value: str = "all") -> dict[str, dict]:
    return {r["stage"]: r for r in found["ttft_stages"] if (r["dimension"], r["value"]) == (dimension, value)}


def test_known_stages_add_up_to_ttft(tmp_path: Path) -> None:
    got = stages(tables(tmp_path, requests=[request(0, **WHOLE)]))
    assert {name: row["mean_ms"] for name, row in got.items()} == {
        "ttft": 80, "router": 2, "queue": 10, "compute": 30, "reservation": 5, "transfer": 20, "admission": 3,
        "first_step": 10, "unattributed": 0,
    }  # fmt: skip
    assert got["compute"]["share_frac"] == pytest.approx(30 / 80)


def test_an_unknown_time_makes_its_stages_unknown_and_not_zero(tmp_path: Path) -> None:
    bare = WHOLE | {"t_start": None, "t_end": None}
    got = stages(tables(tmp_path, requests=[request(0, **bare), request(100, decided=100, first=160)]))
    # The second request knows its TTFT of 60 ms only; the first one's KV was on its way from 42 to 70 ms.
    assert "reservation" not in got
    assert "transfer" not in got
    assert "admission" not in got
    assert got["ttft"]["known"] == 2
    assert got["queue"]["known"] == 1
    assert got["first_step"]["mean_ms"] == 10
    assert got["unattributed"]["mean_ms"] == pytest.approx((28 + 60) / 2)
    assert got["unattributed"]["share_frac"] == pytest.approx(88 / 140)


def test_overlap_counts_once_and_what_follows_the_first_token_does_not(tmp_path: Path) -> None:
    # KV goes out from 20 ms on while P computes until 42; P makes the first token at 45, before the KV is all there.
    early = WHOLE | {"t_start": 20, "first": 45}
    got = stages(tables(tmp_path, requests=[request(0, **early)]))
    assert got["reservation"]["mean_ms"] == 0
    assert got["transfer"]["mean_ms"] == 3
    assert got["admission"]["mean_ms"] == 0
    assert got["unattributed"]["mean_ms"] == 0
    assert sum(row["mean_ms"] for name, row in got.items() if name != "ttft") == 45


def test_classes_buckets_and_nodes_have_their_own_rows(tmp_path: Path) -> None:
    rows = [
        request(0, **WHOLE, slo_class="fast", prefill_node="p0", decode_node="d0", prompt_tokens=1023),
        request(
            0, **(WHOLE | {"first": 100}), slo_class="slow", prefill_node="p1", decode_node="d0", prompt_tokens=1024
        ),
    ]
    found = tables(tmp_path, requests=rows)
    assert stages(found, "slo_class", "fast")["ttft"]["mean_ms"] == 80
    assert stages(found, "prompt_bucket", "00k–01k")["ttft"]["requests"] == 1
    assert stages(found, "prompt_bucket", "01k–04k")["first_step"]["mean_ms"] == 30
    assert stages(found, "prefill_node", "p1")["ttft"]["mean_ms"] == 100
    assert stages(found, "decode_node", "d0")["ttft"]["mean_ms"] == 90
    assert stages(found, "router_id", "unknown")["ttft"]["requests"] == 2


def test_targets_met(tmp_path: Path) -> None:
    facts = DiagnosisFacts(classes=(ClassTarget("fast", ttft_ms=80, tpot_ms=20),))
    rows = [
        request(0, **WHOLE, slo_class="fast"),  # TTFT 80, TPOT 200 / 10 = 20: both just met
        request(0, **(WHOLE | {"first": 81}), slo_class="fast"),  # TTFT missed, TPOT 19.9
        request(0, **(WHOLE | {"end": 281}), slo_class="fast"),  # TPOT 20.1
        request(0, slo_class="fast", finish_reason="rejected", output_tokens=0),  # missed
        request(0, slo_class="fast", finish_reason="cancelled"),  # not judged
        request(0, slo_class="fast"),  # served, times unknown: not judged
        request(0, **WHOLE, slo_class="other"),  # no target
    ]
    found = tables(tmp_path, facts=facts, requests=rows)
    got = only(found["slo"], dimension="all", slo_class="fast")
    assert (got["requests"], got["refused"], got["ttft_judged"], got["ttft_met"]) == (6, 1, 4, 2)
    assert (got["tpot_judged"], got["tpot_met"], got["judged"], got["met"]) == (4, 2, 4, 1)
    assert only(found["slo"], dimension="all", slo_class="other")["judged"] == 0
    assert found["traffic"][0]["rejected"] == 1


def test_a_day_without_times_has_no_stages(tmp_path: Path) -> None:
    found = tables(tmp_path, requests=[request(0), request(5)])
    assert found["ttft_stages"] == []
    assert found["traffic"][0]["ttft_known"] == 0
    assert found["imbalance"] == []
    assert found["links"] == []
