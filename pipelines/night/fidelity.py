"""The twin's own fidelity: its replays of the validation windows held against the log of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

from features.lake import Lake
from models.splits import Window
from pipelines.night.contest import with_risk
from pipelines.night.fit import Fitted, residual_noise
from pipelines.night.inputs import Inputs
from pipelines.night.policy import in_force_within
from pipelines.night.workloads import window_traffic
from pipelines.settings import Pool
from policies.evidence.fidelity import LoggedReplay, forced_placement_gate
from policies.evidence.gates import POLICY_REPLAY, Gate, not_run
from policies.evidence.policy_replay import policy_replay_gate, replay_seeds
from policies.policy import Policy
from policies.store import PolicyStore
from policies.twin.outcomes import Replay
from policies.twin.replay import replay


def fidelity(
    lake: Lake,
    store: PolicyStore,
    pool: Pool,
    inputs: Inputs,
    fitted: Fitted,
    incumbent: Policy,
    tell: Callable[[], None] = lambda: None,
) -> tuple[Gate, ...]:
    """Gates 1a and 1b on the validation windows: whether the twin can be believed. `tell`: after each replay."""
    forced = forced_placement(lake, pool, inputs, fitted, incumbent, tell)
    return forced, policy_replay(lake, store, pool, inputs, fitted, tell)


def fidelity_replays(pool: Pool, inputs: Inputs) -> int:
    """Replays that `fidelity` makes at most."""
    return (1 + pool.gates.fidelity.replays) * len(inputs.split.validation)


def forced_placement(
    lake: Lake, pool: Pool, inputs: Inputs, fitted: Fitted, incumbent: Policy, tell: Callable[[], None] = lambda: None
) -> Gate:
    """Gate 1a. Requests whose pair the pool does not have are placed by the incumbent."""
    days = [
        _logged_replay(lake, pool, inputs, fitted, window, incumbent, tell, forced=True)
        for window in inputs.split.validation
    ]
    names, gates = [c.name for c in pool.classes], pool.gates
    return forced_placement_gate(days, names, gates.fidelity, alpha=gates.alpha, seed=pool.search.seed)


def policy_replay(
    lake: Lake, store: PolicyStore, pool: Pool, inputs: Inputs, fitted: Fitted, tell: Callable[[], None] = lambda: None
) -> Gate:
    """Gate 1b. Each window is replayed, several times, under the policy that was in force in it: the store's, else the
    declared incumbent, with tonight's estimators and risk tables as every arm has them.
    """
    windows, policies = inputs.split.validation, []
    for window in windows:
        held, reason = in_force_within(store, pool, window, _named(lake, pool, window))
        if held is None:
            return not_run(POLICY_REPLAY, reason)
        policies.append(with_risk(held.policy, fitted.estimators))
    days = [
        _logged_replay(lake, pool, inputs, fitted, window, policy, tell, forced=False)
        for window, policy in zip(windows, policies, strict=True)
    ]
    families, names, gates = [policy.family for policy in policies], [c.name for c in pool.classes], pool.gates
    return policy_replay_gate(days, families, names, gates.fidelity, alpha=gates.alpha, seed=pool.search.seed)


def _logged_replay(
    lake: Lake,
    pool: Pool,
    inputs: Inputs,
    fitted: Fitted,
    window: Window,
    policy: Policy,
    tell: Callable[[], None],
    *,
    forced: bool,
) -> LoggedReplay:
    """Forced placement leaves little to chance: the log's own pairs are replayed once."""
    traffic = window_traffic(lake, pool, inputs, window, fitted.estimators.length, forced=forced)
    noise = residual_noise(fitted.estimators)
    seeds = replay_seeds(pool.search.seed, 1 if forced else pool.gates.fidelity.replays)

    def replays() -> Iterator[Replay]:
        for seed in seeds:
            yield replay(inputs.cluster, fitted.estimators, policy, traffic.workload, seed=seed, noise=noise)
            tell()

    return LoggedReplay.of(traffic.workload, replays(), traffic.logged)


def _named(lake: Lake, pool: Pool, window: Window) -> set[str]:
    """Policy versions that a window's requests name."""
    found = (
        lake.scan("requests", [window.day], pool.name)
        .filter(pl.col("arrived_at_us").is_between(window.start_us, window.end_us, closed="left"))
        .select(pl.col("policy_version").drop_nulls().unique())
        .collect()
    )
    return set(found["policy_version"].to_list())
