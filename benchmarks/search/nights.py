"""Nights whose outcome is known: 200 in which all policies are equal, and one whose twin has a link twice too fast."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.search.pools import POOLS
from benchmarks.search.traffic import Trace, train_days
from models.portable.transfer import TransferLaw
from policies.evidence.evidence import Plan, gather
from policies.evidence.fidelity import Logged, LoggedReplay, forced_placement_gate
from policies.evidence.gates import Gate
from policies.evidence.policy_replay import policy_replay_gate, replay_seeds
from policies.objective import Outcome, Quantiles, latency
from policies.policy import ClassPolicy, Policy, default_policy
from policies.search.candidates import DEFAULT, INCUMBENT, SEARCHED, find_candidates, train_cases
from policies.search.cases import PIECES, Case, CaseScore
from policies.search.families import variants
from policies.search.search import Budget
from policies.search.space import space_around
from policies.search.workers import WorkerPool
from policies.twin.replay import replay
from policies.twin.workload import Workload

ALPHA = 0.01
BLOCKS = 120  # of 5 s a day
POISON_LOAD = 1.25


@dataclass(frozen=True, slots=True)
class Equals:
    """A world in which every policy has the same goodput, the day's luck, which all share, and luck of its own."""

    shared: float = 0.02
    own: float = 0.05
    goodput_frac: float = 0.8

    def build(self) -> Equals:
        """It is its own evaluator."""
        return self

    def __call__(self, policy: Policy, case: Case) -> CaseScore:
        """A pure function of both, as a replay is."""
        day = np.random.default_rng(_number(case.day)).normal(0.0, self.shared, BLOCKS)
        mine = np.random.default_rng(_number(f"{policy}{case.day}")).normal(0.0, self.own, BLOCKS)
        frac = np.clip(self.goodput_frac + day + mine, 0.0, 1.0)
        mean, none = float(frac.mean()), Quantiles(None, None, None)
        outcome = Outcome(
            requests=6000, completed=6000, rejected=0, cancelled=0, failed=0, preemptions=0, goodput_frac=mean,
            goodput_frac_by_class={c.name: mean for c in policy.classes}, ttft_ms=none, tpot_ms=none, e2e_ms=none,
            reused_tokens=0, transferred_bytes=0, output_tokens_per_s=0.0, simulated_s=600.0, prefill_share=(1.0,),
            decode_share=(1.0,),
        )  # fmt: skip
        slices = tuple(float(part.mean()) for part in np.array_split(frac, PIECES))
        return CaseScore(case, mean, mean, slices, tuple(frac * 50), (50.0,) * BLOCKS, 2.0, outcome)


def better_of_equals(nights: int, budget: Budget) -> int:
    """Nights that call what was searched better, though nothing is; each has a search and days of its own."""
    policy = default_policy((ClassPolicy("all"),))
    space = space_around(policy, {}, (0.5, 0.9))
    found = 0
    with WorkerPool(Equals(), 1) as pool:
        for night in range(nights):
            days = tuple(f"night {night} day {d}" for d in range(6))
            arms = find_candidates(
                pool, space, train_cases(days[:2]), incumbent=replace(policy, family="lmetric"),
                families=("lowest_utilisation",), racks=1, seed=night, budget=budget,
            ).arms  # fmt: skip
            plan = Plan(days[:2], days[2:5], days[5:], seed=night, history_days=6, alpha=ALPHA, margin=0.0, sweep=None)
            evidence = gather(pool, arms, winner=SEARCHED, incumbent=INCUMBENT, default=DEFAULT, plan=plan)
            found += evidence.verdict == "better"
    return found


def poisoned(trace: Workload) -> dict[str, Gate]:
    """Forced placement of a pool's own log by a true twin and by one whose ports are twice as fast; behind it
    (`…_policy`) free replays of its router, none of them with the seed of the log.
    """
    pool = POOLS["a"]
    load = next(iter(train_days(pool, Trace(trace), POISON_LOAD).values()))
    guess = np.full(load.requests, 350, np.int32)
    incumbent = variants("lmetric", pool.default, 1)["lmetric"]

    def replayed(workload: Workload, transfer: TransferLaw, seed: int = 1):  # type: ignore[no-untyped-def]  # noqa: ANN202
        laws = replace(pool.laws, transfer=transfer)
        return replay(pool.cluster, laws, incumbent, workload, seed=seed, estimated_output=guess, expected_output=guess)

    true = pool.laws.transfer
    happened = replayed(load, true)
    times = latency(load, happened)
    logged = Logged(times.ttft_s, times.tpot_s, happened.cached_tokens.astype(np.float64))
    forced = replace(load, forced_prefill=happened.prefill_node, forced_decode=happened.decode_node)
    fast = replace(true, efficiency={path: 2 * share for path, share in true.efficiency.items()})
    names = [c.name for c in pool.goal.classes]
    found = {}
    for name, law in (("true", true), ("poisoned", fast)):
        found[name] = forced_placement_gate([LoggedReplay.of(forced, [replayed(forced, law)], logged)], names)
        free = LoggedReplay.of(load, (replayed(load, law, seed) for seed in replay_seeds(2, 5)), logged)
        found[f"{name}_policy"] = policy_replay_gate([free], [incumbent.family], names)
    return found


def _number(text: str) -> int:
    """The same in every process, unlike `hash`."""
    value = 0
    for byte in text.encode():
        value = (value * 131 + byte) % (2**61 - 1)
    return value
