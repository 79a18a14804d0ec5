"""The estimators of a night, and how those in force did on its day."""

from collections.abc import Iterable
from typing import Any

import dagster as dg
import polars as pl

from models.honesty.reading import Reading
from pipelines.defs.night import OWNERS, UNJUDGED, Metadata, Stored, current_inputs, night, stage
from pipelines.defs.partitions import NIGHTS
from pipelines.defs.resources import Project, Teller
from pipelines.night.honesty import frame_of
from pipelines.night.honesty import predictions as predictions_of
from pipelines.night.last_good import EstimatorStore
from pipelines.night.stages import fitted_or_reason
from pipelines.night.stored import plain_fitted

SHOWN = ("estimator", "group", "measure", "value", "low", "high", "rows", "expected", "bar", "alarm")


@dg.asset(
    deps=["requests", "node_loads"],
    partitions_def=NIGHTS,
    group_name="learn",
    kinds={"polars", "numpy"},
    owners=OWNERS,
    description="One row a measure of an estimator in force on the day, by group: what it predicted against what "
    "happened, with intervals and alarms. In force: the current policy's estimators, else those of the night before.",
)
def predictions(
    context: dg.AssetExecutionContext, project: Project, teller: dg.ResourceParam[Teller], night_inputs: dict[str, Any]
) -> dg.Output[pl.DataFrame]:
    """No rows where nothing was in force yet, or where the day's tables cannot be read: `reason` says it."""
    tonight = night(context, project)
    kept = EstimatorStore(tonight.settings.storage.runs, tonight.pool.name)
    with stage("predictions", context, teller):
        found = predictions_of(tonight.lake, tonight.store, kept, tonight.pool, current_inputs(tonight, night_inputs))
    shown: Metadata = {
        "in force": found.source or "none",
        "reason": found.reason,
        "alarms": [reading.sentence for reading in found.alarms],
        "readings": readings_table(reading for reading in found.readings if reading.bar is not None or reading.alarm),
    }
    return dg.Output(frame_of(found), metadata=shown)


def readings_table(readings: Iterable[Reading]) -> dg.TableMetadataValue:
    """One line a reading."""
    return dg.MetadataValue.table(
        [dg.TableRecord({name: _short(getattr(reading, name)) for name in SHOWN}) for reading in readings],
        schema=dg.TableSchema([dg.TableColumn(name) for name in SHOWN]),
    )


def _short(value: object) -> str | int | float | bool | None:
    """A number as people read it."""
    if isinstance(value, float):
        return float(f"{value:.3g}")
    return value if isinstance(value, str | int) else None


@dg.asset(
    # Nothing of it is used here: how those in force did is known before new ones are fitted.
    deps=["predictions"],
    partitions_def=NIGHTS,
    group_name="learn",
    kinds={"lightgbm", "scikitlearn", "json"},
    owners=OWNERS,
    description="One row a night: the estimators in portable form (lengths, steps, transfers, caches, risk), "
    "fitted on the train windows, with their errors by group there and on the validation windows. Where a new one is "
    "worse than the last good one, that one stays, and `origin` says so.",
)
def estimators(
    context: dg.AssetExecutionContext, project: Project, teller: dg.ResourceParam[Teller], night_inputs: dict[str, Any]
) -> dg.Output[Stored]:
    """What search, gates and the shipped file use. Without enough logs it holds the reason instead."""
    tonight = night(context, project)
    with stage("fit", context, teller):
        fitted, reason = fitted_or_reason(
            tonight.lake, tonight.pool, current_inputs(tonight, night_inputs), tonight.settings.storage.runs
        )
    value: Stored = {} if fitted is None else plain_fitted(fitted)
    if reason:
        value[UNJUDGED] = reason
    return dg.Output(value, metadata={UNJUDGED: reason} if fitted is None else error_metadata(value))


def error_metadata(fitted: Stored) -> Metadata:
    """Rows, errors and figures of the stored estimators."""
    from pipelines.report.figures import length_reliability, png_base64, step_residuals
    from pipelines.report.tracked import error_metrics

    found: Metadata = {f"rows/{name}": rows for name, rows in fitted["rows"].items()}
    found |= {f"error/{key}": value for key, value in error_metrics(fitted).items() if value is not None}
    found |= {f"origin/{name}": gate["reason"] for name, gate in fitted["origin"].items()}
    found["notes"] = list(fitted["notes"])
    found["length reliability"] = image(png_base64(length_reliability(fitted)))
    found["step residuals"] = image(png_base64(step_residuals(fitted)))
    return found


def image(png_in_base64: str) -> dg.MarkdownMetadataValue:
    """A figure inside the metadata."""
    return dg.MetadataValue.md(f"![figure](data:image/png;base64,{png_in_base64})")
