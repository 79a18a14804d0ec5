"""Prediction against actual: what the estimators in force said of the night's day, and whether new ones may follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

import polars as pl

from features.errors import ModelError, PolicyError
from features.lake import Lake
from models.honesty.alarms import Seen, alarms
from models.honesty.day import Compared, compare, name_counts, readings
from models.honesty.gate import Gate, Gated, LastGood, first_gates, gates, mixed
from models.honesty.reading import ESTIMATORS, Reading
from models.portable.estimators import Estimators
from models.splits import Window
from pipelines.night.inputs import Inputs
from pipelines.night.last_good import EstimatorStore, Kept
from pipelines.night.observed import Observed, observed, seen_before
from pipelines.settings import Pool
from policies.policy_file import estimators_of
from policies.store import PolicyStore

COLUMNS = {
    "estimator": pl.String, "group": pl.String, "measure": pl.String, "value": pl.Float64, "rows": pl.Int64,
    "low": pl.Float64, "high": pl.Float64, "expected": pl.Float64, "bar": pl.Float64, "p": pl.Float64,
    "alarm": pl.String, "sentence": pl.String,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class InForceEstimators:
    """Estimators that spoke for a day. `source`: for people. `fitted_on`: the night that made them, ISO day."""

    estimators: Estimators
    source: str
    fitted_on: str


@dataclass(frozen=True, slots=True)
class Predictions:
    """Readings of the estimators in force. `source` is empty, and `reason` says why, where there are none."""

    source: str
    readings: tuple[Reading, ...]
    reason: str = ""

    @property
    def alarms(self) -> list[Reading]:
        """Readings that alarm."""
        return alarms(self.readings)


def in_force(store: PolicyStore, kept: EstimatorStore, pool: Pool, day: date) -> InForceEstimators | None:
    """The estimators of the policy that was current at noon of a day, else of the last night before; None without."""
    move = store.in_force(f"{day.isoformat()}T12:00:00Z")
    if move is not None:
        try:
            file = store.find(move.content_hash)
            return InForceEstimators(estimators_of(file), f"policy {file.policy_version}", file.day)
        except (PolicyError, ModelError):  # another version's form, which nobody can evaluate now
            pass
    before = kept.before(day, not_before=pool.history(day)[0])
    if before is None:
        return None
    return InForceEstimators(before.last.estimators, f"night of {before.day}", before.day.isoformat())


def predictions(lake: Lake, store: PolicyStore, kept: EstimatorStore, pool: Pool, inputs: Inputs) -> Predictions:
    """What was in force on the night's day against what happened. Tables that cannot be read stop nothing: `reason`."""
    found = in_force(store, kept, pool, inputs.day)
    if found is None:
        return Predictions("", (), "No estimators were in force: this is the first night of this pool.")
    first, last = inputs.traffic[inputs.day]
    try:
        window = Window(inputs.day, first, last + 1)
        happened = observed(lake, pool, [window], caches=bool(found.estimators.cache))
        tables = happened.under(pool, found.estimators.transfer)
        seen = seen_before(lake, pool, inputs, found.estimators, found.fitted_on)
        return Predictions(found.source, readings(compare(found.estimators, tables), name_counts(tables), seen))
    except ModelError as error:
        return Predictions("", (), f"The day cannot be compared with {found.source}: {error}.")


def gated(
    lake: Lake, pool: Pool, inputs: Inputs, new: Estimators, last: LastGood | None, newest: frozenset[str] = frozenset()
) -> Gated:
    """New estimators beside the last good ones on the validation windows (the train windows where there are none).

    Estimators of `newest`, which were fitted on the newest days, and one that drifted on the night's day, are held
    against that day: older ones are no measure of them any more.
    """
    day, split = inputs.day.isoformat(), inputs.split
    caches = bool(new.cache or (last and last.estimators.cache))
    happened = observed(lake, pool, split.validation or split.train, caches=caches)
    compared = _compared(happened, pool, new)
    if last is None:
        found = first_gates(day)
    else:
        found = gates(day, compared, _compared(happened, pool, last.estimators), last)
        if split.test:
            today = observed(lake, pool, split.test, caches=caches)
            found = _where_drifted(today, pool, day, new, last, found, newest)
    used = mixed(new, last, found)
    if used != new:
        compared = _compared(happened, pool, used)
    return Gated(used, found, readings(compared, {}, Seen()))


def gate_or_note(
    lake: Lake, pool: Pool, inputs: Inputs, new: Estimators, kept: Kept | None, newest: frozenset[str] = frozenset()
) -> Gated:
    """The same, with notes; where the tables do not allow it the new estimators are used and a note says so."""
    try:
        found = gated(lake, pool, inputs, new, None if kept is None else kept.last, newest)
    except ModelError as error:
        day = inputs.day.isoformat()
        reason = f"not held against the last good one: {error}."
        unheld = tuple(Gate(name, "accepted", day, f"{name}: {reason}") for name in ESTIMATORS)
        return Gated(new, unheld, (), (f"The new estimators were {reason}",))
    refused = tuple(gate.reason for gate in found.gates if not gate.accepted)
    used = {f"estimators/{kept.day}": kept.digest} if kept and refused else {}
    return replace(found, notes=refused, digests=used)


def frame_of(found: Predictions) -> pl.DataFrame:
    """One row a reading, with its source."""
    rows = [asdict(reading) for reading in found.readings]
    return pl.DataFrame(rows, schema=COLUMNS).with_columns(source=pl.lit(found.source))


def readings_of(frame: pl.DataFrame) -> tuple[Reading, ...]:
    """The readings of `frame_of`."""
    return tuple(Reading(**row) for row in frame.select(list(COLUMNS)).iter_rows(named=True))


def predicted_of(frame: pl.DataFrame) -> Predictions:
    """What `frame_of` was made from, less the reason of an empty one."""
    return Predictions(frame["source"][0] if frame.height else "", readings_of(frame))


def plain_readings(found: Sequence[Reading]) -> list[dict[str, Any]]:
    """Readings as JSON values."""
    return [asdict(reading) for reading in found]


def _where_drifted(
    happened: Observed,
    pool: Pool,
    day: str,
    new: Estimators,
    last: LastGood,
    found: tuple[Gate, ...],
    newest: frozenset[str],
) -> tuple[Gate, ...]:
    before = _compared(happened, pool, last.estimators)
    drifted = newest | {reading.estimator for reading in alarms(readings(before, {}, Seen()))}
    if not drifted:
        return found
    held = gates(day, _compared(happened, pool, new), before, last)
    return tuple(b if b.estimator in drifted else a for a, b in zip(found, held, strict=True))


def _compared(happened: Observed, pool: Pool, estimators: Estimators) -> Compared:
    return compare(estimators, happened.under(pool, estimators.transfer))
