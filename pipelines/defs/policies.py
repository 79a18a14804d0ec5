"""Candidates on train days, the evidence on days held out, and the night in MLflow."""

from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg
import polars as pl

from pipelines.defs.models import image
from pipelines.defs.night import (
    BASIS,
    OWNERS,
    UNJUDGED,
    Metadata,
    Night,
    Stored,
    check_basis,
    current_inputs,
    night,
    stage,
)
from pipelines.defs.partitions import NIGHTS
from pipelines.defs.resources import Project, Teller
from pipelines.io.tracking import Tracking
from pipelines.night import contest as meeting
from pipelines.night import judge as judging
from pipelines.night import stages
from pipelines.night.fit import Fitted
from pipelines.night.honesty import predicted_of
from pipelines.night.inputs import Inputs
from pipelines.night.policy import InForce, draft
from pipelines.night.stored import plain, restored, restored_fitted
from policies.evidence.evidence import Evidence
from policies.evidence.gates import Gate
from policies.policy_file import to_json
from policies.search.candidates import Candidates


@dg.asset(
    # Nothing of it is used here: whether the twin can be believed is known before hours of search begin.
    deps=["fidelity"],
    partitions_def=NIGHTS,
    group_name="judge",
    kinds={"numba", "optuna", "json"},
    owners=OWNERS,
    description="One row an arm: incumbent, default policy, simple families with their variants, and what was "
    "searched, each with its scores on the train windows; and every trial of the search.",
)
def candidates(
    context: dg.AssetExecutionContext,
    project: Project,
    teller: dg.ResourceParam[Teller],
    night_inputs: dict[str, Any],
    estimators: dict[str, Any],
    contest: dict[str, Any],
) -> dg.Output[Stored]:
    """The search goes on from its journal on disk if an earlier run was ended."""
    if UNJUDGED in contest:
        return dg.Output(contest)
    tonight, fitted = night(context, project), restored_fitted(estimators)
    check_basis(tonight, night_inputs, estimators, contest=contest)
    inputs = current_inputs(tonight, night_inputs)
    match, incumbent = restored(meeting.Contest, contest["contest"]), restored(InForce, contest["incumbent"])
    runs = tonight.settings.storage.runs
    workloads = meeting.all_workloads(tonight.lake, tonight.pool, inputs, fitted)
    total = judging.search_replays(tonight.pool, inputs, match)
    with (
        stage("search", context, teller, total) as told,
        judging.replaying(tonight.pool, inputs, fitted, workloads, runs / "scratch", told.step) as workers,
    ):
        found = stages.search_candidates(
            workers, tonight.pool, inputs, fitted, match, incumbent, runs=runs, reached=told.reached
        )
    rows = [
        dg.TableRecord({"arm": a.name, "family": a.policy.family, "same_rack": a.policy.same_rack, "train": a.value})
        for a in found.arms
    ]
    return dg.Output(
        {"candidates": plain(Candidates, found), BASIS: contest[BASIS]},
        metadata={
            "dagster/row_count": len(found.arms),
            "winner": found.winner,
            "arms": dg.MetadataValue.table(rows),
            "search": dg.MetadataValue.json(dict(found.summary)),
        },
    )


@dg.asset(
    partitions_def=NIGHTS,
    group_name="judge",
    kinds={"numba", "json"},
    owners=OWNERS,
    description="One row a night: gates, verdict and the table of arms on validation and test days. The test day is "
    "opened once a decision; after that its record stands.",
)
def evidence(
    context: dg.AssetExecutionContext,
    project: Project,
    teller: dg.ResourceParam[Teller],
    night_inputs: dict[str, Any],
    estimators: dict[str, Any],
    contest: dict[str, Any],
    candidates: dict[str, Any],
    fidelity: dict[str, Any],
) -> dg.Output[Stored]:
    """The winner against the incumbent. `draft`: the policy file that was judged, before its proof."""
    if UNJUDGED in candidates:
        judged = stages.unjudged(candidates[UNJUDGED])
        return dg.Output({"judged": plain(stages.Judged, judged), "draft": None}, metadata=evidence_metadata(judged))
    tonight, fitted = night(context, project), restored_fitted(estimators)
    check_basis(tonight, night_inputs, estimators, contest=contest, candidates=candidates, fidelity=fidelity)
    inputs = current_inputs(tonight, night_inputs)
    match, incumbent = restored(meeting.Contest, contest["contest"]), restored(InForce, contest["incumbent"])
    found = restored(Candidates, candidates["candidates"])
    gates = [restored(Gate, gate) for gate in fidelity["gates"]]
    file = draft(tonight.pool, inputs, fitted, found.policy, incumbent)

    def judge() -> Evidence:
        return _judge(tonight, inputs, fitted, match, found, gates, context, teller)

    judged = stages.judged_once(tonight.store, file, tonight.day, fitted, judge)
    return dg.Output(
        {"judged": plain(stages.Judged, judged), "draft": to_json(file)}, metadata=evidence_metadata(judged)
    )


