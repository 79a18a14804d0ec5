"""`routecal diagnose` and `routecal compare`: one JSON object, a page, exit codes; and the asset of the night."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from features.lake import Lake
from pipelines.cli import app
from tests.pipelines.diagnosis.planted import DAY, POOL, Planted, plant


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A pool with one slow P, its settings file beside the lake that they name."""
    folder = tmp_path_factory.mktemp("planted")
    made = plant("slow_prefill", folder, seed=1)
    (folder / "routecal.toml").write_text(made.text, "utf-8")
    return made


def run(*arguments: str) -> tuple[int, Any, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr


def settings(planted: Planted) -> str:
    return str(planted.settings.base / "routecal.toml")


def test_diagnose(planted: Planted, tmp_path: Path) -> None:
    where = ("--day", str(DAY), "--pool", POOL)
    code, got, text = run("diagnose", *where, "--settings", settings(planted), "--out", str(tmp_path), "--json")
    assert code == 0
    assert [(finding["name"], finding["subject"]) for finding in got["findings"]] == [("slow_prefill_node", "p1/dp0")]
    assert got["answers"][-1]["question"] == "bottleneck"
    assert got["tables"]["slo"]
    assert "slow_prefill_node, p1/dp0" in text
    assert "TTFT by stage" in text
    page = Path(got["page"]).read_text("utf-8")
    assert page.count("data:image/png;base64,") == 4
    assert "p1/dp0 takes" in page
    assert "http" not in page


def test_diagnose_without_settings(planted: Planted) -> None:
    code, got, text = run("diagnose", "--day", str(DAY), "--pool", POOL, "--lake", str(planted.lake.root), "--json")
    assert code == 0
    assert "line rates are unknown" in text
    answers = {answer["question"]: answer["verdict"] for answer in got["answers"]}
    assert answers["slo"] == "unknown"
    assert answers["bottleneck"] == "P compute"
    assert got["page"] is None


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("diagnose", "--day", "2026-10-06", "--pool", POOL), "must have requests"),
        (("diagnose", "--day", "yesterday", "--pool", POOL), "ISO date"),
        (("diagnose", "--day", "2026-10-05", "--pool", "nobody"), "must stand in the settings"),
        (("compare", "--days", "2026-10-05..2026-10-01", "--pool", POOL), "must not end before"),
        (("compare", "--days", "2026-10-05", "--pool", POOL, "--by", "mood"), "known column"),
        (("compare", "--days", "2025-01-01", "--pool", POOL), "requests to compare"),
    ],
)
def test_wrong_use_says_what_is_wrong(planted: Planted, arguments: tuple[str, ...], rule: str) -> None:
    code, got, text = run(*arguments, "--settings", settings(planted), "--json")
    assert code == 2
    assert rule in got["error"]["rule"]
    assert rule in text


def with_second_version(planted: Planted, folder: Path) -> Lake:
    """The planted day, and the same requests a day later under another version whose TTFT is 50 ms shorter."""
    lake = Lake(folder / "lake")
    frame = planted.lake.read("requests", DAY, POOL)
    lake.write("requests", DAY, POOL, frame, sources={})
    times = [name for name in frame.columns if name.endswith("_at_us")]
    later = frame.with_columns(pl.col(times) + 86_400_000_000, policy_version=pl.lit(f"{POOL}/2026-10-05"))
    later = later.with_columns(
        pl.max_horizontal(pl.col("first_token_at_us") - 50_000, pl.col("arrived_at_us")).alias("first_token_at_us")
    )
    lake.write("requests", DAY + timedelta(days=1), POOL, later, sources={})
    return lake


def test_compare(planted: Planted, tmp_path: Path) -> None:
    lake = with_second_version(planted, tmp_path)
    days = f"{DAY}..{DAY + timedelta(days=1)}"
    code, got, text = run(
        "compare", "--pool", POOL, "--days", days, "--lake", str(lake.root), "--settings", settings(planted), "--json"
    )
    assert code == 0
    (one,) = got["comparisons"]
    assert (one["reference"], one["value"]) == ("incumbent/lmetric", f"{POOL}/2026-10-05")
    ttft = next(effect for effect in one["effects"] if effect["measure"] == "ttft")
    # Each request is 50 ms faster, so each stratum is; minutes are drawn for each version by themselves.
    assert ttft["difference"] == pytest.approx(-50, abs=1e-6)
    assert ttft["reference_n"] == ttft["value_n"] > 3000
    assert one["together_frac"] == 0
    assert one["predicted"] is None
    assert "not assigned at random" in text


