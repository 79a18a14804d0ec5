"""How far replays are from the log: quantiles and hit share of one class, each difference with its interval.

Log and replays are drawn by the same blocks of the arrivals' time. Where there are several replays they are drawn, too:
what they differ by is chance that no block shows. Both deviations are widened to Student's t and added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policies.evidence.bootstrap import widening
from policies.evidence.drawn_quantiles import Int64, drawn_quantiles
from policies.objective import Float64

RESAMPLES = 400
QUANTILES = (0.5, 0.99)


@dataclass(frozen=True, slots=True)
class Compared:
    """Requests of a class that completed in the log and in a replay: one row a request and replay.

    `request`, `block`: over all days. Seconds; cached tokens NaN = the log does not know them. Shape (rows,).
    """

    request: Int64
    block: Int64
    replay: Int64
    prompt_tokens: Float64
    ttft_s: Float64
    tpot_s: Float64
    cached_tokens: Float64
    logged_ttft_s: Float64
    logged_tpot_s: Float64
    logged_cached_tokens: Float64

    def of(self, rows: npt.NDArray[np.bool_]) -> Compared:
        """Some of the rows."""
        return Compared(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Apart:
    """A difference to the log, with its interval at level 1 - 2·alpha."""

    value: float
    low: float
    high: float

    def over(self, limit: float) -> tuple[float, tuple[float, float]]:
        """|difference| over its limit, and the interval of that."""
        low = 0.0 if self.low <= 0 <= self.high else min(abs(self.low), abs(self.high))
        return abs(self.value) / limit, (low / limit, max(abs(self.low), abs(self.high)) / limit)


def differences(rows: Compared, *, alpha: float, seed: int) -> Mapping[str, Apart]:
    """Measure -> difference: quantiles as fractions of the logged ones, the hit share in parts of the prompt tokens.

    The hit share stands there if the log knows cached tokens of any row. Raises nothing; `rows` holds at least one.
    """
    by_block, by_replay = _draws(rows.block, (seed, 0)), _draws(rows.replay, (seed, 1))
    found = {}
    for name in ("ttft", "tpot"):
        here, there = getattr(rows, f"{name}_s"), getattr(rows, f"logged_{name}_s")
        drawn = [
            _relative(drawn_quantiles(here, cell, counts, QUANTILES), drawn_quantiles(there, cell, counts, QUANTILES))
            for cell, counts in (by_block, by_replay)
        ]
        for at, level in enumerate(QUANTILES):
            both = (drawn[0][at], by_block[1].shape[1]), (drawn[1][at], by_replay[1].shape[1])
            found[f"{name}_p{level * 100:.0f}"] = _apart(*both, alpha=alpha)
    known = rows.of(~np.isnan(rows.logged_cached_tokens))
    if len(known.prompt_tokens):
        shares = []
        for cell, counts in (_draws(known.block, (seed, 0)), _draws(known.replay, (seed, 1))):
            more = np.bincount(cell, known.cached_tokens - known.logged_cached_tokens, counts.shape[1])
            whole = np.bincount(cell, known.prompt_tokens, counts.shape[1])
            shares.append(((counts @ more) / (counts @ whole), counts.shape[1]))
        found["hit_share"] = _apart(*shares, alpha=alpha)
    return found


def _draws(cell: Int64, seed: tuple[int, int]) -> tuple[Int64, Float64]:
    """Cells that have rows, numbered from 0, and how often each draw has them: shape (1 + RESAMPLES, cells).

    The first draw is the sample as it is. The same seed draws the same.
    """
    names, dense = np.unique(cell, return_inverse=True)
    count = len(names)
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES)
    return dense.astype(np.int64), np.concatenate([np.ones((1, count)), drawn.astype(np.float64)])


def _apart(by_block: tuple[Float64, int], by_replay: tuple[Float64, int], *, alpha: float) -> Apart:
    """Draws of a difference, with how many cells they are of. One block tells nothing of its interval: -1 to 1."""
    (draws, blocks), (again, replays) = by_block, by_replay
    value = float(draws[0])
    if blocks < 2:
        return Apart(value, min(-1.0, value), max(1.0, value))
    spread = (draws[1:] - value) * widening(blocks, alpha)
    if replays > 1:
        spread = spread + (again[1:] - value) * widening(replays, alpha)
    low, high = (float(q) for q in np.quantile(spread, (alpha, 1.0 - alpha)))
    return Apart(value, value + min(low, 0.0), value + max(high, 0.0))


def _relative(here: Float64, there: Float64) -> Float64:
    """Difference as a fraction of the logged one; 1 where the log has 0 and the replay has not."""
    known = there > 0
    return np.where(known, (here - there) / np.where(known, there, 1.0), (here > 0).astype(np.float64))