def _judge(
    tonight: Night,
    inputs: Inputs,
    fitted: Fitted,
    match: meeting.Contest,
    found: Candidates,
    gates: list[Gate],
    context: dg.AssetExecutionContext,
    teller: Teller,
) -> Evidence:
    workloads = meeting.all_workloads(tonight.lake, tonight.pool, inputs, fitted)
    scratch, refits = tonight.settings.storage.runs / "scratch", len(fitted.refits)
    total = judging.evidence_replays(tonight.pool, inputs, match, found, refits=refits)
    with (
        stage("evidence", context, teller, total) as told,
        judging.replaying(tonight.pool, inputs, fitted, workloads, scratch, told.step) as workers,
    ):
        return judging.judge(workers, tonight.pool, inputs, match, found, gates, refits=refits)


@dg.asset(
    partitions_def=NIGHTS,
    group_name="judge",
    kinds={"mlflow"},
    owners=OWNERS,
    description="One row a night: its parent run in MLflow, with a child run an arm, the estimators as models, digests "
    "of the inputs, and figures. A night that is repeated with the same outcome keeps its run, else replaces it.",
)
def tracked_night(
    context: dg.AssetExecutionContext,
    project: Project,
    tracking: Tracking,
    night_inputs: dict[str, Any],
    predictions: pl.DataFrame,
    estimators: dict[str, Any],
    candidates: dict[str, Any],
    evidence: dict[str, Any],
) -> dg.Output[Stored]:
    """The id of the run goes into the signed statement of the policy file."""
    from pipelines.report.tracking import track_night

    tonight = night(context, project)
    run_id = track_night(
        tracking,
        tonight.day,
        tonight.pool.name,
        inputs=night_inputs,
        predicted=predicted_of(predictions),
        fitted=estimators if "estimators" in estimators else None,
        candidates=candidates.get("candidates"),
        evidence=evidence["judged"]["evidence"],
        lake=tonight.settings.storage.lake,
    )
    return dg.Output({"run_id": run_id}, metadata={"mlflow_run": run_id, "mlflow": tracking.uri})


ARMS = ("policy family", "goodput %", "to the incumbent")
"""Columns of the table of arms that are seen at once."""


def evidence_metadata(judged: stages.Judged) -> Metadata:
    """Verdict, gates, arms and ladder as tables, the lead as numbers that interfaces draw over nights, and figures."""
    from pipelines.report.explained import LADDER, ladder_rows
    from pipelines.report.explained_figures import explained_figures
    from pipelines.report.figures import figures_of, png_base64
    from pipelines.report.page import gates_table
    from pipelines.report.table import arms_markdown, arms_rows

    value = judged.evidence
    details = value["details"]
    shown: Metadata = {
        "verdict": value["verdict"],
        "promotion_cap": value["promotion_cap"],
        "reasons": " ".join(stages.reasons_of(value)),
        "repeated": judged.repeated,
        "test_openings": judged.openings,
    }
    if details.get("arms"):
        lead = details["difference_to_incumbent"]
        shown |= {f"gain_to_incumbent/{key}": float(lead[key]) for key in ("value", "low", "high")}
        shown["dagster/row_count"] = len(details["arms"])
        # The page of an asset leaves a table little room: the whole one opens by itself.
        shown["arms"] = _table(*arms_rows(value, ARMS))
        shown["arms in full"] = dg.MetadataValue.md(arms_markdown(value))
    gates = gates_table(value)
    if gates:
        shown["gates"] = _table(("gate", "status", "value / limit", "detail"), gates)
    explanation = details.get("explanation") or {}
    if explanation.get("ladder"):
        shown["ladder table"] = _table(LADDER, ladder_rows(explanation))
    for name, figure in (figures_of(None, value) | explained_figures(value)).items():
        shown[name.replace("_", " ")] = image(png_base64(figure))
    return shown


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> dg.TableMetadataValue:
    return dg.MetadataValue.table(
        [dg.TableRecord(dict(zip(head, row, strict=True))) for row in rows],
        schema=dg.TableSchema([dg.TableColumn(name) for name in head]),
    )
