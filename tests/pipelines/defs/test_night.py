"""A whole small night through the assets: the same outcome as in one call, recorded, checked, repeatable by part."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from models.honesty.gate import LastGood
from pipelines.defs.partitions import night_key, register_pools
from pipelines.defs.resources import project_resources
from pipelines.io.parquet import LakeIOManager
from pipelines.night.last_good import EstimatorStore
from pipelines.night.nightly import NightResult, run_night
from pipelines.nightly_job import QUIET, night_result, nightly_definitions, run_nightly_assets
from policies.signing import generate_key
from policies.store import PolicyStore
from tests.pipelines.night import emulated
from tests.pipelines.report.values import evidence

POOL, DAY = "small", emulated.LAST_DAY
KEYS = '[keys]\nprivate_key = "key.pem"\n'


@dataclass(frozen=True, slots=True)
class Place:
    """A project folder with logs, a signing key and Dagster's home."""

    folder: Path

    @property
    def settings(self) -> Path:
        return self.folder / "routecal.toml"

    @property
    def io(self) -> LakeIOManager:
        found = project_resources(self.settings)["io_manager"]
        assert isinstance(found, LakeIOManager)
        return found

    def stored(self, name: str) -> Any:
        return self.io.read(name, DAY, POOL)

    def derived(self, name: str) -> Path:
        return self.folder / "runs" / "derived" / name / f"pool={POOL}" / f"day={DAY}.json"

    def run(self, selection: dg.AssetSelection) -> dg.ExecuteInProcessResult:
        """A run of some assets and checks alone, as from the interface; a failure is in the result."""
        resources = project_resources(self.settings)
        whole = nightly_definitions(resources)
        job = dg.define_asset_job("part", selection=selection, executor_def=dg.in_process_executor)
        part = dg.Definitions(assets=whole.assets, asset_checks=whole.asset_checks, resources=resources, jobs=[job])
        with dg.DagsterInstance.ephemeral() as instance:
            register_pools(instance, [POOL])
            return part.resolve_job_def("part").execute_in_process(
                instance=instance, partition_key=night_key(DAY, POOL), run_config=QUIET, raise_on_error=False
            )

    def failure(self, selection: dg.AssetSelection) -> str:
        """The error of a run that fails."""
        done = self.run(selection)
        (failed,) = [event for event in done.all_events if event.is_step_failure]
        assert failed.step_failure_data.error is not None
        return failed.step_failure_data.error.to_string()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("assets")
    emulated.write_logs(emulated.write_settings(folder, more=KEYS), folder / "logs")
    (folder / "key.pem").write_bytes(generate_key()[0])
    shutil.copy(Path(__file__).parents[3] / "dagster.yaml", folder / "dagster.yaml")
    return Place(folder)


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def night(place: Place, told: list[str]) -> NightResult:
    return run_nightly_assets(
        place.settings, POOL, DAY, progress=lambda stage, *_: told.append(stage), dagster_home=place.folder
    )


@pytest.fixture
def untouched(place: Place, night: NightResult) -> Iterator[Place]:
    """The night's place; files that a test damages are put back."""
    kept = {path: path.read_bytes() for path in place.folder.rglob("*.json")}
    yield place
    for path, content in kept.items():
        if path.read_bytes() != content:
            path.write_bytes(content)


def test_the_assets_come_to_what_one_call_comes_to(place: Place, night: NightResult, tmp_path: Path) -> None:
    shutil.copytree(place.folder / "logs", tmp_path / "logs")
    settings = emulated.write_settings(tmp_path)
    one = run_night(settings, settings.pool(POOL), DAY)
    assert night.content_hash == one.content_hash
    assert night.reasons == one.reasons
    assert night.inputs == one.inputs
    assert night.fitted == one.fitted
    assert night.candidates is not None
    assert one.candidates is not None
    assert night.candidates.arms == one.candidates.arms
    assert night.signed


def test_progress_names_the_stages_in_order(night: NightResult, told: list[str]) -> None:
    wanted = [
        "ingest",
        "diagnosis",
        "inputs",
        "predictions",
        "fit",
        "workloads",
        "fidelity",
        "search",
        "evidence",
        "publish",
    ]
    assert list(dict.fromkeys(told)) == wanted
    assert night.timings_s["candidates"] > 0


def test_the_run_is_recorded_in_its_home(place: Place, night: NightResult, monkeypatch: pytest.MonkeyPatch) -> None:
    # As `routecal dev` opens it: in the home, with the paths of dagster.yaml.
    monkeypatch.chdir(place.folder)
    with dg.DagsterInstance.from_config(str(place.folder)) as instance:
        (run,) = instance.get_runs()
        assert run.job_name == "nightly"
        assert run.tags["routecal/pool"] == POOL
        for name in ("requests", "estimators", "evidence", "published", "night_report"):
            event = instance.get_latest_materialization_event(dg.AssetKey(name))
            assert event is not None, name
            assert event.run_id == run.run_id
        history = instance.get_materialized_partitions(dg.AssetKey("requests"))
        assert history == {str(night_key(emulated.FIRST_DAY + timedelta(days=k), POOL)) for k in range(emulated.DAYS)}
    assert night.path is not None
    page = place.folder / "runs" / "reports" / POOL / f"{DAY}.html"
    assert f"Verdict: {night.verdict}" in page.read_text("utf-8")
    assert night.content_hash is not None
    assert night.content_hash in page.read_text("utf-8")


