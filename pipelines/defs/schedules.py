"""When the night runs: once a day, for every pool of the settings."""

from collections.abc import Iterator
from datetime import timedelta

import dagster as dg

from pipelines.defs.partitions import night_key, register_pools
from pipelines.defs.resources import Project, settings_path
from pipelines.settings import load_settings

NIGHTLY = "nightly"

nightly = dg.define_asset_job(
    NIGHTLY,
    selection=dg.AssetSelection.all(),
    description="Every asset of one day and pool, logs to policy.",
    # One process: kernels are loaded once, and the search starts its own workers.
    executor_def=dg.in_process_executor,
)


@dg.definitions
def schedules() -> dg.Definitions:
    """The nightly schedule at the hour of the settings."""
    settings = load_settings(settings_path())

    @dg.schedule(
        name="nightly_schedule",
        job=nightly,
        cron_schedule=f"{settings.minute} {settings.hour_utc} * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Yesterday, for every pool of the settings.",
    )
    def nightly_schedule(context: dg.ScheduleEvaluationContext, project: Project) -> Iterator[dg.RunRequest]:
        yield from requests_of_the_night(context, project)

    # Assets that are materialized by hand run as the nightly job does.
    return dg.Definitions(jobs=[nightly], schedules=[nightly_schedule], executor=dg.in_process_executor)


def requests_of_the_night(context: dg.ScheduleEvaluationContext, project: Project) -> Iterator[dg.RunRequest]:
    """One run a pool for the day before the tick. The run key makes a repeated tick harmless."""
    day = (context.scheduled_execution_time - timedelta(days=1)).date()
    pools = project.settings().pools
    register_pools(context.instance, pools)
    for pool in pools:
        yield dg.RunRequest(
            run_key=f"{pool}/{day}",
            partition_key=night_key(day, pool),
            tags={"routecal/pool": pool, "routecal/day": day.isoformat()},
        )
