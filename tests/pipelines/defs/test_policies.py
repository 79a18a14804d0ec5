"""What the asset `evidence` shows of a night."""

from __future__ import annotations

import dagster as dg

from pipelines.defs.policies import evidence_metadata
from pipelines.night.stages import Judged
from tests.pipelines.report.values import evidence

FIGURES = {"outcome by family", "goodput by load", "ladder", "ablation", "crossings", "fronts"}


def test_tables_numbers_and_figures() -> None:
    shown = evidence_metadata(Judged(evidence(), repeated=False, openings=1))
    assert shown["verdict"] == "better"
    assert [record.data["policy family"] for record in shown["arms"].records] == [
        "default * (routecal)", "incumbent (gated_utilisation) /prefill_first", "lmetric /decode_first",
    ]  # fmt: skip
    assert shown["arms"].records[0].data["to the incumbent"] == "+1.20 [+0.40, +2.10]"
    assert list(shown["arms"].records[0].data) == ["policy family", "goodput %", "to the incumbent"]
    assert "| 412 / 1,310 |" in shown["arms in full"].value
    assert [record.data["rung"] for record in shown["ladder table"].records] == ["guard", "bookings", "joint pair"]
    validation = next(r.data for r in shown["gates"].records if r.data["gate"] == "validation")
    assert validation["value / limit"] == "0.012 [0.004, 0.021] / 0"
    assert shown["gain_to_incumbent/low"] == 0.004
    assert {key for key, value in shown.items() if "base64" in str(getattr(value, "value", ""))} == FIGURES
    dg.Output(None, metadata=shown)  # Dagster takes every value


def test_a_night_without_a_policy_and_older_evidence() -> None:
    nothing = {"verdict": "not trustworthy", "promotion_cap": "none", "reason": "One day.", "details": {}}
    assert set(evidence_metadata(Judged(nothing, repeated=False, openings=0))) == {
        "verdict", "promotion_cap", "reasons", "repeated", "test_openings",
    }  # fmt: skip
    older = evidence()
    del older["details"]["explanation"]
    older["details"]["search"] = {"trials": 8}
    shown = evidence_metadata(Judged(older, repeated=False, openings=1))
    assert "ladder table" not in shown
    assert not (FIGURES - {"outcome by family", "goodput by load"}) & set(shown)
