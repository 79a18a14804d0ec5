"""What a night leaves in MLflow: a parent run for the night, a child for every arm, models as plain numbers."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from features.errors import RoutecalError
from models.portable.estimators import Estimators
from pipelines.io.models import ESTIMATOR, MODEL_KINDS, log_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mlflow.entities import Run

EXPERIMENT = "routecal"
BATCH = 900
"""Metrics in one call; MLflow takes 1,000."""
PARAMS = 100
"""Parameters in one call; MLflow takes no more."""


class TrackingError(RoutecalError):
    """What is to be logged breaks a rule."""


@dataclass(slots=True)
class NightRun:
    """A night's parent run, open. Values are logged in batches: one call costs as much as fifty values."""

    run_id: str
    experiment_id: str
    arms: dict[str, str] = field(default_factory=dict)
    """Name of an arm -> its child run."""
    _metric_keys: frozenset[str] | None = None

    def log(
        self, *, params: Mapping[str, Any] | None = None, metrics: Mapping[str, float | None] | None = None
    ) -> None:
        """Parameters and metrics of the night; a metric that is None is unknown and left out."""
        _log(self.run_id, params or {}, metrics or {}, {})

    def arm(self, name: str, *, params: Mapping[str, Any], metrics: Mapping[str, float | None]) -> str:
        """A child run for one arm; its run id. All arms of a night have the same metric keys.

        Raises TrackingError for an arm that is there already or has other keys.
        """
        import mlflow

        keys = frozenset(metrics)
        if name in self.arms:
            raise TrackingError("an arm must be logged once", value=name)
        if self._metric_keys is not None and keys != self._metric_keys:
            raise TrackingError(
                "all arms of a night must have the same metric keys", value=sorted(keys ^ self._metric_keys), place=name
            )
        self._metric_keys = keys
        child = mlflow.MlflowClient().create_run(
            self.experiment_id, run_name=name, tags={"mlflow.parentRunId": self.run_id, "routecal.arm": name}
        )
        self.arms[name] = child.info.run_id
        _log(child.info.run_id, params, metrics, {})
        mlflow.MlflowClient().set_terminated(child.info.run_id)
        return str(child.info.run_id)

    def log_inputs(self, digests: Mapping[str, str], *, pool: str, root: str) -> None:
        """The partitions that the night was made from: `<table>/<day>` -> `sha256:…`, below the lake's folder."""
        import mlflow
        from mlflow.entities import Dataset, DatasetInput, InputTag

        found = []
        for name, digest in digests.items():
            table, day = name.split("/", maxsplit=1)
            source = {"path": f"{root}/{table}/pool={pool}/day={day}/part.parquet", "sha256": digest}
            # MLflow holds 36 characters of a digest; the whole one stands in the source.
            short = digest.removeprefix("sha256:")[:32]
            held = Dataset(name=name, digest=short, source_type="local", source=json.dumps(source))
            found.append(DatasetInput(held, [InputTag("mlflow.data.context", "history")]))
        mlflow.MlflowClient().log_inputs(self.run_id, found)

    def log_json(self, name: str, value: dict[str, Any]) -> None:
        """A JSON artifact of the night, `<name>.json`."""
        import mlflow

        mlflow.MlflowClient().log_dict(self.run_id, value, f"{name}.json")

    def log_figure(self, name: str, figure: Figure) -> None:
        """A PNG artifact of the night, `<name>.png`."""
        import mlflow

        mlflow.MlflowClient().log_figure(self.run_id, figure, f"{name}.png")

    def log_models(
        self,
        estimators: Estimators,
        *,
        metrics: Mapping[str, float] | None = None,
        training: Mapping[str, str] | None = None,
        origin: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> dict[str, str]:
        """The estimators as models: kind -> URI. Code around their portable JSON; nothing is pickled.

        `metrics`: `<estimator>/<measure>/<group>` -> value on held-out days; each model gets its own, by way of a child
        run. `training`: `<table>/<day>` -> digest of what they were made from. `origin`: estimator -> {day, outcome}.
        """
        import mlflow
        from mlflow.entities import Metric

        client = mlflow.MlflowClient()
        child = client.create_run(self.experiment_id, run_name="estimators", tags={"mlflow.parentRunId": self.run_id})
        start_ms, values, made = child.info.start_time, list[Metric](), dict[str, str]()
        for kind in MODEL_KINDS:
            name = ESTIMATOR.get(kind, kind)
            known = {f"routecal.{key}": str(value) for key, value in (origin or {}).get(name, {}).items()}
            info = log_model(kind, estimators, tags=known, training=training or {})
            made[kind] = str(info.model_uri)
            mine = {key: value for key, value in (metrics or {}).items() if key.startswith(f"{name}/")}
            values += [Metric(key, value, start_ms, 0, model_id=info.model_id) for key, value in mine.items()]
        for at in range(0, len(values), BATCH):
            client.log_batch(child.info.run_id, metrics=values[at : at + BATCH])
        client.set_terminated(child.info.run_id)
        return made


class Tracking(dg.ConfigurableResource):  # type: ignore[type-arg]  # its parameter is the type of itself
    """MLflow. `uri`: a server or a SQLite file; `artifacts`: folder for a store without a server of its own."""

    uri: str
    artifacts: str
    experiment: str = EXPERIMENT

    @contextmanager
    def night(self, day: date, pool: str, *, tags: Mapping[str, str] | None = None) -> Iterator[NightRun]:
        """An open parent run, in place of the night's earlier one with its arms. It ends FAILED if the block raises."""
        import mlflow

        with self.connected():
            experiment = self._experiment_id()
            for earlier in self._runs(day, pool):
                _delete_whole(earlier.info.run_id, experiment)
            labels = {"routecal.day": day.isoformat(), "routecal.pool": pool, **(tags or {})}
            with mlflow.start_run(experiment_id=experiment, run_name=f"{pool}/{day}", tags=labels) as run:
                yield NightRun(run.info.run_id, experiment)

    def find(self, day: date, pool: str, *, tags: Mapping[str, str] | None = None) -> str | None:
        """The night's finished parent run that has these tags, None without one."""
        with self.connected():
            for run in self._runs(day, pool):
                held = run.data.tags
                if run.info.status == "FINISHED" and all(held.get(k) == v for k, v in (tags or {}).items()):
                    return str(run.info.run_id)
        return None

    def tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags of a run that has ended."""
        with self.connected():
            _log(run_id, {}, {}, tags)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Point mlflow here for the block."""
        import mlflow

        before = mlflow.get_tracking_uri()
        self.connect()
        try:
            yield
        finally:
            mlflow.set_tracking_uri(before)

    def connect(self) -> None:
        """Point mlflow here. The folder of a SQLite file is made."""
        import mlflow

        # Progress bars and notes on every model are no news to a nightly log.
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        if self.uri.startswith("sqlite:///"):
            Path(self.uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(self.uri)

    def _runs(self, day: date, pool: str) -> list[Run]:
        """Parent runs of a night, the newest first."""
        import mlflow

        wanted = f"tags.`routecal.day` = '{day.isoformat()}' and tags.`routecal.pool` = '{pool}'"
        return list(mlflow.MlflowClient().search_runs([self._experiment_id()], filter_string=wanted))

    def _experiment_id(self) -> str:
        """The experiment's id; made on first use, its artifacts in our folder unless a server keeps them."""
        import mlflow

        found = mlflow.get_experiment_by_name(self.experiment)
        if found is not None:
            return str(found.experiment_id)
        local = Path(self.artifacts).resolve().as_uri() if self.uri.startswith("sqlite:") else None
        return str(mlflow.create_experiment(self.experiment, artifact_location=local))


def _delete_whole(run_id: str, experiment_id: str) -> None:
    """Delete a parent run, its children and its models. MLflow keeps what is deleted aside until `mlflow gc`."""
    import mlflow

    client = mlflow.MlflowClient()
    for child in client.search_runs([experiment_id], filter_string=f"tags.`mlflow.parentRunId` = '{run_id}'"):
        client.delete_run(child.info.run_id)
    for model in client.search_logged_models([experiment_id], filter_string=f"source_run_id = '{run_id}'"):
        client.delete_logged_model(model.model_id)
    client.delete_run(run_id)


def _log(run_id: str, params: Mapping[str, Any], metrics: Mapping[str, float | None], tags: Mapping[str, str]) -> None:
    """In as few calls as MLflow allows."""
    import mlflow
    from mlflow.entities import Metric, Param, RunTag

    client = mlflow.MlflowClient()
    start_ms = client.get_run(run_id).info.start_time
    found = [Metric(key, value, start_ms, 0) for key, value in metrics.items() if value is not None]
    named = [Param(key, str(value)) for key, value in params.items()]
    # By themselves: all that goes in one call counts together.
    if tags:
        client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])
    for at in range(max(-(-len(found) // BATCH), -(-len(named) // PARAMS))):
        client.log_batch(
            run_id, metrics=found[at * BATCH : (at + 1) * BATCH], params=named[at * PARAMS : (at + 1) * PARAMS]
        )
