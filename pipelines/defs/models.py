"""The estimators of a night."""

from typing import Any

import dagster as dg

from pipelines.defs.night import OWNERS, UNJUDGED, Metadata, Stored, current_inputs, night, stage
from pipelines.defs.partitions import NIGHTS
from pipelines.defs.resources import Project, Teller
from pipelines.night.stages import fitted_or_reason
from pipelines.night.stored import plain_fitted


@dg.asset(
    partitions_def=NIGHTS,
    group_name="learn",
    kinds={"lightgbm", "scikitlearn", "json"},
    owners=OWNERS,
    description="One row a night: the estimators in portable form (lengths, steps, transfers, risk), "
    "fitted on the train windows, with their errors by group there and on the validation windows.",
)
def estimators(
    context: dg.AssetExecutionContext, project: Project, teller: dg.ResourceParam[Teller], night_inputs: dict[str, Any]
) -> dg.Output[Stored]:
    """What search, gates and the shipped file use. Without enough logs it holds the reason instead."""
    tonight = night(context, project)
    with stage("fit", context, teller):
        fitted, reason = fitted_or_reason(tonight.lake, tonight.pool, current_inputs(tonight, night_inputs))
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
    found["notes"] = list(fitted["notes"])
    found["length reliability"] = image(png_base64(length_reliability(fitted)))
    found["step residuals"] = image(png_base64(step_residuals(fitted)))
    return found


def image(png_in_base64: str) -> dg.MarkdownMetadataValue:
    """A figure inside the metadata."""
    return dg.MetadataValue.md(f"![figure](data:image/png;base64,{png_in_base64})")
