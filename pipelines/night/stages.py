"""What joins the steps of a night. `nightly.run_night` and the assets both go through here: they cannot differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from features.errors import ModelError
from features.lake import Lake
from models.splits import SplitMode
from pipelines.night import policy as making
from pipelines.night.contest import Contest
from pipelines.night.fit import Fitted, fit_night
from pipelines.night.honesty import Predictions, gate_or_note
from pipelines.night.inputs import Inputs
from pipelines.night.judge import find
from pipelines.night.last_good import EstimatorStore
from pipelines.settings import Pool
from policies.evidence.evidence import Evidence
from policies.policy_models import PolicyFile
from policies.search.candidates import Candidates
from policies.search.workers import WorkerPool
from policies.store import PolicyStore


@dataclass(frozen=True, slots=True)
class Judged:
    """The evidence as the policy file carries it: {verdict, promotion_cap, reason, details}.

    `repeated`: the test day had been opened for this decision before, and this is the recorded outcome. `openings`:
    decisions that were judged on the test day so far.
    """

    evidence: Mapping[str, Any]
    repeated: bool
    openings: int


def fitted_or_reason(lake: Lake, pool: Pool, inputs: Inputs, runs: Path) -> tuple[Fitted | None, str]:
    """The estimators, and why the night ends with them; an empty reason = it goes on. They are kept under `runs`, for
    later nights to fall back on.
    """
    store = EstimatorStore(runs, pool.name)
    try:
        kept, passed_over = store.search(inputs.day, not_before=pool.history(inputs.day)[0])
        fitted = fit_night(lake, pool, inputs, lambda new, newest: gate_or_note(lake, pool, inputs, new, kept, newest))
    except ModelError as error:
        return None, f"The logs do not let every estimator be fitted: {error}."
    fitted = replace(fitted, notes=(*passed_over, *fitted.notes))
    store.keep(inputs.day, fitted.good)
    if inputs.split.mode is SplitMode.TRAIN_ONLY:
        return fitted, "One day of history gives estimators and diagnosis; a policy needs two."
    return fitted, ""


def search_candidates(
    workers: WorkerPool,
    pool: Pool,
    inputs: Inputs,
    fitted: Fitted,
    match: Contest,
    incumbent: making.InForce,
    *,
    runs: Path,
    reached: Callable[[int, float], None] = lambda _left, _best: None,
) -> Candidates:
    """Search on the train windows; its journals lie under `runs` and belong to what the scores depend on.

    `reached`: as `find` has it.
    """
    context = making.draft(pool, inputs, fitted, match.space.default, incumbent).decision_hash or ""
    name = f"{pool.name}-{inputs.day.isoformat()}-{context.removeprefix('sha256:')[:16]}"
    journals = runs / "search" / name
    return find(workers, pool, inputs, match, context=context, journals=journals, reached=reached)


def judged_once(
    store: PolicyStore, file: PolicyFile, day: date, fitted: Fitted, judge: Callable[[], Evidence]
) -> Judged:
    """The recorded outcome of the test day for this decision; if there is none, `judge` makes it. It tells which night
    each estimator is from.
    """
    decision = file.decision_hash or ""
    recorded = store.test_day(decision, day.isoformat())
    repeated = recorded is not None
    if recorded is None:
        recorded = store.record_test_day(decision, day.isoformat(), making.evidence_json(judge(), fitted.origin))
    return Judged(recorded, repeated, store.test_openings(day.isoformat()))


def unjudged(reason: str) -> Judged:
    """The outcome of a night that judged no policy."""
    return Judged(
        {"verdict": making.NOT_TRUSTWORTHY, "promotion_cap": "none", "reason": reason, "details": {}}, False, 0
    )


def reasons_of(evidence: Mapping[str, Any]) -> tuple[str, ...]:
    """Why the verdict is what it is, in sentences, the deciding one first."""
    return tuple(evidence["details"].get("reasons", [evidence["reason"]]))


def notes_of(
    fitted: Fitted | None, predicted: Predictions, judged: Judged, published: making.Published | None
) -> tuple[str, ...]:
    """What people should know beside the reasons."""
    notes = [f"Alarm: {reading.sentence}." for reading in predicted.alarms]
    notes += list(fitted.notes) if fitted else []
    if published is not None and not published.signed:
        notes.append("The file is unsigned: the settings name no private key.")
    if published is not None and published.move is None:
        notes += [f"`current` did not move. {reason}" for reason in published.kept_back]
    if judged.repeated:
        notes.append("The test day was opened for this decision before; its record stands.")
    return tuple(notes)
