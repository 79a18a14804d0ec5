"""A replay looked at closely: where each request went, how full D was, and the regret of a sample of its decisions.

Only evidence asks for it, of a few policies: a search scores thousands of replays and records nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policies import objective
from policies.objective import Goal, Outcome
from policies.policy import Policy
from policies.search.cases import Case
from policies.twin.cluster import Cluster, Node
from policies.twin.engine.columns import POLL_D
from policies.twin.outcomes import Replay
from policies.twin.regret import regret_of
from policies.twin.replay import Recorded, Recording
from policies.twin.workload import Workload

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]

DECISIONS = 2_000
"""Decisions of a replay at most whose regret is measured."""
PAIRS = 400_000
"""Pairs at most that are written down for them, about 40 MB: a large pool has fewer decisions measured."""
POLLS = 600
POLL_NS = 1_000_000_000
"""Looks at the Ds at most, and the least time between two."""
NOTHING = Recording(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Detail:
    """One replay of a case. Arrays of shape (scored requests,) by arrival, those of `regret_*` (measured decisions,).

    `prefill_node`, `decode_node`: places in `prefill`, `decode`, -1 = none. `arrival_ns`: the workload's. `class_index`
    and `regret_class`: places in `classes`. `regret_ttft_s`: NaN where nothing was placed or could be.
    `above_high_water_frac`: share of the D-time from the first scored arrival to the last in which committed / usable
    blocks were above `high_water`, the policy's own.
    """

    case: Case
    classes: tuple[str, ...]
    prefill: tuple[Node, ...]
    decode: tuple[Node, ...]
    arrival_ns: Int64
    class_index: Int32
    prompt_tokens: Int32
    weight: Float64
    met: Bool
    prefill_node: Int32
    decode_node: Int32
    high_water: float
    above_high_water_frac: float
    regret_class: Int32
    regret_ttft_s: Float64
    regret_missed: Bool
    outcome: Outcome


def watched(cluster: Cluster, workload: Workload) -> Recording:
    """What has to be recorded: even polls over the scored arrivals, and decisions spread evenly within each class."""
    scored = np.flatnonzero(workload.scored)
    if len(scored) == 0:
        return NOTHING
    first, last = int(workload.arrival_ns[scored[0]]), int(workload.arrival_ns[scored[-1]])
    polls = max(1, min(POLLS, (last - first) // POLL_NS))
    times = first + (last - first) * np.arange(1, polls + 1, dtype=np.int64) // polls
    pairs = len(cluster.prefill) * len(cluster.decode)
    return Recording(times, _sampled(workload.class_index, scored, max(1, min(DECISIONS, PAIRS // pairs))))


def detail_of(
    case: Case,
    cluster: Cluster,
    workload: Workload,
    goal: Goal,
    policy: Policy,
    recording: Recording,
    replay: Replay,
    recorded: Recorded,
) -> Detail:
    """Keep of a recorded replay what explains it."""
    scored = workload.scored
    times = objective.latency(workload, replay)
    regret = regret_of(recorded, replay, policy, workload, recording.decision_requests)
    return Detail(
        case=case,
        classes=tuple(c.name for c in policy.classes),
        prefill=cluster.prefill,
        decode=cluster.decode,
        arrival_ns=workload.arrival_ns[scored],
        class_index=workload.class_index[scored],
        prompt_tokens=workload.prompt_tokens[scored],
        weight=objective.weights(workload, goal)[scored],
        met=objective.met(workload, times, goal)[scored],
        prefill_node=replay.prefill_node[scored],
        decode_node=replay.decode_node[scored],
        high_water=policy.high_water,
        above_high_water_frac=_above(cluster, policy.high_water, recorded.polls_decode),
        regret_class=workload.class_index[regret.requests],
        regret_ttft_s=regret.ttft_s,
        regret_missed=regret.missed,
        outcome=objective.outcome(cluster, workload, replay, goal),
    )


def _sampled(class_index: Int32, scored: npt.NDArray[np.intp], most: int) -> Int64:
    """Up to `most` of the scored requests, an even share a class, every k-th of its requests; ascending."""
    held = [scored[class_index[scored] == c] for c in np.unique(class_index[scored])]
    share = max(1, most // len(held))
    kept = [rows[np.arange(min(share, len(rows))) * len(rows) // min(share, len(rows))] for rows in held]
    return np.sort(np.concatenate(kept)).astype(np.int64)


def _above(cluster: Cluster, high_water: float, polls: Int64) -> float:
    if len(polls) == 0:
        return 0.0
    committed = polls[:, :, POLL_D.index("running_blocks")] + polls[:, :, POLL_D.index("inflight_blocks")]
    usable = np.array([node.blocks for node in cluster.decode], np.float64)
    return float((committed / usable > high_water).mean())
