"""The nightly job in this process: the same assets as the schedule runs, recorded in the same place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.errors import DagsterAssetCheckFailedError

from features.errors import PolicyError
from features.ingest_report import IngestReport
from pipelines.defs import checks, diagnosis, ingest, models, policies, publish, twin
from pipelines.defs.night import UNJUDGED, inputs_of
from pipelines.defs.partitions import night_key, register_pools
from pipelines.defs.publish import published_of
from pipelines.defs.resources import Teller, project_resources
from pipelines.defs.schedules import nightly
from pipelines.night import stages
from pipelines.night.honesty import predicted_of
from pipelines.night.nightly import NightResult
from pipelines.night.stored import restored, restored_fitted
from policies.search.candidates import Candidates

if TYPE_CHECKING:
    from pipelines.io.parquet import LakeIOManager
    from pipelines.night.progress import Progress

STORED = ("ingest_report", "night_inputs", "estimators", "candidates", "evidence", "published")
TIMED = (
    "ingest", "diagnosis", "night_inputs", "predictions", "estimators", "contest", "fidelity", "candidates", "evidence",
    "tracked_night", "policy", "published", "night_report",
)  # fmt: skip
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""`progress` and what is raised tell people; the recorded run has every event."""
STORAGE_FOLDER = ".dagster"
"""As dagster.yaml names it."""


def run_nightly_assets(
    settings_path: Path,
    pool: str,
    day: date,
    *,
    progress: Progress | None = None,
    dagster_home: Path | None = None,
) -> NightResult:
    """Materialize every asset of a night. `progress` as `pipelines.night.nightly.run_night` has it.

    `dagster_home`: the folder of a dagster.yaml where the run is recorded, so that Dagster's interface shows it; None
    leaves no record of the run, only what the assets store. Raises what a stage raises, and PolicyError if a check
    that guards the publication failed.
    """
    resources = project_resources(settings_path)
    job = nightly_definitions(resources | {"teller": Teller(progress)}).resolve_job_def(nightly.name)
    with _instance(dagster_home) as instance:
        register_pools(instance, [pool])
        try:
            done = job.execute_in_process(
                instance=instance,
                partition_key=night_key(day, pool),
                tags={"routecal/pool": pool, "routecal/day": day.isoformat()},
                run_config=QUIET,
            )
        except DagsterAssetCheckFailedError as error:
            raise PolicyError(
                "what guards a publication must hold",
                value=str(error).splitlines()[-1],
                place=f"{pool}/{day}",
                hint="`current` stays where it is; the run's asset checks say more",
            ) from error
        timings_s = _timings(done)
    return night_result(resources["io_manager"], pool, day, timings_s)  # type: ignore[arg-type]  # it is one


def nightly_definitions(resources: dict[str, dg.ResourceDefinition | object]) -> dg.Definitions:
    """Assets, checks and the nightly job with these resources."""
    modules = [ingest, diagnosis, models, twin, policies, publish]
    return dg.Definitions(
        assets=dg.load_assets_from_modules(modules),
        asset_checks=dg.load_asset_checks_from_modules([checks]),
        jobs=[nightly],
        resources=resources,
    )


def night_result(io: LakeIOManager, pool: str, day: date, timings_s: Mapping[str, float]) -> NightResult:
    """What the night's assets stored, in the form of `run_night`.

    Raises LakeError if one of them is missing.
    """
    stored = {name: io.read(name, day, pool) for name in STORED}
    fitted = restored_fitted(stored["estimators"]) if "estimators" in stored["estimators"] else None
    predicted = predicted_of(io.read_table("predictions", day, pool))
    judged = restored(stages.Judged, stored["evidence"]["judged"])
    published = published_of(stored["published"])
    return NightResult(
        pool=pool,
        day=day,
        ingested=tuple(restored(IngestReport, report) for report in stored["ingest_report"]),
        inputs=inputs_of(stored["night_inputs"]),
        predicted=predicted,
        fitted=fitted,
        candidates=_candidates(stored["candidates"]),
        evidence=judged.evidence,
        reasons=stages.reasons_of(judged.evidence),
        file=published.file if published else None,
        path=published.path if published else None,
        signed=published is not None and published.signed,
        repeated=judged.repeated,
        test_openings=judged.openings,
        move=published.move if published else None,
        notes=stages.notes_of(fitted, predicted, judged, published),
        timings_s=timings_s,
    )


def _candidates(stored: Mapping[str, Any]) -> Candidates | None:
    return None if UNJUDGED in stored else restored(Candidates, stored["candidates"])


@contextmanager
def _instance(home: Path | None) -> Iterator[dg.DagsterInstance]:
    """Dagster's instance of a home, or one that forgets."""
    if home is None:
        with dg.DagsterInstance.ephemeral() as instance:
            yield instance
        return
    from dagster._core.instance.ref import InstanceRef

    # A relative folder in dagster.yaml is relative to the working folder: `routecal dev` works in the home.
    overrides = {"storage": {"sqlite": {"base_dir": str(home / STORAGE_FOLDER)}}}
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(home), overrides=overrides)) as instance:
        yield instance


def _timings(done: dg.ExecuteInProcessResult) -> dict[str, float]:
    """Step -> seconds, assets only."""
    return {
        event.step_key: event.step_success_data.duration_ms / 1000
        for event in done.all_events
        if event.is_step_success and event.step_key in TIMED
    }
