"""A plan for the live test: winner and incumbent take turns on the whole pool, in blocks of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

import numpy as np

from policies.evidence.bootstrap import MIN_BLOCKS, Blocks, Difference

RELAXATIONS = 10.0
"""Of the queue in a block: at the long end of 5 to 10, since its beginning is left out."""
WASH_IN = 3.0
"""Relaxations after a switch that are left out: what the other policy left behind has fallen to 5 %."""
POWER = 0.8
MOST_BLOCKS = 10_000
ASSUMPTION = (
    "Blocks are independent, the gain and the spread between neighbouring blocks are those of the replayed validation "
    "days, and what a policy leaves behind (queues, running answers, caches) decays with the queue's relaxation time. "
    "`paired_blocks` would do if both policies met the same traffic; `blocks` pays for traffic that differs between "
    "the two blocks of a pair."
)


@dataclass(frozen=True, slots=True)
class SwitchbackPlan:
    """Blocks of `block_s`, in pairs: one block of each policy, in an order drawn from `seed`.

    `wash_in_s` at the start of a block is left out after a switch. `effect`: the gain in goodput that the test finds
    with probability `power` at one-sided level `alpha`: the validation difference, at least the margin.
    `block_sd`: standard deviation of (winner in one block - incumbent in its neighbour), `paired_sd`: of the difference
    in the same block, both for the kept part of a block. `blocks` are planned for the first, `paired_blocks` for the
    second; None where the spread is unknown or there is no effect to find. `order`: one letter a block,
    w = winner, i = incumbent; "" without a number of blocks or beyond 10,000.
    """

    relaxation_s: float
    block_s: float
    wash_in_s: float
    effect: float
    alpha: float
    power: float
    block_sd: float | None
    paired_sd: float | None
    blocks: int | None
    paired_blocks: int | None
    hours: float | None
    seed: int
    order: str
    assumption: str


def switchback(
    lead: Difference,
    days: Sequence[tuple[Blocks, Blocks]],
    *,
    evidence_block_s: float,
    relaxations_s: Sequence[float],
    alpha: float,
    margin: float,
    seed: int,
) -> SwitchbackPlan:
    """Plan from the validation difference `lead` and (winner, incumbent) blocks of each day, `evidence_block_s` long.

    Spreads are brought to the kept part of a block as those of independent stretches of time.
    """
    relaxation_s = median(relaxations_s) if relaxations_s else 0.0
    block_s = 60.0 * max(1, math.ceil(RELAXATIONS * relaxation_s / 60.0))
    wash_in_s = 5.0 * max(1, math.ceil(WASH_IN * relaxation_s / 5.0))
    shrink = math.sqrt(evidence_block_s / (block_s - wash_in_s))
    paired = _times(_lead_sd(lead, alpha), shrink)
    adjacent = _times(_neighbour_sd(days), shrink)
    effect = max(lead.value, margin)
    blocks = _blocks(adjacent, effect, alpha)
    return SwitchbackPlan(
        relaxation_s=relaxation_s,
        block_s=block_s,
        wash_in_s=wash_in_s,
        effect=effect,
        alpha=alpha,
        power=POWER,
        block_sd=adjacent,
        paired_sd=paired,
        blocks=blocks,
        paired_blocks=_blocks(paired, effect, alpha),
        hours=None if blocks is None else blocks * block_s / 3600.0,
        seed=seed,
        order=_order(blocks, seed),
        assumption=ASSUMPTION,
    )


def _lead_sd(lead: Difference, alpha: float) -> float | None:
    """Of the difference in one block: the bootstrap's standard error, which its interval is t of, times √blocks."""
    from scipy.special import stdtrit

    if lead.blocks < 2:
        return None
    return (lead.high - lead.low) / 2.0 / float(stdtrit(lead.blocks - 1, 1.0 - alpha)) * math.sqrt(lead.blocks)


def _neighbour_sd(days: Sequence[tuple[Blocks, Blocks]]) -> float | None:
    """Of the winner's goodput in a block less the incumbent's in the block before or after it."""
    apart: list[float] = []
    for winner, incumbent in days:
        mine, theirs = winner.value / winner.weight, incumbent.value / incumbent.weight
        apart += [*(mine[1:] - theirs[:-1]).tolist(), *(mine[:-1] - theirs[1:]).tolist()]
    return float(np.std(apart, ddof=1)) if len(apart) > 1 else None


def _blocks(sd: float | None, effect: float, alpha: float) -> int | None:
    """Blocks in pairs, at least as many as evidence needs."""
    if sd is None or effect <= 0:
        return None
    normal = NormalDist()
    reach = (normal.inv_cdf(1.0 - alpha) + normal.inv_cdf(POWER)) * sd / effect
    return max(MIN_BLOCKS, 2 * math.ceil(reach**2))


def _order(blocks: int | None, seed: int) -> str:
    if blocks is None or blocks > MOST_BLOCKS:
        return ""
    first = np.random.default_rng(seed).random(blocks // 2) < 0.5
    return "".join("wi" if winner else "iw" for winner in first)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