def test_compare_by_router_has_nothing_to_compare(planted: Planted) -> None:
    code, got, text = run(
        "compare", "--pool", POOL, "--days", str(DAY), "--by", "router_id", "--settings", settings(planted), "--json"
    )
    assert code == 0
    assert got["comparisons"] == []
    assert "nothing to compare" in text


def test_only_days_of_the_lake_are_looked_at(planted: Planted) -> None:
    where = ("--pool", POOL, "--by", "router_id", "--settings", settings(planted), "--json")
    code, got, _ = run("compare", "--days", "0001-01-01..9999-12-31", *where)
    assert code == 0
    assert got["days"] == [str(DAY)]


def test_a_prediction_stands_beside_what_came_of_it(tmp_path: Path) -> None:
    from features.diagnosis.compare import Comparison, Effect
    from pipelines.night.predicted import predicted_gain, prediction_text, with_prediction
    from policies.policy_file import to_json, with_proof
    from policies.store import PolicyStore
    from tests.pipelines.report.values import evidence
    from tests.policies.files import small_file

    bare = small_file(n_vectors=1)
    file = with_proof(bare, evidence=evidence(), vectors=to_json(bare)["vectors"])
    store = PolicyStore(tmp_path, file.pool)
    assert predicted_gain(store, file.policy_version) is None
    store.add(file)
    known = predicted_gain(store, file.policy_version)
    assert known is not None
    assert (known.gain, known.low, known.high) == (0.012, 0.004, 0.021)
    assert known.verdict == "better"
    effect = Effect("slo", 0.90, 0.91, 0.01, 0.002, 0.018, 1000, 1000, 12)
    found = Comparison("policy_version", "other", file.policy_version, 1000, 1000, 1.0, 0.0, (effect,), (), ())
    value = with_prediction(found, store)["predicted"]
    assert (value["realised"], value["inside"], value["same_reference"]) == (0.01, True, False)
    assert "they agree" in prediction_text(value)
    worse = replace(found, effects=(replace(effect, difference=-0.05, low=-0.07, high=-0.03),))
    assert "they do not agree" in prediction_text(with_prediction(worse, store)["predicted"])
    assert with_prediction(replace(found, by="router_id"), store)["predicted"] is None


def test_the_asset_of_the_night(planted: Planted) -> None:
    import dagster as dg

    from pipelines.defs.partitions import night_key, register_pools
    from pipelines.defs.resources import project_resources
    from pipelines.nightly_job import QUIET, nightly_definitions

    resources = project_resources(Path(settings(planted)))
    whole = nightly_definitions(resources)
    job = dg.define_asset_job("part", selection="diagnosis", executor_def=dg.in_process_executor)
    part = dg.Definitions(assets=whole.assets, resources=resources, jobs=[job]).resolve_job_def("part")
    outcomes = {}
    with dg.DagsterInstance.ephemeral() as instance:
        register_pools(instance, [POOL])
        for day in (DAY, DAY + timedelta(days=9)):
            done = part.execute_in_process(instance=instance, partition_key=night_key(day, POOL), run_config=QUIET)
            (event,) = done.get_asset_materialization_events()
            outcomes[day] = (done.success, event.materialization.metadata, resources["io_manager"])
    ok, metadata, io = outcomes[DAY]
    assert ok
    assert metadata["bottleneck"].value == "P compute"
    assert "data:image/png;base64," in metadata["summary"].value
    stored = io.read("diagnosis", DAY, POOL)
    assert [finding["name"] for finding in stored["findings"]] == ["slow_prefill_node"]
    assert Path(stored["path"]).exists()
    # A day without logs cannot be diagnosed; the night goes on all the same.
    ok, metadata, _ = outcomes[DAY + timedelta(days=9)]
    assert ok
    assert "must have requests" in metadata["failed"].value
