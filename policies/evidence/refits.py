"""The lead over refits of the estimators: a gain must not hang on which blocks of time the estimators were fitted on.

Each refit is an equally likely draw of the laws. Its lead is drawn over blocks of the validation days as the main one
is; all draws together spread by both, the laws and the days.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.evidence.arms import day_cases
from policies.evidence.bootstrap import Difference, around, drawn, joined_blocks, widening
from policies.evidence.gates import REFITS, Gate, Status, not_run
from policies.evidence.verdict import points
from policies.policy import Policy
from policies.search.cases import Case, CaseScore
from policies.search.workers import WorkerPool

MIN_REFITS = 8
AGREE_FRAC = 0.75
"""Part of the refits under which a claimed gain must be a gain."""

Pair = tuple[Sequence[CaseScore], Sequence[CaseScore]]
"""Scores of winner and incumbent on the validation days, under one refit."""


@dataclass(frozen=True, slots=True)
class OverRefits:
    """`each`: the lead under every refit. `combined`: their mean, with an interval over refits and blocks."""

    each: tuple[Difference, ...]
    combined: Difference

    @property
    def gains(self) -> int:
        """Refits under which the lead is above 0."""
        return sum(one.value > 0 for one in self.each)

    @property
    def enough(self) -> bool:
        """Whether there are refits enough to judge by."""
        return len(self.each) >= MIN_REFITS


def lead_over_refits(
    pool: WorkerPool,
    winner: Policy,
    incumbent: Policy,
    days: Sequence[str],
    refits: int,
    block_s: float,
    *,
    alpha: float,
    seed: int,
    resamples: int,
) -> OverRefits:
    """Replay both policies on the days under refits 1 … `refits`. A policy against itself is not replayed."""
    if winner == incumbent:
        same = Difference(0.0, 0.0, 0.0, 1.0, 1.0, 0)
        return OverRefits((same,) * refits, same)
    cases = [Case(case.day, refit=number) for number in range(1, refits + 1) for case in day_cases(days)]
    flat = list(pool.scores([(policy, case) for case in cases for policy in (winner, incumbent)]))
    width = 2 * len(days)
    pairs = [(flat[at : at + width : 2], flat[at + 1 : at + width : 2]) for at in range(0, len(flat), width)]
    return over_refits(pairs, block_s, alpha=alpha, seed=seed, resamples=resamples)


def refit_replays(winner: Policy, incumbent: Policy, days: int, refits: int) -> int:
    """Replays that `lead_over_refits` makes on so many days."""
    return 0 if winner == incumbent else 2 * refits * days


def over_refits(pairs: Sequence[Pair], block_s: float, *, alpha: float, seed: int, resamples: int) -> OverRefits:
    """The lead under each refit, on the same draws of blocks, and over all of them.

    Few refits spread less than the laws do: deviations of a refit from their mean are widened as those of blocks are.
    """
    found = [
        drawn(joined_blocks(ours, block_s), joined_blocks(theirs, block_s), alpha=alpha, seed=seed, resamples=resamples)
        for ours, theirs in pairs
    ]
    count, blocks = len(found), min((one.blocks for one in found), default=0)
    mean = float(np.mean([one.value for one in found])) if found else 0.0
    draws = np.zeros(0)
    if count > 1 and blocks > 1:
        wider = widening(count, alpha) - 1.0
        draws = np.concatenate([one.draws + (one.value - mean) * wider for one in found])
    return OverRefits(
        each=tuple(around(one.value, one.draws, alpha=alpha, blocks=one.blocks) for one in found),
        combined=around(mean, draws, alpha=alpha, blocks=blocks),
    )


def refits_gate(found: OverRefits, lead: Difference) -> Gate:
    """Fails if the lead over refits is a loss, or if `lead` claims a gain that fewer than 3/4 of the refits share.

    Not run with fewer than MIN_REFITS.
    """
    count, combined = len(found.each), found.combined
    if not found.enough:
        return not_run(REFITS, f"{count} refits of the estimators, {MIN_REFITS} are needed" if count else "")
    lost = combined.high < 0 or (lead.low > 0 and found.gains < AGREE_FRAC * count)
    status: Status = "fail" if lost else "pass"
    return Gate(
        name=REFITS,
        status=status,
        detail=f"over {count} refits of the estimators goodput differs from the incumbent's by {points(combined)}, "
        f"a gain under {found.gains} of them",
        value=combined.value,
        threshold=0.0,
        interval=(combined.low, combined.high),
        numbers={
            "refits": float(count),
            "gains": float(found.gains),
            **{f"refit_{at}": one.value for at, one in enumerate(found.each, 1)},
        },
    )