def test_evidence_again_opens_no_test_day_and_keeps_the_mlflow_run(place: Place, night: NightResult) -> None:
    run_id = place.stored("tracked_night")["run_id"]
    done = place.run(dg.AssetSelection.assets("evidence", "tracked_night"))
    assert done.success
    again = place.stored("evidence")["judged"]
    assert again["repeated"]
    assert again["openings"] == night.test_openings == 1
    assert again["evidence"] == night.evidence
    assert place.stored("tracked_night")["run_id"] == run_id


def test_mlflow_has_one_run_a_night_with_one_child_an_arm(place: Place, night: NightResult) -> None:
    import mlflow

    tracking: Any = project_resources(place.settings)["tracking"]
    with tracking.connected():
        client = mlflow.MlflowClient()
        experiment = client.get_experiment_by_name("routecal")
        assert experiment is not None
        runs = client.search_runs([experiment.experiment_id])
        parents = [run for run in runs if "routecal.day" in run.data.tags]
        children = [run for run in runs if "routecal.arm" in run.data.tags]
        models = client.search_logged_models([experiment.experiment_id])
    (parent,) = parents
    assert parent.data.tags["routecal.verdict"] == night.verdict
    assert parent.data.tags["routecal.content_hash"] == night.content_hash
    assert {run.info.run_name for run in children} == {arm["name"] for arm in night.evidence["details"]["arms"]}
    assert {"goodput_frac", "goodput_frac.short", "load_carried", "ttft_ms.p50"} <= set(children[0].data.metrics)
    digests = {held.dataset.name: json.loads(held.dataset.source)["sha256"] for held in parent.inputs.dataset_inputs}
    assert digests == dict(night.inputs.digests)
    assert {model.name for model in models} == {"length", "prefill_step", "decode_step", "transfer", "cache"}
    keys = {metric.key for model in models for metric in model.metrics or ()}
    assert {"length/coverage_q90/all", "decode/median_error/d0/dp0", "transfer/median_ape/all"} <= keys


