"""What meets what on a night: the pool's default policy and what may move around it, the incumbent, and the traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from features.lake import Lake
from models.portable.estimators import Estimators
from models.splits import SplitMode, Window
from pipelines.night.fit import Fitted
from pipelines.night.inputs import Inputs
from pipelines.night.reserve import safety_reserve
from pipelines.night.workloads import window_traffic
from pipelines.settings import Pool
from policies.policy import DECODE_MOMENTS, Policy, Weights, default_policy
from policies.risk import risk_table
from policies.search.identify import frozen_knobs
from policies.search.space import Freedom, Space, space_around
from policies.twin.cluster import Cluster
from policies.twin.workload import Workload

SEARCHED_FAMILY = "routecal"
PARTS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Contest:
    """What meets what. `space.default` is the default policy; `incumbent` what is in force for the night's day.

    `days`: part of the split -> names of its workloads. `frozen` knobs and the reserve stand in the evidence.
    `freedom`: what the pool's routers can be told beside weights.
    """

    space: Space
    incumbent: Policy
    reserve_blocks: float
    days: Mapping[str, tuple[str, ...]]
    freedom: Freedom


def window_names(inputs: Inputs) -> Mapping[str, tuple[tuple[str, Window], ...]]:
    """Part of the split -> (name, window). A name is its day, with the part behind it where days are cut inside."""
    inside = inputs.split.mode is SplitMode.INSIDE_DAYS
    return {
        part: tuple((f"{w.day}.{part}" if inside else w.day.isoformat(), w) for w in getattr(inputs.split, part))
        for part in PARTS
    }


def all_workloads(lake: Lake, pool: Pool, inputs: Inputs, fitted: Fitted) -> dict[str, Workload]:
    """Every window of the split by name, as a policy will meet it."""
    return {
        name: window_traffic(lake, pool, inputs, window, fitted.estimators.length).workload
        for held in window_names(inputs).values()
        for name, window in held
    }


def contest(
    lake: Lake, pool: Pool, inputs: Inputs, fitted: Fitted, workloads: Mapping[str, Workload], incumbent: Policy
) -> Contest:
    """The default policy of the pool, what the search may move around it, and the incumbent.

    A class without a reserve in the settings gets the learned one. Without block hashes the prefix weight is 0: no
    claim is made about prefixes.
    """
    reserve = safety_reserve(lake, pool, inputs, fitted.estimators.length)
    family = SEARCHED_FAMILY if SEARCHED_FAMILY in pool.families else pool.families[0]
    classes = [replace(c, reserve_blocks=c.reserve_blocks or reserve) for c in pool.classes]
    default = default_policy(classes, risk=fitted.estimators.risk, family=family)
    default = replace(default, decode_moment=pool.moment_of(family))
    freedom = _freedom(pool, inputs.cluster)
    frozen = frozen_knobs(inputs.cluster, fitted.estimators, pool.goal, list(workloads.values()))
    if not inputs.capability.reaches("hashes"):
        default = _without_prefix(default)
        frozen["PrefixBenefit"] = "the logs do not carry prompt blocks"
    if family != SEARCHED_FAMILY:
        space = space_around(default, frozen, fitted.estimators.length.levels, freedom)
        reason = f"the router cannot run the family {SEARCHED_FAMILY}, which alone has weights"
        space = replace(space, knobs=(), frozen=(*space.frozen, *((k.name, reason) for k in space.knobs)))
    else:
        space = space_around(default, frozen, fitted.estimators.length.levels, freedom)
    names = {part: tuple(name for name, _ in held) for part, held in window_names(inputs).items()}
    return Contest(space, with_risk(incumbent, fitted.estimators), reserve, names, freedom)


def _freedom(pool: Pool, cluster: Cluster) -> Freedom:
    routers = cluster.routers
    return Freedom(
        moments=() if pool.decode_chosen else DECODE_MOMENTS,
        prefill=len(cluster.prefill),
        decode=len(cluster.decode),
        sampled=routers.period_ns > 0,
        lease_s=routers.lease_ns / 1e9,
    )


def _without_prefix(policy: Policy) -> Policy:
    def weights(old: Weights) -> Weights:
        return (*old[:6], 0.0, *old[7:])

    return replace(policy, classes=tuple(replace(c, weights=weights(c.weights)) for c in policy.classes))


def with_risk(policy: Policy, estimators: Estimators) -> Policy:
    """The policy with tonight's risk tables: every arm is judged with the same estimators."""
    risk = estimators.risk
    return replace(policy, risk_ttft=risk_table(risk.ttft), risk_tpot=risk_table(risk.tpot))
