"""Conversations of coding agents as closed loops: each turn waits for the answer before it, then thinks as logged.

The kv-cache-tester traces: one conversation a file on a clock of its own, block hashes that mean something inside their
file only. Here conversations start at random, each as a copy with prefixes of its own, and the window opens on those
that are under way: what comes before it is left out, so that as many run at its start as at its end. More load is more
conversations that run at once; how long they think stays as it was logged.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replay.mooncake import SHARED
from benchmarks.search.pools import BLOCK, Pool
from policies.evidence.sweep import SweepPlan
from policies.policy import Policy
from policies.search.cases import Case, CaseScore
from policies.search.detail import Detail
from policies.search.replay import ReplayEvaluator, ReplayFactory, load_workload
from policies.twin.transforms import take, thin
from policies.twin.workload import Int32, Int64, Workload

TRACES = SHARED / "data" / "real" / "kv-cache-tester" / "traces"
HASH_TOKENS = 64
TRAIN_FRAC = 0.55
"""Share of the conversations, in order of their ids, to learn from; the others are judged on."""

WARM_NS, WINDOW_NS = 600_000_000_000, 6_000_000_000_000
STARTS_PER_S = 0.05
"""Conversations that start in a second at load 1: about two requests a second."""
MOST = 2.0
"""Factor on a day's load up to which it can be replayed; a day holds the conversations of that load."""
LEAST_THINK_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation; arrays of one value a request, in order.

    `at_ns`: from its start. `think_ns`: from the end of the answer before; -1 for the first. `blocks`: ids of the
    prompt's full blocks of `BLOCK` tokens, dense, equal id = equal prefix. `guessed`: turns whose answer before has no
    logged end, so that what a typical answer takes stands for it.
    """

    at_ns: Int64
    think_ns: Int64
    prompt_tokens: Int32
    output_tokens: Int32
    blocks: tuple[Int32, ...]
    guessed: int = 0


def read_conversations(folder: Path = TRACES, *, most: int | None = None) -> list[Conversation]:
    """Conversations in order of their ids. Where an answer's end is unknown it took the median of those known."""
    paths = sorted(folder.glob("*.json.gz"))[:most]
    documents = [json.loads(gzip.decompress(path.read_bytes())) for path in paths]
    took = [r["api_time"] for d in documents for r in d["requests"] if r.get("api_time") is not None]
    typical_s = float(np.median(took)) if took else 0.0
    return [conversation(d["requests"], typical_s) for d in documents]


def conversation(requests: Sequence[Mapping[str, Any]], typical_s: float) -> Conversation:
    """One file's requests."""
    at_s = np.array([r["t"] for r in requests], np.float64)
    took_s = [r.get("api_time") for r in requests]
    ended_s = at_s + [typical_s if s is None else s for s in took_s]
    think_ns = np.maximum(np.floor((at_s[1:] - ended_s[:-1]) * 1e9 + 0.5).astype(np.int64), LEAST_THINK_NS)
    return Conversation(
        at_ns=np.floor((at_s - at_s[0]) * 1e9 + 0.5).astype(np.int64),
        think_ns=np.concatenate([[-1], think_ns]).astype(np.int64),
        prompt_tokens=np.array([r["in"] for r in requests], np.int32),
        output_tokens=np.array([r["out"] for r in requests], np.int32),
        blocks=_blocks(requests),
        guessed=sum(s is None for s in took_s[:-1]),
    )


