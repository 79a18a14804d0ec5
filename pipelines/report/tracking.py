"""A night's outcome into its MLflow run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from models.honesty.reading import Reading
from models.portable_json import from_dict
from pipelines.io.tracking import NightRun, Tracking
from pipelines.night.honesty import Predictions, plain_readings
from pipelines.night.stored import restored
from pipelines.report.estimator_figures import estimator_figures
from pipelines.report.explained_figures import explained_figures
from pipelines.report.figures import figures_of
from pipelines.report.tracked import (
    alarm_metrics,
    arm_metrics,
    arm_params,
    error_metrics,
    night_metrics,
    night_params,
    reading_metrics,
)
from policies.canonical import sha256
from policies.search.candidates import Candidates

DIGEST_TAG = "routecal.digest"


def track_night(
    tracking: Tracking,
    day: date,
    pool: str,
    *,
    inputs: Mapping[str, Any],
    predicted: Predictions,
    fitted: Mapping[str, Any] | None,
    candidates: Mapping[str, Any] | None,
    evidence: Mapping[str, Any],
    lake: Path,
) -> str:
    """The id of the night's parent run. The values are those that the night's stages stored.

    A run of exactly these values is kept as it is, since a signed file may name it; any other run of the night goes.
    """
    digest = outcome_digest(inputs, predicted, fitted, evidence)
    known = tracking.find(day, pool, tags={DIGEST_TAG: digest})
    if known is not None:
        return known
    tags = {
        "routecal.verdict": evidence["verdict"],
        "routecal.promotion_cap": evidence["promotion_cap"],
        "mlflow.note.content": evidence["reason"],
        DIGEST_TAG: digest,
    }
    with tracking.night(day, pool, tags=tags) as run:
        held = [] if fitted is None else [restored(Reading, reading) for reading in fitted["readings"]]
        if fitted is not None:
            # Before any metric of the night: MLflow asks for each one that a run has, and gives it to every model.
            run.log_models(
                from_dict(fitted["estimators"]),
                metrics=reading_metrics(held),
                training=training_digests(inputs),
                origin=fitted["origin"],
            )
        run.log(params=night_params(evidence), metrics=night_metrics(evidence))
        run.log_inputs(inputs["digests"], pool=pool, root=str(lake))
        run.log_json("evidence", dict(evidence))
        _predictions(run, predicted)
        if fitted is not None:
            run.log(metrics=error_metrics(fitted))
            run.log_json("estimators", dict(fitted))
            for name, figure in estimator_figures(held).items():
                run.log_figure(f"held_out/{name}", figure)
        for name, figure in figures_of(fitted, evidence).items():
            run.log_figure(name, figure)
        for name, figure in explained_figures(evidence).items():
            run.log_figure(f"explanation/{name}", figure)
        if candidates is not None:
            _arms(run, restored(Candidates, candidates), evidence)
    return run.run_id


def outcome_digest(
    inputs: Mapping[str, Any],
    predicted: Predictions,
    fitted: Mapping[str, Any] | None,
    evidence: Mapping[str, Any],
) -> str:
    """Digest of all that a run is made from."""
    whole = [inputs, predicted.source, plain_readings(predicted.readings), fitted, evidence]
    return sha256(json.dumps(whole, sort_keys=True).encode())


def training_digests(inputs: Mapping[str, Any]) -> dict[str, str]:
    """`<table>/<day>` -> digest of the partitions of the train windows' days."""
    days = {window["day"] for window in inputs["split"]["train"]}
    return {name: digest for name, digest in inputs["digests"].items() if name.split("/", maxsplit=1)[1] in days}


def _predictions(run: NightRun, predicted: Predictions) -> None:
    """What was in force against the day: readings under the models' own keys, the table, figures."""
    if not predicted.readings:
        return
    run.log(
        params={"in_force": predicted.source},
        metrics=reading_metrics(predicted.readings) | alarm_metrics(predicted.readings),
    )
    readings = plain_readings(predicted.readings)
    run.log_json("predictions", {"in_force": predicted.source, "readings": readings})
    for name, figure in estimator_figures(predicted.readings).items():
        run.log_figure(f"predictions/{name}", figure)


def _arms(run: NightRun, candidates: Candidates, evidence: Mapping[str, Any]) -> None:
    policies = {arm.name: arm.policy for arm in candidates.arms}
    for arm in evidence["details"].get("arms", ()):
        run.arm(arm["name"], params=arm_params(arm, policies[arm["name"]]), metrics=arm_metrics(arm))
