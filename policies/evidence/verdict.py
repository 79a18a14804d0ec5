"""The verdict: the winner against the incumbent and nothing else, and how far it may be promoted by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from policies.evidence.bootstrap import MIN_BLOCKS, Difference
from policies.evidence.gates import REFITS, TEST_DAY, VALIDATION, Gate

Name: TypeAlias = Literal["better", "not distinguishable", "worse", "not trustworthy"]
Cap: TypeAlias = Literal["none", "shadow", "current"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reasons` are sentences for people, the deciding one first."""

    verdict: Name
    promotion_cap: Cap
    reasons: tuple[str, ...]


def validation_gate(lead: Difference, block_s: float) -> Gate:
    """Enough blocks, and the winner is not worse than the incumbent beyond chance."""
    numbers = {"blocks": float(lead.blocks), "block_s": block_s, "p_better": lead.p_better, "p_worse": lead.p_worse}
    if not lead.enough:
        detail = f"{lead.blocks} blocks of {block_s:.0f} s over all validation days, {MIN_BLOCKS} are needed"
        return Gate(VALIDATION, "fail", detail, float(lead.blocks), float(MIN_BLOCKS), numbers=numbers)
    worse = lead.high < 0
    detail = f"goodput differs from the incumbent's by {points(lead)}, {lead.blocks} blocks of {block_s:.0f} s"
    return Gate(VALIDATION, "fail" if worse else "pass", detail, lead.value, 0.0, (lead.low, lead.high), numbers)


def decide(
    lead: Difference,
    *,
    p_adjusted: float,
    alpha: float,
    margin: float,
    same: bool,
    gates: Sequence[Gate],
    history_days: int,
    over_refits: Difference | None = None,
) -> Verdict:
    """Judge the winner's lead over the incumbent on the validation days.

    `p_adjusted`: Holm's, of `lead.p_better` among all claims of the table. `margin`: the least gain that is a finding.
    `same`: the winner is the incumbent's own policy. `history_days`: days with data; under 4 caps at shadow.
    `over_refits`: the lead over refits of the estimators, which a gain must survive; None = they were not run.
    """
    is_worse = lead.enough and lead.p_worse <= alpha and lead.high < 0
    # A loss over refits or on the test day contradicts every verdict but `worse`.
    expected = (VALIDATION, REFITS, TEST_DAY) if is_worse else (VALIDATION,)
    failed = [g for g in gates if g.status == "fail" and g.name not in expected]
    reasons: list[str] = []
    name: Name
    if failed or not lead.enough:
        name = "not trustworthy"
        reasons += [f"Gate {g.name} failed: {g.detail}." for g in failed]
        if not lead.enough:
            reasons.append(f"{lead.blocks} blocks over all validation days are too few, {MIN_BLOCKS} are needed.")
    elif same:
        name = "not distinguishable"
        reasons.append("The incumbent's own policy is within one standard error of the best on the train days.")
    elif is_worse:
        name = "worse"
        reasons.append(f"On the validation days goodput is lower than the incumbent's: {points(lead)}.")
    elif not (p_adjusted <= alpha and lead.low > 0 and lead.value >= margin):
        name = "not distinguishable"
        reasons.append(_why_not(lead, p_adjusted, alpha, margin))
    elif over_refits is not None and over_refits.low <= 0:
        name = "not distinguishable"
        reasons.append(f"The gain of {points(lead)} is within chance over refits: {points(over_refits)}.")
    else:
        name = "better"
        reasons.append(f"On the validation days goodput is higher than the incumbent's: {points(lead)}.")
    cap, because = _cap(name, gates, history_days)
    return Verdict(name, cap, (*reasons, *because))


def points(lead: Difference) -> str:
    """A difference in points of goodput with its interval."""
    return f"{100 * lead.value:+.2f} points [{100 * lead.low:+.2f}, {100 * lead.high:+.2f}]"


def _why_not(lead: Difference, p_adjusted: float, alpha: float, margin: float) -> str:
    if lead.low > 0 and p_adjusted <= alpha:
        return f"The gain of {points(lead)} is below the margin of {100 * margin:.2f} points: no finding."
    if lead.low > 0:
        return f"The gain of {points(lead)} does not survive the correction for all claims (p = {p_adjusted:.3f})."
    return f"The difference to the incumbent is within chance: {points(lead)}."


def _cap(name: Name, gates: Sequence[Gate], history_days: int) -> tuple[Cap, list[str]]:
    because = [f"Gate {g.name} was waived: {_bare(g.detail)}." for g in gates if g.status == "waived"]
    if name in ("worse", "not trustworthy"):
        return "none", because
    open_gates = [g for g in gates if g.status == "not_run"]
    because += [
        f"Gate {g.name} {'cannot tell' if g.undecided else 'was not run'}: {g.detail}; promotion ends at shadow."
        for g in open_gates
    ]
    if history_days < 4:
        because.append(f"{history_days} days of history are too few to promote beyond shadow, 4 are needed.")
    return ("shadow" if open_gates or history_days < 4 else "current"), because


def _bare(detail: str) -> str:
    return detail.removeprefix("waived by settings: ")
