"""Gates and the verdict, table-driven."""

from __future__ import annotations

from dataclasses import replace

import pytest

from features.errors import SettingsError
from policies.evidence import gates
from policies.evidence.bootstrap import Difference
from policies.evidence.gates import Gate, complete
from policies.evidence.verdict import Verdict, decide, validation_gate

GAIN = Difference(0.03, 0.01, 0.05, 0.0005, 1.0, 40)
LOSS = Difference(-0.03, -0.05, -0.01, 1.0, 0.0005, 40)
EVEN = Difference(0.001, -0.01, 0.012, 0.4, 0.6, 40)
SMALL = Difference(0.002, 0.001, 0.003, 0.0005, 1.0, 40)
FEW = replace(GAIN, blocks=19)

PASS = tuple(Gate(name, "pass", "fine") for name in gates.GATES)


def judged(
    lead: Difference,
    *,
    p_adjusted: float | None = None,
    same: bool = False,
    days: int = 8,
    changed: Gate | None = None,
    over_refits: Difference | None = None,
) -> Verdict:
    every = tuple(changed if changed is not None and g.name == changed.name else g for g in PASS)
    return decide(
        lead,
        p_adjusted=lead.p_better if p_adjusted is None else p_adjusted,
        alpha=0.025,
        margin=0.005,
        same=same,
        gates=every,
        history_days=days,
        over_refits=over_refits,
    )


@pytest.mark.parametrize(
    ("arguments", "verdict", "cap", "reason"),
    [
        ({"lead": GAIN}, "better", "current", "higher than the incumbent's: +3.00 points [+1.00, +5.00]"),
        ({"lead": EVEN}, "not distinguishable", "current", "within chance"),
        ({"lead": SMALL}, "not distinguishable", "current", "below the margin"),
        ({"lead": GAIN, "p_adjusted": 0.03}, "not distinguishable", "current", "correction"),
        ({"lead": GAIN, "same": True}, "not distinguishable", "current", "incumbent's own policy"),
        ({"lead": LOSS}, "worse", "none", "lower than the incumbent's"),
        ({"lead": LOSS, "changed": Gate(gates.TEST_DAY, "fail", "lost")}, "worse", "none", "lower"),
        ({"lead": FEW}, "not trustworthy", "none", "19 blocks"),
        ({"lead": GAIN, "changed": Gate(gates.FORCED_PLACEMENT, "fail", "off")}, "not trustworthy", "none", "off"),
        ({"lead": GAIN, "changed": Gate(gates.TEST_DAY, "fail", "lost")}, "not trustworthy", "none", "lost"),
        ({"lead": GAIN, "changed": Gate(gates.DRILLS, "not_run", "later")}, "better", "shadow", "higher"),
        ({"lead": GAIN, "changed": Gate(gates.DRILLS, "waived", "later")}, "better", "current", "higher"),
        ({"lead": GAIN, "days": 3}, "better", "shadow", "higher"),
        ({"lead": GAIN, "over_refits": GAIN}, "better", "current", "higher"),
        ({"lead": GAIN, "over_refits": EVEN}, "not distinguishable", "current", "within chance over refits: +0.10"),
        ({"lead": EVEN, "over_refits": EVEN}, "not distinguishable", "current", "the incumbent is within chance"),
        ({"lead": GAIN, "changed": Gate(gates.REFITS, "fail", "off")}, "not trustworthy", "none", "off"),
        ({"lead": LOSS, "changed": Gate(gates.REFITS, "fail", "lost")}, "worse", "none", "lower"),
        ({"lead": EVEN, "days": 3}, "not distinguishable", "shadow", "chance"),
    ],
)
def test_verdict(arguments: dict[str, object], verdict: str, cap: str, reason: str) -> None:
    found = judged(**arguments)  # type: ignore[arg-type]
    assert (found.verdict, found.promotion_cap) == (verdict, cap)
    assert reason in found.reasons[0]


def test_what_was_not_run_or_waived_is_said() -> None:
    text = " ".join(judged(GAIN, changed=Gate(gates.REFITS, "not_run", "not built")).reasons)
    assert "estimator_refits was not run: not built; promotion ends at shadow" in text
    waived = complete([g for g in PASS if g.name != gates.DRILLS], [gates.DRILLS])
    drills = next(g for g in waived if g.name == gates.DRILLS)
    assert "drills was waived" in " ".join(judged(GAIN, changed=drills).reasons)


def test_a_gate_that_cannot_tell_counts_as_not_run_and_says_so() -> None:
    open_gate = Gate(gates.POLICY_REPLAY, "not_run", "undecided: off by +22.0%", 1.1, 1.0, (0.4, 1.9))
    found = judged(GAIN, changed=open_gate)
    assert (found.verdict, found.promotion_cap) == ("better", "shadow")
    assert "policy_replay cannot tell: undecided: off by +22.0%; promotion ends at shadow." in " ".join(found.reasons)
    (waived,) = [g for g in complete([open_gate], [gates.POLICY_REPLAY]) if g.name == gates.POLICY_REPLAY]
    assert (waived.status, waived.value, waived.undecided) == ("waived", 1.1, False)
    assert "policy_replay was waived: undecided: off by" in " ".join(judged(GAIN, changed=waived).reasons)


def test_all_gates_are_listed_in_order_and_missing_ones_are_not_run() -> None:
    whole = complete([Gate(gates.VALIDATION, "pass", "fine")])
    assert tuple(g.name for g in whole) == gates.GATES
    assert {g.name for g in whole if g.status == "not_run"} == set(gates.GATES) - {gates.VALIDATION}
    assert all(g.detail for g in whole)


def test_a_waiver_covers_only_what_was_not_run() -> None:
    failed = Gate(gates.FORCED_PLACEMENT, "fail", "off")
    whole = {g.name: g for g in complete([failed], [gates.FORCED_PLACEMENT, gates.DRILLS])}
    assert whole[gates.FORCED_PLACEMENT] == failed
    assert whole[gates.DRILLS].status == "waived"
    assert whole[gates.DRILLS].detail.startswith("waived by settings: no drill was run")


def test_a_waiver_of_no_gate_is_refused() -> None:
    with pytest.raises(SettingsError, match="waiver"):
        complete([], ["everything"])


@pytest.mark.parametrize(("lead", "status"), [(GAIN, "pass"), (EVEN, "pass"), (LOSS, "fail"), (FEW, "fail")])
def test_validation_gate(lead: Difference, status: str) -> None:
    gate = validation_gate(lead, 30.0)
    assert gate.status == status
    assert gate.numbers["blocks"] == lead.blocks
