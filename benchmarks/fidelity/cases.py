"""The cases, each with what it may be off by."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fidelity.fitting import START_US, Fitted, fit_first_half
from benchmarks.fidelity.logs import Logged, read
from benchmarks.fidelity.scores import Case, equal_share, mean, metrics, relative, spread
from benchmarks.fidelity.teacher import agreement
from benchmarks.fidelity.twin import cluster, outcome_of, run_twin, true_laws
from benchmarks.fidelity.wheel import Pool, Run

FITTED_FRAC = {1: 0.01, 4: 0.01, 6: 0.02}
KV_FRAC, KV_RUNS, KV_CHOSEN, KV_ASKED = 0.03, 5, 0.97, 2_000
KV_FAMILY = "dynamo_cost"
OUT_OF_KV_FRAC, OUT_OF_KV_E2E_P99 = 0.10, 0.15
NS_PER_US = 1_000


@dataclass(frozen=True, slots=True)
class Found:
    """`told`: case -> what else there is to say of it."""

    cases: Mapping[str, Case] = field(default_factory=dict)
    exact: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    told: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def exact(pool: Pool) -> Found:
    """Round robin under the pool's own laws: every stage time, every reused token."""
    found = {}
    for speedup in (1, 4):
        run = Run(f"rr_{speedup}", speedup)
        logged = _read(pool, run)
        result = run_twin(cluster(run, pool.blocks), true_laws(pool.blocks), logged, forced=False)
        found[run.name] = equal_share(logged, result)
    return Found(exact=found)


def fitted(pool: Pool) -> Found:
    """Round robin under laws fitted on the first half of the logs alone; the second half is scored."""
    cases, told = {}, {}
    for speedup, allowed in FITTED_FRAC.items():
        run = Run(f"rr_{speedup}", speedup)
        logged = _read(pool, run)
        nodes = cluster(run, pool.blocks)
        with tempfile.TemporaryDirectory() as lake:
            laws = fit_first_half(pool.logs(run), pool.trace, nodes, Path(lake))
        result = run_twin(nodes, laws.laws, logged, forced=False)
        from_ns = (laws.until_us - START_US) * NS_PER_US
        error = relative(metrics(outcome_of(logged, result), from_ns), metrics(outcome_of(logged), from_ns))
        cases[f"fitted_{run.name}"] = Case(error, dict.fromkeys(error, allowed))
        told[f"fitted_{run.name}"] = {"laws": _law_text(laws, nodes.decode[0].blocks * nodes.block_tokens)}
    return Found(cases, told=told)


def kv_router(pool: Pool) -> Found:
    """Dynamo's KV router with random ties: its choices, and the distribution of free runs over seeds."""
    cases: dict[str, Case] = {}
    told: dict[str, dict[str, Any]] = {}
    for speedup in (1, 4):
        runs = [Run(f"kv_{speedup}_{k}", speedup, router="kv_router") for k in range(1, KV_RUNS + 1)]
        logs = [_read(pool, run) for run in runs]
        nodes, laws = cluster(runs[0], pool.blocks), true_laws(pool.blocks)
        on_p, on_d = agreement(nodes, laws, logs[0], KV_FAMILY, KV_ASKED)
        missed = {"prefill": on_p.share - 1.0, "decode": on_d.share - 1.0}
        cases[f"kv_router_{speedup}_forced"] = Case(missed, dict.fromkeys(missed, 1.0 - KV_CHOSEN))
        theirs = [metrics(outcome_of(log), 0) for log in logs]
        ours = [
            metrics(outcome_of(logs[0], run_twin(nodes, laws, logs[0], forced=False, family=KV_FAMILY, seed=k)), 0)
            for k in range(KV_RUNS)
        ]
        own = spread(theirs)
        error = relative(mean(ours), mean(theirs))
        cases[f"kv_router_{speedup}"] = Case(error, {name: max(KV_FRAC, own[name]) for name in error})
        told[f"kv_router_{speedup}"] = {"pool's own spread": own}
        told[f"kv_router_{speedup}_forced"] = {"decisions": [on_p.decisions, on_d.decisions]}
    return Found(cases, told=told)


def out_of_kv(pool: Pool) -> Found:
    """Two Ds for four Ps, at four times the arrivals: D has no blocks left for most of the time."""
    run = Run("rrS_4", 4, decode=2)
    logged = _read(pool, run)
    result = run_twin(cluster(run, pool.blocks), true_laws(pool.blocks), logged, forced=False)
    error = relative(metrics(outcome_of(logged, result), 0), metrics(outcome_of(logged), 0))
    counted = {name: value for name, value in error.items() if not name.endswith("p99") or name == "e2e_p99"}
    allowed = {name: OUT_OF_KV_E2E_P99 if name == "e2e_p99" else OUT_OF_KV_FRAC for name in counted}
    told = {"not bounded": {name: error[name] for name in error if name not in counted}}
    return Found({"out_of_kv": Case(counted, allowed)}, told={"out_of_kv": told})


def _read(pool: Pool, run: Run) -> Logged:
    turns = run.prefill if run.router == "round_robin" else 0
    return read(pool.logs(run) / "requests.jsonl", pool.trace, in_turn=turns)


def _law_text(found: Fitted, capacity: int) -> str:
    """The fitted laws in the pool's own terms."""
    p, d = found.prefill.laws.by_type["*"].coef, found.decode.laws.by_type["*"].coef
    scale = np.array([1.0, capacity, capacity * capacity])
    step = [f"{value * 1e3:.7g}" for value in p[:3]]
    own = [f"{value:.6g}" for value in np.array([d[0], d[2], d[3]]) * 1e3 * scale]
    t = found.transfer.law
    return (
        f"prefill {step} ms of 1, T, T²; decode {own} ms of 1, p, p²; "
        f"transfer {t.alpha_s['local'] * 1e3:.4g} ms + bytes / ({t.efficiency['local']:.6g} · link)"
    )
