"""What the checks of gates show beside their status."""

from __future__ import annotations

import dagster as dg

from pipelines.defs.checks import gate_metadata
from policies.evidence.evidence import to_json
from policies.evidence.gates import DRILLS, Gate, not_run


def test_a_gate_shows_what_it_was_judged_by() -> None:
    numbers = {"burst.value": -0.01, "burst.low": -0.03}
    shown = gate_metadata(to_json(Gate(DRILLS, "fail", "it fails", -0.01, -0.02, (-0.03, 1), numbers)))
    table = shown.pop("numbers")
    assert shown == {"status": "fail", "value": -0.01, "threshold": -0.02, "low": -0.03, "high": 1.0}
    assert isinstance(shown["high"], float)
    assert [record.data for record in table.records] == [
        {"name": "burst.value", "value": -0.01}, {"name": "burst.low", "value": -0.03},
    ]  # fmt: skip
    assert dg.AssetCheckResult(passed=False, metadata=shown | {"numbers": table}).metadata["value"].value == -0.01


def test_a_gate_that_was_not_run_shows_its_status_alone() -> None:
    assert gate_metadata(to_json(not_run(DRILLS))) == {"status": "not_run"}
    assert gate_metadata({"status": "not_run", "detail": "one day"}) == {"status": "not_run"}
