"""Policies that differ from the winner in one thing: a term off or back at its default, a knob back, a weight moved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from policies.evidence.bootstrap import Difference
from policies.families.params import names, to_row
from policies.families.registry import BY_NAME, PAIRS, params_json
from policies.kernel_types import TERMS
from policies.policy import Policy

Kind: TypeAlias = Literal["off", "default", "half", "double"]

IN_SCORE_SECONDS = ("temperature_p_s", "temperature_d_s", "hysteresis_s")
"""Knobs that are compared with the score, so that they go with PrefillWait's weight."""
KNOBS = (
    *IN_SCORE_SECONDS,
    "dwell_s",
    "draws_p",
    "draws_d",
    "half_life_s",
    "decode_moment",
    "same_rack",
    "unknown",
    "when_full",
    "high_water",
    "horizon_s",
    "wait_cap_s",
    "release_floor",
    "lease_s",
)
CLASS_KNOBS = ("quantile", "reserve_blocks")


@dataclass(frozen=True, slots=True)
class Change:
    """One thing changed in a policy. `before`, `after`: its values as text, those of classes with slashes between."""

    name: str
    kind: Kind
    before: str
    after: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change did on the validation days. `difference`: goodput of the changed policy less the winner's, paired;
    below 0 the winner lives on it.
    """

    name: str
    kind: Kind
    before: str
    after: str
    goodput_frac: float
    difference: Difference


def ablations(winner: Policy, default: Policy) -> list[Change]:
    """Every term that is on, switched off; every weight, knob and family parameter that differs, back at its default.

    Default weights are taken on the winner's scale: times its weight of PrefillWait. Parameters of a family without
    weights go back to the family's defaults one at a time, knobs to the default policy's.
    """
    scale = (winner.classes[0].weights[0] or 1.0) if winner.family == PAIRS else 1.0
    found = list(_terms(winner, default, scale)) if winner.family == PAIRS else list(_params(winner))
    for name in KNOBS:
        old, new = getattr(winner, name), getattr(default, name)
        new = new * scale if name in IN_SCORE_SECONDS else new
        if not _same((old,), (new,)):
            found.append(Change(name, "default", _text((old,)), _text((new,)), replace(winner, **{name: new})))
    for name in CLASS_KNOBS:
        held, wanted = ([getattr(c, name) for c in p.classes] for p in (winner, default))
        if not _same(held, wanted):
            classes = tuple(replace(c, **{name: v}) for c, v in zip(winner.classes, wanted, strict=True))
            found.append(Change(name, "default", _text(held), _text(wanted), replace(winner, classes=classes)))
    return found


def neighbours(winner: Policy) -> list[Change]:
    """Every weight that is on, halved and doubled; none for a family without weights."""
    if winner.family != PAIRS:
        return []
    moves: tuple[tuple[Kind, float], ...] = (("half", 0.5), ("double", 2.0))
    found = []
    for place, name in enumerate(TERMS):
        held = [c.weights[place] for c in winner.classes]
        if any(held):
            found += [_weighted(winner, name, kind, [w * factor for w in held]) for kind, factor in moves]
    return found


def _terms(winner: Policy, default: Policy, scale: float) -> Iterator[Change]:
    for place, name in enumerate(TERMS):
        held = [c.weights[place] for c in winner.classes]
        wanted = [c.weights[place] * scale for c in default.classes]
        if any(held):
            yield _weighted(winner, name, "off", [0.0] * len(held))
        if any(wanted) and not _same(held, wanted):
            yield _weighted(winner, name, "default", wanted)


def _params(winner: Policy) -> Iterator[Change]:
    if not winner.params:
        return
    kind = BY_NAME[winner.family].params
    default = to_row(kind())
    for at, name in enumerate(names(kind)):
        if winner.params[at] != default[at]:
            changed = replace(winner, params=(*winner.params[:at], default[at], *winner.params[at + 1 :]))
            before, after = params_json(winner)[name], params_json(changed)[name]
            yield Change(name, "default", _text((before,)), _text((after,)), changed)


def _weighted(winner: Policy, name: str, kind: Kind, wanted: Sequence[float]) -> Change:
    place = TERMS.index(name)
    held = [c.weights[place] for c in winner.classes]
    classes = tuple(
        replace(c, weights=(*c.weights[:place], w, *c.weights[place + 1 :]))
        for c, w in zip(winner.classes, wanted, strict=True)
    )
    return Change(name, kind, _text(held), _text(wanted), replace(winner, classes=classes))


def _same(held: Sequence[object], wanted: Sequence[object]) -> bool:
    """A weight that went through the logarithm of a search is still the default's."""
    return all(
        math.isclose(a, b, rel_tol=1e-9) if isinstance(a, float | int) and isinstance(b, float | int) else a == b
        for a, b in zip(held, wanted, strict=True)
    )


def _text(values: Sequence[object]) -> str:
    """One value where all are alike, else all of them."""
    shown = [f"{v:.4g}" if isinstance(v, float) else "none" if v is None else str(v) for v in values]
    return shown[0] if len(set(shown)) == 1 else "/".join(shown)