def outcomes(done: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
    return {found.check_name: (found.passed, found.severity.value) for found in done.get_asset_check_evaluations()}


def steps(done: dg.ExecuteInProcessResult) -> Sequence[str]:
    return [event.step_key for event in done.all_events if event.is_step_success and event.step_key]


def test_a_tampered_file_is_not_published(untouched: Place, night: NightResult) -> None:
    assert night.path is not None
    text = night.path.read_text("utf-8")
    night.path.write_text(text.replace('"verdict":"not distinguishable"', '"verdict":"better"'), "utf-8")
    assert night.path.read_text("utf-8") != text
    guarded = untouched.run(dg.AssetSelection.checks_for_assets("policy") | dg.AssetSelection.assets("published"))
    assert not guarded.success
    assert outcomes(guarded)["content_hash"] == (False, "ERROR")
    assert outcomes(guarded)["signature"] == (False, "ERROR")
    assert "published" not in steps(guarded)
    # Without its checks `published` runs, and refuses by itself.
    alone = untouched.run(dg.AssetSelection.assets("published").without_checks())
    assert alone.success
    refusals = " ".join(untouched.stored("published")["kept_back"])
    assert "hash is not that of its content" in refusals
    assert "signature does not hold" in refusals
    assert PolicyStore(untouched.folder / "store", POOL).current() is None


def test_a_failed_gate_is_seen_and_keeps_no_file(untouched: Place) -> None:
    judged = {"evidence": evidence(forced="fail"), "repeated": False, "openings": 1}
    failed = untouched.stored("evidence") | {"judged": judged}
    untouched.derived("evidence").write_text(json.dumps(failed), "utf-8")
    done = untouched.run(
        dg.AssetSelection.checks_for_assets("evidence")
        | dg.AssetSelection.assets("policy", "published", "night_report")
    )
    assert done.success
    found = outcomes(done)
    assert found["gate_forced_placement"] == (False, "ERROR")
    assert found["gate_validation"] == (True, "WARN")
    assert found["gate_policy_replay"] == (True, "WARN")
    assert found["gate_drills"] == (False, "WARN")
    assert untouched.stored("published") == {"path": None, "moved": False}
    assert any("not trustworthy" in line for line in untouched.stored("night_report")["summary"])


def test_rows_that_are_not_accounted_for_end_the_run(untouched: Place) -> None:
    reports = untouched.stored("ingest_report")
    reports[0]["accepted"] -= 1
    untouched.derived("ingest_report").write_text(json.dumps(reports), "utf-8")
    done = untouched.run(
        dg.AssetSelection.checks_for_assets("ingest_report") | dg.AssetSelection.assets("night_inputs").without_checks()
    )
    assert not done.success
    assert outcomes(done)["accounting_identity"] == (False, "ERROR")
    assert "night_inputs" not in steps(done)


def test_errors_of_estimators_are_seen(untouched: Place) -> None:
    # A run of checks alone has no partition.
    checks = dg.AssetSelection.checks_for_assets("estimators") | dg.AssetSelection.assets("night_report")
    accepted = {"estimators_accepted": (True, "WARN")}
    assert outcomes(untouched.run(checks)) == {"estimator_errors": (True, "WARN")} | accepted
    value = untouched.stored("estimators")
    for cell in value["holdout"]["decode"]:
        cell["error"]["signed_median_frac"] = 0.07
    untouched.derived("estimators").write_text(json.dumps(value), "utf-8")
    done = untouched.run(checks)
    assert done.success
    assert outcomes(done) == {"estimator_errors": (False, "WARN")} | accepted
    found = {check.check_name: check.description for check in done.get_asset_check_evaluations()}
    assert "decode: median 7.0%" in (found["estimator_errors"] or "")


def test_what_was_refused_is_seen(untouched: Place, night: NightResult) -> None:
    assert night.fitted is not None
    assert {gate["outcome"] for gate in night.fitted.origin.values()} == {"first"}
    assert night.evidence["details"]["estimators"] == night.fitted.origin
    value = untouched.stored("estimators")
    value["origin"]["decode"] |= {"accepted": False, "outcome": "kept_last_good", "reason": "decode: it is worse."}
    untouched.derived("estimators").write_text(json.dumps(value), "utf-8")
    done = untouched.run(dg.AssetSelection.checks_for_assets("estimators") | dg.AssetSelection.assets("night_report"))
    assert outcomes(done)["estimators_accepted"] == (False, "WARN")
    page = untouched.folder / "runs" / "reports" / POOL / f"{DAY}.html"
    assert "decode: it is worse." in page.read_text("utf-8")


def test_estimators_in_force_that_are_wrong_alarm(place: Place, night: NightResult) -> None:
    assert night.predicted.readings == ()  # the first night of the pool
    store, yesterday = EstimatorStore(place.folder / "runs", POOL), DAY - timedelta(days=1)
    kept = store.before(DAY + timedelta(days=1), not_before=DAY)
    assert kept is not None
    laws = kept.last.estimators
    slow = {name: 1.5 * laws.decode.factor(name) for name in ("d0/dp0", "d1/dp0")}
    wrong = replace(laws, decode=replace(laws.decode, node_factor=slow))
    path = store.keep(yesterday, LastGood(wrong, kept.last.days))
    try:
        done = place.run(dg.AssetSelection.assets("predictions") | dg.AssetSelection.checks_for_assets("predictions"))
    finally:
        path.unlink()
    found = outcomes(done)
    assert found.pop("decode_error") == (False, "WARN")
    assert set(found.values()) == {(True, "WARN")}
    told = next(c.description for c in done.get_asset_check_evaluations() if c.check_name == "decode_error")
    assert "decode, d0/dp0: median error +5" in (told or "")
    table = place.io.read_table("predictions", DAY, POOL)
    assert set(table["source"]) == {f"night of {yesterday}"}
    place.run(dg.AssetSelection.assets("predictions"))
    assert place.io.read_table("predictions", DAY, POOL).is_empty()


def test_a_late_row_asks_for_new_inputs(untouched: Place) -> None:
    inputs = untouched.stored("night_inputs")
    inputs["digests"]["requests/2026-03-03"] = "sha256:" + "0" * 64
    untouched.derived("night_inputs").write_text(json.dumps(inputs), "utf-8")
    assert "partitions that it began with" in untouched.failure(dg.AssetSelection.assets("estimators"))


def test_assets_of_other_settings_do_not_mix(untouched: Place) -> None:
    text = untouched.settings.read_text("utf-8")
    untouched.settings.write_text(text.replace("resamples = 400", "resamples = 500"), "utf-8")
    found = untouched.failure(dg.AssetSelection.assets("evidence"))
    untouched.settings.write_text(text, "utf-8")
    assert "same inputs, estimators and settings" in found
    assert "materialize contest" in found


def test_one_day_ends_in_a_report_without_a_policy(place: Place, tmp_path: Path) -> None:
    shutil.copytree(place.folder / "logs", tmp_path / "logs")
    emulated.write_settings(tmp_path)
    found = run_nightly_assets(tmp_path / "routecal.toml", POOL, emulated.FIRST_DAY)
    assert (found.verdict, found.promotion_cap, found.file) == ("not trustworthy", "none", None)
    assert found.fitted is not None
    assert found.candidates is None
    page = tmp_path / "runs" / "reports" / POOL / f"{emulated.FIRST_DAY}.html"
    assert "a policy needs two" in page.read_text("utf-8")
    assert night_result(Place(tmp_path).io, POOL, emulated.FIRST_DAY, {}).reasons == found.reasons
