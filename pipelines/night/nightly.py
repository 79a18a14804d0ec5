"""A whole night of one pool in one process: logs in, a signed candidate out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from features.ingest_report import IngestReport
from features.lake import Lake
from pipelines.night import contest as meeting
from pipelines.night import fidelity as believing
from pipelines.night import judge as judging
from pipelines.night import policy as making
from pipelines.night import stages
from pipelines.night.fit import Fitted
from pipelines.night.honesty import Predictions, predictions
from pipelines.night.ingest import ingest_night
from pipelines.night.inputs import Inputs, select_inputs
from pipelines.night.last_good import EstimatorStore
from pipelines.night.progress import Progress, Stage
from pipelines.settings import Pool, Settings
from policies.evidence.evidence import Evidence
from policies.policy_models import PolicyFile
from policies.search.candidates import Candidates
from policies.store import Move, PolicyStore


@dataclass(frozen=True, slots=True)
class NightResult:
    """What a night found.

    `evidence`: as the policy file carries it, {verdict, promotion_cap, reason, details}; `details` is empty where no
    policy was judged. `predicted`: the estimators in force against the day. `fitted`, `candidates`: None where the
    night did not come that far. `repeated`: the test day had been opened for this decision before, and the evidence is
    the recorded one. `move`: of `current`. `file`, `path`: the stored candidate, None if the night is not trustworthy.
    `notes`: what people should know beside the verdict's reasons. `timings_s`: stage -> seconds, outside of every hash.
    """

    pool: str
    day: date
    ingested: tuple[IngestReport, ...]
    inputs: Inputs
    predicted: Predictions
    fitted: Fitted | None
    candidates: Candidates | None
    evidence: Mapping[str, Any]
    reasons: tuple[str, ...]
    file: PolicyFile | None
    path: Path | None
    signed: bool
    repeated: bool
    test_openings: int
    move: Move | None
    notes: tuple[str, ...]
    timings_s: Mapping[str, float]

    @property
    def verdict(self) -> str:
        """better, not distinguishable, worse or not trustworthy."""
        return str(self.evidence["verdict"])

    @property
    def promotion_cap(self) -> str:
        """none, shadow or current."""
        return str(self.evidence["promotion_cap"])

    @property
    def content_hash(self) -> str | None:
        """Hash of the stored file."""
        return None if self.file is None else self.file.content_hash


@dataclass(slots=True)
class _Run:
    """A night under way: who is told, where it is, and how long stages took."""

    progress: Progress
    timings_s: dict[str, float] = field(default_factory=dict)
    _at: Stage | None = None

    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Stage]:
        """Times a stage of `total` replays at most, 0 = unknown."""
        self._at = Stage(name, self.progress, total)
        self._at.tell()
        began = time.perf_counter()
        try:
            yield self._at
        finally:
            self.timings_s[name] = self.timings_s.get(name, 0.0) + time.perf_counter() - began

    def step(self) -> None:
        """One more replay of the stage is done."""
        if self._at is not None:
            self._at.step()


def run_night(
    settings: Settings,
    pool: Pool,
    day: date,
    *,
    progress: Progress | None = None,
    issued_at: str | None = None,
    mlflow_run: str | None = None,
) -> NightResult:
    """Ingest, fit, replay, search, judge, publish: the night of `day`.

    `progress(stage, done, of how many at most, best so far)`: stages are ingest, inputs, predictions, fit, workloads,
    fidelity, search, evidence, publish; 0 done = it begins, of 0 = nobody knows. `issued_at`: UTC,
    YYYY-MM-DDTHH:MM:SSZ, None = now. The stored file's `content_hash` depends on the logs, the settings, the code, what
    was in force on the day and on the validation days, and the estimators of the night before where one of them is
    kept.

    Raises SourceError, SettingsError or ModelError for input that no night can be made of.
    """
    run = _Run(progress or (lambda *_: None))
    lake, store = Lake(settings.storage.lake), PolicyStore(settings.storage.store, pool.name)
    runs = settings.storage.runs
    with run.stage("ingest"):
        ingested = ingest_night(lake, pool, day, base=settings.base)
    with run.stage("inputs"):
        making.trusted_keys(settings.keys)
        inputs = select_inputs(lake, pool, day)
    with run.stage("predictions"):
        predicted = predictions(lake, store, EstimatorStore(runs, pool.name), pool, inputs)
    result = _Result(run, pool, inputs, ingested, predicted)
    with run.stage("fit"):
        fitted, reason = stages.fitted_or_reason(lake, pool, inputs, runs)
    if fitted is None or reason:
        return result.judged(fitted, None, stages.unjudged(reason), None)
    incumbent = making.in_force(store, pool, day)
    with run.stage("workloads"):
        workloads = meeting.all_workloads(lake, pool, inputs, fitted)
        match = meeting.contest(lake, pool, inputs, fitted, workloads, incumbent.policy)
    with run.stage("fidelity", believing.fidelity_replays(pool, inputs)):
        gates = believing.fidelity(lake, store, pool, inputs, fitted, match.incumbent, run.step)
    with judging.replaying(pool, inputs, fitted, workloads, runs / "scratch", run.step) as workers:
        with run.stage("search", judging.search_replays(pool, inputs, match)) as at:
            candidates = stages.search_candidates(
                workers, pool, inputs, fitted, match, incumbent, runs=runs, reached=at.reached
            )
        file = making.draft(pool, inputs, fitted, candidates.policy, incumbent)

        def judge() -> Evidence:
            refits = len(fitted.refits)
            with run.stage("evidence", judging.evidence_replays(pool, inputs, match, candidates, refits=refits)):
                return judging.judge(workers, pool, inputs, match, candidates, gates, refits=refits)

        judged = stages.judged_once(store, file, day, fitted, judge)
    with run.stage("publish"):
        published = None
        if judged.evidence["verdict"] != making.NOT_TRUSTWORTHY:
            whole = making.proven(pool, file, candidates.policy, fitted.estimators, judged.evidence)
            issued = issued_at or making.now()
            published = making.publish(store, whole, settings.keys, issued_at=issued, mlflow_run=mlflow_run)
    return result.judged(fitted, candidates, judged, published)


@dataclass(frozen=True, slots=True)
class _Result:
    """What all results of a night share."""

    run: _Run
    pool: Pool
    inputs: Inputs
    ingested: tuple[IngestReport, ...]
    predicted: Predictions

    def judged(
        self,
        fitted: Fitted | None,
        candidates: Candidates | None,
        judged: stages.Judged,
        published: making.Published | None,
    ) -> NightResult:
        """A night with its outcome."""
        return NightResult(
            pool=self.pool.name,
            day=self.inputs.day,
            ingested=self.ingested,
            inputs=self.inputs,
            predicted=self.predicted,
            fitted=fitted,
            candidates=candidates,
            evidence=judged.evidence,
            reasons=stages.reasons_of(judged.evidence),
            file=published.file if published else None,
            path=published.path if published else None,
            signed=published is not None and published.signed,
            repeated=judged.repeated,
            test_openings=judged.openings,
            move=published.move if published else None,
            notes=stages.notes_of(fitted, self.predicted, judged, published),
            timings_s=dict(self.run.timings_s),
        )
