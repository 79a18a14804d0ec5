"""What meets what in the twin, and whether the twin can be believed."""

from typing import Any

import dagster as dg

from pipelines.defs.night import (
    BASIS,
    OWNERS,
    UNJUDGED,
    Stored,
    basis_of,
    check_basis,
    current_inputs,
    night,
    stage,
)
from pipelines.defs.partitions import NIGHTS
from pipelines.defs.resources import Project, Teller
from pipelines.night import contest as meeting
from pipelines.night import fidelity as believing
from pipelines.night.policy import InForce, in_force
from pipelines.night.stored import plain, restored, restored_fitted
from policies.evidence.gates import Gate
from policies.twin.workload import Workload


@dg.asset(
    partitions_def=NIGHTS,
    group_name="learn",
    kinds={"json", "numpy"},
    owners=OWNERS,
    description="One row a night: the default policy and the knobs around it, what is frozen and why, the policy in "
    "force, the learned reserve, and the workloads of every part of the split.",
)
def contest(
    context: dg.AssetExecutionContext,
    project: Project,
    teller: dg.ResourceParam[Teller],
    night_inputs: dict[str, Any],
    estimators: dict[str, Any],
) -> dg.Output[Stored]:
    """The rules of the night's comparison, fixed before anything is searched."""
    if UNJUDGED in estimators:
        return dg.Output({UNJUDGED: estimators[UNJUDGED]})
    tonight, fitted = night(context, project), restored_fitted(estimators)
    inputs = current_inputs(tonight, night_inputs)
    incumbent = in_force(tonight.store, tonight.pool, tonight.day)
    with stage("workloads", context, teller):
        workloads = meeting.all_workloads(tonight.lake, tonight.pool, inputs, fitted)
        match = meeting.contest(tonight.lake, tonight.pool, inputs, fitted, workloads, incumbent.policy)
    return dg.Output(
        {
            "contest": plain(meeting.Contest, match),
            "incumbent": plain(InForce, incumbent),
            BASIS: basis_of(tonight, night_inputs, estimators),
        },
        metadata={
            "workloads": workloads_table(workloads),
            "incumbent": incumbent.policy.family,
            "incumbent/content_hash": incumbent.reference["content_hash"] or "as declared in the settings",
            "reserve_blocks": match.reserve_blocks,
            "knobs": [knob.name for knob in match.space.knobs],
            "frozen": dict(match.space.frozen),
        },
    )


@dg.asset(
    partitions_def=NIGHTS,
    group_name="judge",
    kinds={"numba", "json"},
    owners=OWNERS,
    description="One row a night: gates 1a and 1b. The log's own placements of the validation days are replayed, then "
    "the policy in force is, and both must give the log's own latencies and cache hits.",
)
def fidelity(
    context: dg.AssetExecutionContext,
    project: Project,
    teller: dg.ResourceParam[Teller],
    night_inputs: dict[str, Any],
    estimators: dict[str, Any],
    contest: dict[str, Any],
) -> dg.Output[Stored]:
    """1a judges times and caches of the twin for any router, 1b also what routers see and how they decide."""
    if UNJUDGED in contest:
        return dg.Output(contest)
    tonight, fitted = night(context, project), restored_fitted(estimators)
    check_basis(tonight, night_inputs, estimators, contest=contest)
    match, inputs = restored(meeting.Contest, contest["contest"]), current_inputs(tonight, night_inputs)
    with stage("fidelity", context, teller, believing.fidelity_replays(tonight.pool, inputs)) as at:
        gates = believing.fidelity(tonight.lake, tonight.store, tonight.pool, inputs, fitted, match.incumbent, at.step)
    told = {
        f"{gate.name}/{name}": value
        for gate in gates
        for name, value in (
            ("status", gate.status),
            ("detail", gate.detail),
            ("value", gate.value),
            ("interval", list(gate.interval or ())),
            ("numbers", dict(gate.numbers)),
        )
    }
    return dg.Output({"gates": [plain(Gate, gate) for gate in gates], BASIS: contest[BASIS]}, metadata=told)


def workloads_table(workloads: dict[str, Workload]) -> dg.TableMetadataValue:
    """Size of every workload."""
    return dg.MetadataValue.table([
        dg.TableRecord({
            "window": name, "requests": load.requests, "scored": int(load.scored.sum()),
            "prompt_tokens": int(load.prompt_tokens.sum(dtype="int64")),
            "output_tokens": int(load.output_tokens.sum(dtype="int64")),
        })
        for name, load in workloads.items()
    ])  # fmt: skip
