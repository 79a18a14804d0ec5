"""The adoption ladder: masks of the joint score, from a guarded rule up to the pair, and what each rung brings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from policies.evidence.bootstrap import Difference
from policies.families.registry import PAIRS
from policies.kernel_types import TERMS
from policies.policy import Policy, Weights

RUNGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("bookings", ("PrefillWait", "ProjectedKVPressure")),
    ("request size", ("PrefillCompute",)),
    ("service load", ("DecodeWait", "SloRisk", "NeighbourHarm", "Crowd")),
    ("locality and transfer", ("TransferTime", "PrefixBenefit")),
)
"""Terms that each rung adds to those below it. Before them: utilisation, and the same behind the guard."""

PRESSURE = 1.0
"""Weight of ProjectedKVPressure on the first rungs, where the joint score has none: it alone chooses D there."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung on the validation days. `gain`: goodput less that of the rung below, paired; None for the lowest."""

    name: str
    terms: tuple[str, ...]
    goodput_frac: float
    gain: Difference | None


def rungs(joint: Policy) -> dict[str, tuple[tuple[str, ...], Policy]]:
    """Name -> terms and policy, from the lowest rung to the joint score itself, whose weights all of them have.

    Below the last one P and D are chosen apart: D first where the joint score chooses pairs at the arrival.
    """
    if joint.family != PAIRS:
        return {}
    plain = replace(joint, temperature_p_s=0.0, temperature_d_s=0.0, hysteresis_s=0.0, draws_p=0, draws_d=0)
    apart = "decode_first" if joint.decode_moment == "arrival" else joint.decode_moment
    found: dict[str, tuple[tuple[str, ...], Policy]] = {
        "utilisation": ((), replace(plain, family="lowest_utilisation", decode_moment="arrival")),
        "guard": ((), replace(plain, family="gated_utilisation", decode_moment="arrival")),
    }
    terms: tuple[str, ...] = ()
    for name, more in RUNGS:
        terms += more
        found[name] = (terms, replace(_masked(plain, terms), decode_moment=apart))
    found["joint pair"] = (TERMS, joint)
    return found


def _masked(policy: Policy, terms: tuple[str, ...]) -> Policy:
    """Only these terms count; pressure does where nothing else would tell one D from another."""
    classes = []
    for c in policy.classes:
        weights = [w if term in terms else 0.0 for term, w in zip(TERMS, c.weights, strict=True)]
        if not any(w > 0 and term in _OF_D for term, w in zip(TERMS, weights, strict=True)):
            weights[TERMS.index("ProjectedKVPressure")] = PRESSURE
        classes.append(replace(c, weights=cast(Weights, tuple(weights))))
    return replace(policy, classes=tuple(classes))


_OF_D = ("TransferTime", "DecodeWait", "ProjectedKVPressure", "SloRisk", "NeighbourHarm")
