"""A night's outcome into its MLflow run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from models.portable_json import from_dict
from pipelines.io.tracking import NightRun, Tracking
from pipelines.night.stored import restored
from pipelines.report.figures import figures_of
from pipelines.report.tracked import arm_metrics, arm_params, error_metrics, night_metrics, night_params
from policies.candidates import Candidates
from policies.canonical import sha256

DIGEST_TAG = "routecal.digest"


def track_night(
    tracking: Tracking,
    day: date,
    pool: str,
    *,
    inputs: Mapping[str, Any],
    fitted: Mapping[str, Any] | None,
    candidates: Mapping[str, Any] | None,
    evidence: Mapping[str, Any],
    lake: Path,
) -> str:
    """The id of the night's parent run. The values are those that the night's stages stored.

    A run of exactly these values is kept as it is, since a signed file may name it; any other run of the night goes.
    """
    digest = outcome_digest(inputs, fitted, evidence)
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
        run.log(params=night_params(evidence), metrics=night_metrics(evidence))
        run.log_inputs(inputs["digests"], pool=pool, root=str(lake))
        run.log_json("evidence", dict(evidence))
        if fitted is not None:
            run.log(metrics=error_metrics(fitted))
            run.log_json("estimators", dict(fitted))
            run.log_models(from_dict(fitted["estimators"]))
        for name, figure in figures_of(fitted, evidence).items():
            run.log_figure(name, figure)
        if candidates is not None:
            _arms(run, restored(Candidates, candidates), evidence)
    return run.run_id


def outcome_digest(inputs: Mapping[str, Any], fitted: Mapping[str, Any] | None, evidence: Mapping[str, Any]) -> str:
    """Digest of all that a run is made from."""
    return sha256(json.dumps([inputs, fitted, evidence], sort_keys=True).encode())


def _arms(run: NightRun, candidates: Candidates, evidence: Mapping[str, Any]) -> None:
    policies = {arm.name: arm.policy for arm in candidates.arms}
    for arm in evidence["details"].get("arms", ()):
        run.arm(arm["name"], params=arm_params(arm, policies[arm["name"]]), metrics=arm_metrics(arm))
