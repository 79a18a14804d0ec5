"""Whether a new estimator may take the last good one's place: both against the same rows, estimator by estimator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal

import numpy as np

from models.honesty.blocks import estimate, mean
from models.honesty.cache import hit_error_rows
from models.honesty.day import Compared
from models.honesty.lengths import pinball_rows
from models.honesty.reading import ESTIMATORS, Reading
from models.honesty.steps import error_rows
from models.metrics import FloatArray
from models.portable.estimators import Estimators

WORSE = 0.05
"""How much more a new estimator must lose than the last good one to be refused."""
ALPHA = 0.01
FEW_ROWS_WORSE = 0.5
"""The same where rows are too few to say what is chance."""
Outcome = Literal["first", "accepted", "kept_last_good"]


@dataclass(frozen=True, slots=True)
class Gate:
    """The outcome for one estimator.

    `day`: of the night that fitted what is used from now on, ISO. `loss`, `last_good_loss`: mean loss a row of the new
    and of the last good estimator, None = not compared. Loss: pinball by the mean answer (length), |log(predicted /
    seen)| (prefill, decode, transfer), hit error by the mean prompt (cache). `p`: of the new one losing no more.
    """

    estimator: str
    outcome: Outcome
    day: str
    reason: str
    loss: float | None = None
    last_good_loss: float | None = None
    p: float | None = None
    rows: int = 0

    @property
    def accepted(self) -> bool:
        """Whether the new estimator is used."""
        return self.outcome != "kept_last_good"


@dataclass(frozen=True, slots=True)
class LastGood:
    """Estimators of an earlier night. `days`: estimator -> day of the night that fitted it."""

    estimators: Estimators
    days: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Gated:
    """A night's estimators after the gate. `readings`: theirs, on the windows that they were held against. `notes`:
    what was refused. `digests`: of the file of an earlier night that is used.
    """

    estimators: Estimators
    gates: tuple[Gate, ...]
    readings: tuple[Reading, ...]
    notes: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)


def losses(compared: Compared) -> dict[str, FloatArray]:
    """Loss of each row in time order, by estimator."""
    return {
        "length": pinball_rows(compared.length) if len(compared.length.output) else np.zeros(0),
        "prefill": error_rows(compared.prefill),
        "decode": error_rows(compared.decode),
        "transfer": error_rows(compared.transfer),
        "cache": hit_error_rows(compared.cache) if len(compared.cache.seen) else np.zeros(0),
    }


def first_gates(day: str) -> tuple[Gate, ...]:
    """The outcome of a night without a last good estimator."""
    return tuple(Gate(name, "first", day, f"{name}: the first of this pool.") for name in ESTIMATORS)


def gates(day: str, new: Compared, old: Compared, last: LastGood) -> tuple[Gate, ...]:
    """The outcome for each estimator of the night of `day`; `old`: the last good ones on the same tables as `new`."""
    found, before = losses(new), losses(old)
    return tuple(_gate(name, day, found[name], before[name], last.days.get(name, "")) for name in ESTIMATORS)


def mixed(new: Estimators, last: LastGood | None, found: tuple[Gate, ...]) -> Estimators:
    """The new estimators, with the last good one wherever the new one was refused."""
    kept = [gate.estimator for gate in found if not gate.accepted]
    if last is None or not kept:
        return new
    names = {of.name for of in fields(Estimators)}
    return replace(new, **{name: getattr(last.estimators, name) for name in kept if name in names})


def _gate(name: str, day: str, loss: FloatArray, before: FloatArray, fitted_on: str) -> Gate:
    if len(loss) != len(before) or not len(loss):
        # A cache law may be there for other nodes than before: nothing to compare.
        return Gate(name, "accepted", day, f"{name}: no rows that both speak of.")
    now, then = float(np.mean(loss)), float(np.mean(before))
    if not math.isfinite(now):
        return Gate(
            name, "kept_last_good", fitted_on, f"{name}: the new one gives no number for some rows.", rows=len(loss)
        )
    difference = estimate(loss - before, mean)
    p = difference.above(WORSE * then)
    worse = now > then * (1.0 + FEW_ROWS_WORSE) if p is None else p <= ALPHA
    figures = f"loss {now:.4f} against {then:.4f} of {fitted_on or 'the last good one'}, {len(loss):,} rows"
    if worse:
        reason = f"{name}: the new one is worse than the last good one ({figures}), which stays."
        return Gate(name, "kept_last_good", fitted_on, reason, now, then, p, len(loss))
    return Gate(name, "accepted", day, f"{name}: {figures}.", now, then, p, len(loss))