def _blocks(requests: Sequence[Mapping[str, Any]]) -> tuple[Int32, ...]:
    """Whole groups of hashes as blocks; a block is known by the one before it and its own hashes."""
    each = BLOCK // HASH_TOKENS
    known: dict[tuple[int, ...], int] = {}
    found = []
    for request in requests:
        hashes, before, ids = request["hash_ids"], -1, []
        for at in range(min(request["in"] // BLOCK, len(hashes) // each)):
            before = known.setdefault((before, *hashes[at * each : (at + 1) * each]), len(known))
            ids.append(before)
        found.append(np.array(ids, np.int32))
    return tuple(found)


def started(conversations: Sequence[Conversation], starts_per_s: float, seed: int, pool: Pool) -> Workload:
    """Conversations that start at random, all equally often, seen through the window; its first part warms up."""
    drawn = np.random.default_rng(seed)
    longest_ns = max(int(c.at_ns[-1]) for c in conversations)
    span_ns = longest_ns + WINDOW_NS
    count = int(drawn.poisson(starts_per_s * span_ns / 1e9))
    starts_ns = drawn.integers(-longest_ns, WINDOW_NS, count)
    rounds = [drawn.permutation(len(conversations)) for _ in range(-(-count // len(conversations)))]
    which = np.concatenate(rounds)[:count]
    return _window(conversations, which, starts_ns, pool)


def _window(conversations: Sequence[Conversation], which: Int64, starts_ns: Int64, pool: Pool) -> Workload:
    distinct = [1 + max((int(b.max()) for b in c.blocks if len(b)), default=-1) for c in conversations]
    arrival, think, parent, prompt, output, blocks = [], [], [], [], [], []
    rows = first_block = 0
    for k, start_ns in zip(which.tolist(), starts_ns.tolist(), strict=True):
        own = conversations[k]
        at_ns = own.at_ns + start_ns
        inside = np.flatnonzero((at_ns >= 0) & (at_ns < WINDOW_NS))
        if len(inside) == 0:
            continue
        # The turn before may lie before the window: then this one comes as logged.
        follows = np.arange(len(inside)) > 0
        arrival.append(at_ns[inside])
        think.append(np.where(follows, own.think_ns[inside], -1))
        parent.append(np.where(follows, rows + np.arange(len(inside)) - 1, -1))
        prompt.append(own.prompt_tokens[inside])
        output.append(own.output_tokens[inside])
        blocks += [own.blocks[i] + np.int32(first_block) for i in inside]
        rows += len(inside)
        first_block += distinct[k]
    arrival_ns, prompt_tokens = np.concatenate(arrival), np.concatenate(prompt)
    free = np.full(rows, -1, np.int32)
    whole = Workload(
        arrival_ns=arrival_ns,
        prompt_tokens=prompt_tokens,
        output_tokens=np.concatenate(output),
        class_index=pool.class_of(prompt_tokens),
        block_offset=np.concatenate([[0], np.cumsum([len(b) for b in blocks])]).astype(np.int64),
        block_ids=np.concatenate(blocks),
        forced_prefill=free,
        forced_decode=free,
        scored=arrival_ns >= WARM_NS,
        parent=np.concatenate(parent).astype(np.int32),
        think_ns=np.concatenate(think),
    )
    return take(whole, np.argsort(arrival_ns, kind="stable"))


@dataclass(frozen=True, slots=True)
class Agents:
    """Traffic of a pool: load 1 = `STARTS_PER_S` conversations start in a second."""

    conversations: Sequence[Conversation]

    @property
    def plan(self) -> SweepPlan:
        """Loads at which a pool is calibrated."""
        return SweepPlan(start=1.0, step=0.1, low=0.1, high=MOST, halvings=2)

    def day(self, pool: Pool, load: float, seed: int, *, train: bool) -> Workload:
        """Conversations of one half, `MOST` times as many as the load asks for: a case takes its share of them."""
        cut = round(TRAIN_FRAC * len(self.conversations))
        held = self.conversations[:cut] if train else self.conversations[cut:]
        return started(held, MOST * load * STARTS_PER_S, seed, pool)

    def factory(self, pool: Pool, folder: Path, seed: int) -> ReplayFactory:
        """Whose cases are more or fewer conversations, not faster ones."""
        return SessionFactory(folder, pool.cluster, pool.laws, pool.goal, seed)


class SessionFactory(ReplayFactory):
    """Replays in which a case's load is the share of a day's conversations."""

    __slots__ = ()

    def build(self) -> SessionEvaluator:  # type: ignore[override]
        """Load every workload of the folder."""
        names = sorted(path.name for path in self.folder.iterdir())
        return SessionEvaluator(self, {name: load_workload(self.folder, name) for name in names})


class SessionEvaluator:
    """Replays and scores as `ReplayEvaluator` does, on days that it thins out by whole conversations."""

    HELD = 6
    """Days at their loads whose traffic is kept."""

    def __init__(self, setup: ReplayFactory, workloads: Mapping[str, Workload]) -> None:
        self._setup = setup
        self._workloads = workloads
        self._held: dict[tuple[str, float], ReplayEvaluator] = {}

    def __call__(self, policy: Policy, case: Case) -> CaseScore:
        """Replay at the case's load."""
        return replace(self._at(case)(policy, replace(case, load=1.0)), case=case)

    def detail(self, policy: Policy, case: Case) -> Detail:
        """The same replay, recorded."""
        return replace(self._at(case).detail(policy, replace(case, load=1.0)), case=case)

    def _at(self, case: Case) -> ReplayEvaluator:
        key = (case.day, case.load)
        if key not in self._held:
            while len(self._held) >= self.HELD:
                del self._held[next(iter(self._held))]
            # One seed: a conversation that runs at one load runs at every higher one.
            thinned = thin(self._workloads[case.day], min(1.0, case.load / MOST), seed=1)
            self._held[key] = ReplayEvaluator(self._setup, {case.day: thinned})
        return self._held[key]
