"""A night in MLflow: parent, arms under equal keys, models without pickle."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from pipelines.io.tracking import PARAMS, NightRun, Tracking, TrackingError
from pipelines.night.honesty import Predictions
from pipelines.report.tracking import track_night
from tests.pipelines.nights import estimators
from tests.pipelines.report.values import evidence

DAY = date(2026, 11, 3)


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    """One database for all tests here: making one takes seconds."""
    folder = tmp_path_factory.mktemp("runs")
    return Tracking(uri=f"sqlite:///{folder / 'mlflow.db'}", artifacts=str(folder / "artifacts"))


@pytest.fixture
def night(tracking: Tracking) -> Iterator[NightRun]:
    with tracking.night(DAY, "p", tags={"routecal.revision": "abc"}) as run:
        yield run


def test_a_night_has_one_child_an_arm(tracking: Tracking) -> None:
    import mlflow

    with tracking.night(DAY, "p") as night:
        night.log(params={"trials": 96}, metrics={"gain": 0.1, "unknown": None})
        night.arm("routecal", params={"w1": 1.0}, metrics={"goodput_frac": 0.9, "ttft_p99_ms": None})
        night.arm("lmetric", params={}, metrics={"goodput_frac": 0.8, "ttft_p99_ms": 900.0})
        night.log_json("verdict", {"verdict": "better"})
        client = mlflow.MlflowClient()
        children = client.search_runs(
            [night.experiment_id], filter_string=f"tags.mlflow.parentRunId = '{night.run_id}'"
        )
    assert {run.info.run_name: run.data.metrics for run in children} == {
        "routecal": {"goodput_frac": 0.9}, "lmetric": {"goodput_frac": 0.8, "ttft_p99_ms": 900.0},
    }  # fmt: skip
    assert {run.info.status for run in children} == {"FINISHED"}
    tracking.connect()
    parent = client.get_run(night.run_id)
    assert (parent.info.run_name, parent.info.status) == ("p/2026-11-03", "FINISHED")
    assert parent.data.metrics == {"gain": 0.1}
    assert parent.data.params == {"trials": "96"}
    assert parent.data.tags["routecal.pool"] == "p"
    assert (Path(tracking.artifacts) / night.run_id / "artifacts" / "verdict.json").exists()


def test_arms_have_the_same_keys(night: NightRun) -> None:
    night.arm("a", params={}, metrics={"goodput_frac": 0.9})
    with pytest.raises(TrackingError, match=r"same metric keys.*p99"):
        night.arm("b", params={}, metrics={"goodput_frac": 0.9, "p99": 1.0})
    with pytest.raises(TrackingError, match="logged once"):
        night.arm("a", params={}, metrics={"goodput_frac": 0.9})


def test_a_night_that_fails_says_so(tracking: Tracking) -> None:
    import mlflow

    begun: list[str] = []

    def fails() -> None:
        with tracking.night(DAY, "p") as night:
            begun.append(night.run_id)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    tracking.connect()
    assert mlflow.MlflowClient().get_run(begun[0]).info.status == "FAILED"


def test_models_are_code_around_plain_numbers(tracking: Tracking) -> None:
    import mlflow
    import pandas as pd

    held = {"length/coverage_q90/all": 0.91, "decode/median_error/d0": -0.02, "decode/median_ape/d0": 0.03}
    trained = {"requests/2026-11-02": f"sha256:{'ab' * 32}"}
    origin = {"decode": {"day": "2026-11-01", "outcome": "kept_last_good"}}
    with tracking.night(DAY, "p") as night:
        uris = night.log_models(estimators(), metrics=held, training=trained, origin=origin)
        night.log(metrics=held)
    assert list(uris) == ["length", "prefill_step", "decode_step", "transfer", "cache"]
    tracking.connect()
    rows = {
        "length": pd.DataFrame(
            {
                "slo_class": ["a", "b", "chat"],
                "prompt_tokens": [999, 1000, 1],
                "app": [None, "x", "a"],
                "max_output_tokens": [15, None, None],
            }
        ),
        "prefill_step": pd.DataFrame(
            {"node": ["p0", "p1"], "new_tokens": [10.0, 10.0], "chunk_context": [0.0, 0.0], "prompts": [1.0, 1.0]}
        ),
        "decode_step": pd.DataFrame({"node": ["d0", "d0"], "sequences": [1.0, 8.0], "tokens": [5.0, 5.0]}),
        "transfer": pd.DataFrame(
            {"path": ["local", "cross"], "kv_bytes": [1e9, 9e8], "share": [1e10, 1e10], "blocks": [0.0, 0.0]}
        ),
        "cache": pd.DataFrame({"node": ["p0", "p1"]}),
    }
    loaded = {kind: mlflow.pyfunc.load_model(uri) for kind, uri in uris.items()}
    made = {kind: loaded[kind].predict(rows[kind]) for kind in uris}
    assert made["length"].to_dict("list") == {"q0.5": [10.0, 30.0, 20.0], "q0.9": [15.0, 60.0, 40.0]}
    assert made["prefill_step"]["seconds"].to_list() == pytest.approx([0.04, 0.02])
    assert made["decode_step"]["seconds"].to_list() == pytest.approx([0.02, 0.03])
    assert made["transfer"]["seconds"].to_list() == pytest.approx([0.1, 0.101])
    assert made["cache"]["capacity_blocks"].to_list()[0] == 80.0
    for kind, model in loaded.items():
        assert model.metadata.signature is not None, kind
        assert model.metadata.metadata["training"] == trained
    files = [path for path in Path(tracking.artifacts).rglob("*") if path.is_file()]
    assert not [path for path in files if path.suffix in {".pkl", ".pickle", ".joblib"}]

    client = mlflow.MlflowClient()
    decode = client.get_logged_model(loaded["decode_step"].metadata.model_id)
    assert {m.key: m.value for m in decode.metrics} == {k: v for k, v in held.items() if k.startswith("decode/")}
    assert decode.tags["routecal.outcome"] == "kept_last_good"
    assert decode.params["training.requests/2026-11-02"] == trained["requests/2026-11-02"]
    # The same keys on the night's own run: two nights compare.
    assert client.get_run(night.run_id).data.metrics == held


def test_a_repeated_night_replaces_its_run(tracking: Tracking) -> None:
    import mlflow

    day, made = date(2026, 11, 4), []
    for gain in (0.1, 0.2):
        with tracking.night(day, "p", tags={"routecal.digest": str(gain)}) as night:
            night.log(metrics={"gain": gain})
            night.arm("a", params={}, metrics={"goodput_frac": gain})
            night.log_models(estimators())
            made.append(night.run_id)
    with tracking.night(day, "q"):
        pass
    with tracking.connected():
        client = mlflow.MlflowClient()
        found = client.search_runs(
            [night.experiment_id], filter_string="tags.`routecal.day` = '2026-11-04' and tags.`routecal.pool` = 'p'"
        )
        arms = client.search_runs([night.experiment_id], filter_string="tags.`routecal.arm` = 'a'")
        models = [m for m in client.search_logged_models([night.experiment_id]) if m.source_run_id in made]
    assert [m.source_run_id for m in models] == [made[1]] * 5
    assert [run.data.metrics for run in found] == [{"gain": 0.2}]
    assert night.run_id in {run.data.tags["mlflow.parentRunId"] for run in arms}
    assert tracking.find(day, "p") == night.run_id
    assert tracking.find(day, "p", tags={"routecal.digest": "0.2"}) == night.run_id
    assert tracking.find(day, "p", tags={"routecal.digest": "0.1"}) is None


def test_a_run_that_has_ended_can_be_tagged(tracking: Tracking) -> None:
    import mlflow

    with tracking.night(date(2026, 11, 5), "p") as night:
        night.log_inputs({"requests/2026-11-04": f"sha256:{'ab' * 32}"}, pool="p", root="lake")
    tracking.tag(night.run_id, {"routecal.content_hash": "sha256:00"})
    with tracking.connected():
        run = mlflow.MlflowClient().get_run(night.run_id)
    assert run.data.tags["routecal.content_hash"] == "sha256:00"
    assert run.info.status == "FINISHED"
    (held,) = run.inputs.dataset_inputs
    assert (held.dataset.name, held.dataset.digest) == ("requests/2026-11-04", "ab" * 16)
    assert "lake/requests/pool=p/day=2026-11-04/part.parquet" in held.dataset.source


def test_more_parameters_than_mlflow_takes_at_once(tracking: Tracking) -> None:
    import mlflow

    params = {f"weights.{at}": at for at in range(2 * PARAMS + 1)}
    with tracking.night(date(2026, 11, 6), "p") as night:
        night.log(params=params, metrics={"gain": 0.1})
        held = mlflow.MlflowClient().get_run(night.run_id).data
    assert held.params == {key: str(value) for key, value in params.items()}
    assert held.metrics == {"gain": 0.1}


def test_nights_compare_by_gates_and_what_explains_the_winner(tracking: Tracking, tmp_path: Path) -> None:
    import mlflow

    made = [
        track_night(
            tracking, date(2026, 11, day), "why", inputs={"digests": {}}, predicted=Predictions("", ()), fitted=None,
            candidates=None, evidence=evidence(forced=forced), lake=tmp_path,
        )
        for day, forced in ((7, "pass"), (8, "fail"))
    ]  # fmt: skip
    with tracking.connected():
        client = mlflow.MlflowClient()
        first, second = (client.get_run(run_id).data for run_id in made)
        files = {file.path for file in client.list_artifacts(made[0], "explanation")}
    assert first.metrics.keys() == second.metrics.keys()
    changed = {
        key: (first.metrics[key], second.metrics[key])
        for key in first.metrics
        if first.metrics[key] != second.metrics[key]
    }
    assert changed == {"gate/forced_placement/passed": (1.0, 0.0)}
    for key, value in {
        "gate/validation/low": 0.004, "ladder/bookings/gain": 0.02, "ablation/DecodeWait/off": -0.031,
        "regret/winner/short/ttft_s": 0.0125, "flow/incumbent/crossed_frac": 0.5, "switchback/blocks": 546.0,
        "optimism.gain_optimism": 0.01, "search/searched/given_up": 2.0,
    }.items():  # fmt: skip
        assert first.metrics[key] == value, key
    assert "gate/drills/passed" not in first.metrics  # it was not run
    assert "ladder/guard/gain" not in first.metrics
    assert files == {f"explanation/{name}.png" for name in ("ladder", "ablation", "crossings", "fronts")}
