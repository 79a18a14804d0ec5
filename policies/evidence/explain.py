"""Why the winner wins, and where it does not: what the evidence of a night says beside the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from policies.evidence.arms import day_cases, pooled_goodput
from policies.evidence.bootstrap import Blocks, Difference, difference, joined_blocks
from policies.evidence.changes import Change, Effect, ablations, neighbours
from policies.evidence.flows import ClassRegret, Flow, FlowSums
from policies.evidence.ladder import Rung, rungs
from policies.evidence.slices import Slices, SliceSums
from policies.evidence.switchback import SwitchbackPlan, switchback
from policies.families.registry import PAIRS
from policies.policy import Policy
from policies.search.cases import Case, CaseScore
from policies.search.detail import Detail
from policies.search.families import Arm
from policies.search.workers import WorkerPool

LOADS = (0.9, 1.0, 1.1)


@dataclass(frozen=True, slots=True)
class LoadPoints:
    """Hard goodput of an arm on the validation days at (load, goodput), around load 1."""

    arm: str
    goodput_frac: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """All on the validation days; nothing of it decides. Arms are winner, incumbent and default, each named once.

    `ladder`: masks of the joint score (the winner's, else the last arm's of that family), none without one.
    `ablation`: one thing of the winner off or back at its default. `sensitivity`: each of its weights halved and
    doubled. `slices`, `switchback`: winner against incumbent, None where they are one policy. `replays`: made for this.
    """

    ladder: tuple[Rung, ...]
    ablation: tuple[Effect, ...]
    sensitivity: tuple[Effect, ...]
    loads: tuple[LoadPoints, ...]
    regret: tuple[ClassRegret, ...]
    slices: Slices | None
    flows: tuple[Flow, ...]
    switchback: SwitchbackPlan | None
    replays: int


@dataclass(frozen=True, slots=True)
class Subject:
    """What is explained. `arms`: name -> policy of winner, incumbent and default; `known`: name -> its scores at load 1
    on `days`, in their order. `joint`: the policy of scored pairs whose terms make the ladder. `lead`: winner less
    incumbent over blocks of `block_s`.
    """

    arms: Mapping[str, Policy]
    joint: Policy | None
    winner: str
    incumbent: str
    default: str
    days: tuple[str, ...]
    known: Mapping[str, Sequence[CaseScore]]
    lead: Difference
    block_s: float
    alpha: float
    margin: float
    seed: int
    resamples: int

    @property
    def same(self) -> bool:
        """The winner is the incumbent's own policy."""
        return self.arms[self.winner] == self.arms[self.incumbent]

    @property
    def roles(self) -> tuple[str, ...]:
        """Winner, incumbent and default, each arm once."""
        return tuple(dict.fromkeys((self.winner, self.incumbent, self.default)))


def explain(pool: WorkerPool, subject: Subject) -> Explanation:
    """Replay what the explanation needs. A pure function of its arguments and the pool's evaluator."""
    winner = subject.arms[subject.winner]
    back, moved = ablations(winner, subject.arms[subject.default]), neighbours(winner)
    ladder = tuple(_ladder(pool, subject))
    effects = list(_effects(pool, subject, [*back, *moved]))
    loads = tuple(_around_load_one(pool, subject))
    flows = {name: FlowSums(name) for name in subject.roles}
    slices = SliceSums()
    for seen in _by_day(pool, subject):
        for name in subject.roles:
            flows[name].add(seen[name], seen[subject.incumbent])
        slices.add(seen[subject.winner], seen[subject.incumbent])
    return Explanation(
        ladder=ladder,
        ablation=tuple(effects[: len(back)]),
        sensitivity=tuple(effects[len(back) :]),
        loads=loads,
        regret=tuple(row for sums in flows.values() for row in sums.regret()),
        slices=None if subject.same else slices.extremes(),
        flows=tuple(sums.flow() for sums in flows.values()),
        switchback=None if subject.same else _live_test(subject),
        replays=explanation_replays(subject.arms, subject.joint, subject.winner, subject.default, len(subject.days)),
    )


def explanation_replays(arms: Mapping[str, Policy], joint: Policy | None, winner: str, default: str, days: int) -> int:
    """Replays that `explain` makes on so many days. `arms`: of winner, incumbent and default, each name once."""
    back, moved = ablations(arms[winner], arms[default]), neighbours(arms[winner])
    ladder = 0 if joint is None else len(rungs(joint))
    other_loads = len([load for load in LOADS if load != 1.0])
    return (ladder + len(back) + len(moved) + len(arms) * (other_loads + 1)) * days


def joint_of(arms: Sequence[Arm], winner: str) -> Policy | None:
    """The policy of scored pairs whose terms make the ladder: the winner's, else the last arm's of that family."""
    first = (next(a for a in arms if a.name == winner), *reversed(arms))
    return next((a.policy for a in first if a.policy.family == PAIRS), None)


def _ladder(pool: WorkerPool, subject: Subject) -> Iterator[Rung]:
    steps = {} if subject.joint is None else rungs(subject.joint)
    scores = pool.by_policy([policy for _, policy in steps.values()], day_cases(subject.days))
    below: Blocks | None = None
    for (name, (terms, _)), found in zip(steps.items(), scores, strict=True):
        blocks = joined_blocks(found, subject.block_s)
        gain = None if below is None else _apart(subject, blocks, below)
        yield Rung(name, terms, blocks.goodput_frac, gain)
        below = blocks


def _apart(subject: Subject, blocks: Blocks, reference: Blocks) -> Difference:
    return difference(blocks, reference, alpha=subject.alpha, seed=subject.seed, resamples=subject.resamples)


def _effects(pool: WorkerPool, subject: Subject, changes: Sequence[Change]) -> Iterator[Effect]:
    reference = joined_blocks(subject.known[subject.winner], subject.block_s)
    scores = pool.by_policy([change.policy for change in changes], day_cases(subject.days))
    for change, found in zip(changes, scores, strict=True):
        blocks = joined_blocks(found, subject.block_s)
        apart = _apart(subject, blocks, reference)
        yield Effect(change.name, change.kind, change.before, change.after, blocks.goodput_frac, apart)


def _around_load_one(pool: WorkerPool, subject: Subject) -> Iterator[LoadPoints]:
    others = [load for load in LOADS if load != 1.0]
    cases = [Case(day, load) for load in others for day in subject.days]
    scores = pool.by_policy([subject.arms[name] for name in subject.roles], cases)
    for name, found in zip(subject.roles, scores, strict=True):
        at = {load: pooled_goodput([s for s in found if s.case.load == load]) for load in others}
        at[1.0] = pooled_goodput(subject.known[name])
        yield LoadPoints(name, tuple((load, at[load]) for load in LOADS))


def _by_day(pool: WorkerPool, subject: Subject) -> Iterator[Mapping[str, Detail]]:
    """The arms' replays of one day after the other: one day's requests are held at a time."""
    tasks = [(subject.arms[name], Case(day)) for day in subject.days for name in subject.roles]
    found = pool.details(tasks)
    for _ in subject.days:
        yield {name: next(found) for name in subject.roles}


def _live_test(subject: Subject) -> SwitchbackPlan:
    pairs = zip(subject.known[subject.winner], subject.known[subject.incumbent], strict=True)
    return switchback(
        subject.lead,
        [(joined_blocks([mine], subject.block_s), joined_blocks([theirs], subject.block_s)) for mine, theirs in pairs],
        evidence_block_s=subject.block_s,
        relaxations_s=[score.relaxation_s for score in subject.known[subject.incumbent]],
        alpha=subject.alpha,
        margin=subject.margin,
        seed=subject.seed,
    )
