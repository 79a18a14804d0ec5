"""Paired block bootstrap of a goodput difference, and Holm's correction.

Two policies served the same requests. Their results are summed over blocks of time that are long against the queue's
memory; blocks are drawn with replacement, both policies together. Deviations are widened from normal to Student's t
with one degree of freedom less than blocks, since a percentile interval of few blocks is too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

import numpy as np

from features.errors import PolicyError
from policies.objective import BLOCK_S, Float64
from policies.search.cases import CaseScore

SHORTEST_BLOCK_S = 30.0
RELAXATIONS = 5.0
MIN_BLOCKS = 20


@dataclass(frozen=True, slots=True)
class Blocks:
    """One policy, some days, one load. `value` = sum of weight × met, `weight` = sum of weights; shape (blocks,)."""

    value: Float64
    weight: Float64

    @property
    def goodput_frac(self) -> float:
        """Weighted share of met requests, 0 without any."""
        total = float(self.weight.sum())
        return float(self.value.sum()) / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """Goodput of one policy less that of another, as fractions. The interval is two-sided at level 1 - 2·alpha.

    `p_better`, `p_worse`: one-sided, of no gain and of no loss. `blocks` under 20 are too few to conclude from.
    """

    value: float
    low: float
    high: float
    p_better: float
    p_worse: float
    blocks: int

    @property
    def enough(self) -> bool:
        """Whether there are blocks enough."""
        return self.blocks >= MIN_BLOCKS


def block_length_s(relaxations_s: Sequence[float]) -> float:
    """max(30 s, 5 × the median relaxation of the days), in whole 5 s."""
    relaxation_s = median(relaxations_s) if relaxations_s else 0.0
    return math.ceil(max(SHORTEST_BLOCK_S, RELAXATIONS * relaxation_s) / BLOCK_S) * BLOCK_S


def joined_blocks(days: Sequence[CaseScore], block_s: float) -> Blocks:
    """Blocks of `block_s` within each day, all days together; a rest under half a block joins the one before it."""
    size = max(1, round(block_s / BLOCK_S))
    values: list[float] = []
    weights: list[float] = []
    for day in days:
        count = max(1, math.floor(len(day.block_value) / size + 0.5))
        for at in range(count):
            part = slice(at * size, None if at == count - 1 else (at + 1) * size)
            weight = math.fsum(day.block_weight[part])
            if weight > 0:
                values.append(math.fsum(day.block_value[part]))
                weights.append(weight)
    return Blocks(np.array(values), np.array(weights))


def difference(candidate: Blocks, reference: Blocks, *, alpha: float, seed: int, resamples: int = 4000) -> Difference:
    """Bootstrap `candidate` - `reference` over the blocks that they share."""
    found = drawn(candidate, reference, alpha=alpha, seed=seed, resamples=resamples)
    return around(found.value, found.draws, alpha=alpha, blocks=found.blocks)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A lead with what it would be on other blocks of time: shape (resamples,), empty with fewer than 2 blocks."""

    value: float
    draws: Float64
    blocks: int


def drawn(candidate: Blocks, reference: Blocks, *, alpha: float, seed: int, resamples: int) -> Drawn:
    """`candidate` - `reference` on blocks drawn with replacement. The same seed draws the same blocks."""
    if not 0 < alpha < 0.5:
        raise PolicyError("`0 < alpha < 0.5` must hold", value=alpha)
    if not np.array_equal(candidate.weight, reference.weight):
        raise PolicyError("a paired difference needs the same requests in the same blocks", value=len(candidate.weight))
    n = len(candidate.weight)
    lead, weight = candidate.value - reference.value, candidate.weight
    if n == 0:
        return Drawn(0.0, np.zeros(0), 0)
    found = float(lead.sum() / weight.sum())
    if n == 1:
        return Drawn(found, np.zeros(0), 1)
    draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), size=resamples).astype(np.float64)
    spread = (draws @ lead) / (draws @ weight) - found
    return Drawn(found, found + spread * widening(n, alpha), n)


def around(value: float, draws: Float64, *, alpha: float, blocks: int) -> Difference:
    """The difference that some draws tell of; without draws anything between -1 and 1."""
    if not len(draws):
        return Difference(value, -1.0, 1.0, 1.0, 1.0, blocks)
    low, high = (float(q) for q in np.quantile(draws, (alpha, 1.0 - alpha)))
    return Difference(
        value=value,
        low=max(-1.0, low),
        high=min(1.0, high),
        p_better=(1 + int((draws <= 0).sum())) / (len(draws) + 1),
        p_worse=(1 + int((draws >= 0).sum())) / (len(draws) + 1),
        blocks=blocks,
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's adjusted p-values: the chance of any false finding in the family stays below alpha."""
    ordered = sorted(p_values.items(), key=lambda item: (item[1], item[0]))
    adjusted: dict[str, float] = {}
    running = 0.0
    for at, (name, p) in enumerate(ordered):
        running = max(running, min(1.0, p * (len(ordered) - at)))
        adjusted[name] = running
    return {name: adjusted[name] for name in p_values}


def widening(n: int, alpha: float) -> float:
    """sqrt(n / (n - 1)) · t / z at alpha: the bootstrap's variance divides by n, and z knows the variance."""
    from scipy.special import stdtrit

    student = float(stdtrit(n - 1, 1.0 - alpha))
    return math.sqrt(n / (n - 1)) * student / NormalDist().inv_cdf(1.0 - alpha)
