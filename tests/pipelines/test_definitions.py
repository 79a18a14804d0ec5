"""The code location loads, and the schedule asks for yesterday of every pool."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import dagster as dg
import pytest

from pipelines.defs.partitions import POOL, night_key, night_of_key, register_pools
from pipelines.defs.resources import Project
from pipelines.defs.schedules import requests_of_the_night
from tests.pipelines.nights import settings_file


def test_code_location_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.definitions import defs

    monkeypatch.setenv("ROUTECAL_SETTINGS", str(settings_file(tmp_path)))
    loaded = defs()
    dg.Definitions.validate_loadable(loaded)
    schedule = loaded.resolve_schedule_def("nightly_schedule")
    assert schedule.cron_schedule == "10 4 * * *"
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING
    assert {"project", "io_manager", "tracking"} <= set(loaded.resources or {})


def test_the_night_asks_for_yesterday_of_every_pool(tmp_path: Path) -> None:
    project = Project(settings_path=str(settings_file(tmp_path, pools=("p", "q"))))
    tick = datetime(2026, 11, 4, 4, 10, tzinfo=UTC)
    with dg.instance_for_test() as instance:
        for _ in range(2):
            with dg.build_schedule_context(instance=instance, scheduled_execution_time=tick) as context:
                requests = list(requests_of_the_night(context, project))
            assert [r.run_key for r in requests] == ["p/2026-11-03", "q/2026-11-03"]
            assert [r.partition_key for r in requests] == ["2026-11-03|p", "2026-11-03|q"]
            assert requests[0].tags["routecal/pool"] == "p"
        assert sorted(instance.get_dynamic_partitions(POOL)) == ["p", "q"]


def test_keys_of_nights() -> None:
    key = night_key(date(2026, 11, 3), "chat")
    assert str(key) == "2026-11-03|chat"
    assert night_of_key(key) == (date(2026, 11, 3), "chat")


def test_pools_are_registered_once() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        register_pools(instance, ["a"])
        register_pools(instance, ["a", "b"])
        assert sorted(instance.get_dynamic_partitions(POOL)) == ["a", "b"]
