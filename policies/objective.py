"""What a replay is worth: latencies, met targets, hard and softened goodput, and the outcome that people read.

TTFT = first token - arrival. TPOT = (finished - first token) / (output - 1), 0 for an answer of one token. A request
that did not complete has neither and meets nothing. Only scored requests count (`Workload.scored`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from features.errors import TwinError
from policies.twin.cluster import Cluster
from policies.twin.itl import quantile_s
from policies.twin.outcomes import NOT_YET, Replay, Status
from policies.twin.workload import Workload

Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

BLOCK_S = 5.0
"""Length of the blocks of `block_sums`; the bootstrap joins them into longer ones."""


@dataclass(frozen=True, slots=True)
class ClassTarget:
    """What one SLO class is promised (None = nothing) and what its requests are worth. Place = the workload's class.

    `deadline_s`: from arrival to the last token. `tokens_per_s`: output tokens over that time at least; then a request
    is worth its share of the class's output tokens, not one of its requests.
    """

    name: str
    ttft_s: float | None = None
    tpot_s: float | None = None
    weight: float = 1.0
    deadline_s: float | None = None
    tokens_per_s: float | None = None

    @property
    def promised(self) -> bool:
        """Anything at all."""
        return any(t is not None for t in (self.ttft_s, self.tpot_s, self.deadline_s, self.tokens_per_s))


@dataclass(frozen=True, slots=True)
class Goal:
    """What the search climbs and the evidence decides on.

    `width`: of the sigmoid, in log units; at 0.15 a request that is 15 % late counts 0.28, one on its target 0.5.
    """

    classes: tuple[ClassTarget, ...]
    width: float = 0.15

    def __post_init__(self) -> None:
        if not self.classes or any(c.weight <= 0 for c in self.classes):
            raise TwinError("a goal needs classes, all of a weight above 0", value=[c.weight for c in self.classes])
        if self.width <= 0:
            raise TwinError("`width > 0` must hold", value=self.width)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds, one value a request in workload order; NaN = did not complete."""

    ttft_s: Float64
    tpot_s: Float64
    e2e_s: Float64


def latency(workload: Workload, replay: Replay) -> Latency:
    """Latencies of every request, the warm-up included."""
    done = (replay.status == int(Status.COMPLETED)) & (replay.finished_ns != NOT_YET)
    arrival, first, finished = replay.arrived_ns, replay.first_token_ns, replay.finished_ns
    more = np.maximum(workload.output_tokens.astype(np.int64) - 1, 0)
    tpot_s = np.where(more > 0, (finished - first) / 1e9 / np.maximum(more, 1), 0.0)
    return Latency(
        ttft_s=np.where(done, (first - arrival) / 1e9, np.nan),
        tpot_s=np.where(done, tpot_s, np.nan),
        e2e_s=np.where(done, (finished - arrival) / 1e9, np.nan),
    )


def met(workload: Workload, times: Latency, goal: Goal) -> Bool:
    """True where a request completed within all of its targets; shape (requests,)."""
    late = np.isnan(times.ttft_s)
    for target_s, time_s in _targets(workload, times, goal):
        late |= time_s > target_s
    return ~late


def softened(workload: Workload, times: Latency, goal: Goal) -> Float64:
    """Sigmoid(ln(target / time) / width), the product over targets, 0 where not completed; shape (requests,), 0..1."""
    soft = np.where(np.isnan(times.ttft_s), 0.0, 1.0)
    for target_s, time_s in _targets(workload, times, goal):
        soft *= np.where(np.isnan(time_s), 0.0, _sigmoid(target_s, time_s, goal.width))
    return soft


def weights(workload: Workload, goal: Goal) -> Float64:
    """Business weight of every request, 0 for the warm-up; shape (requests,)."""
    by_class = np.array([c.weight for c in goal.classes])
    weight = np.where(workload.scored, by_class[workload.class_index], 0.0)
    for index, each in enumerate(goal.classes):
        mine = workload.scored & (workload.class_index == index)
        if each.tokens_per_s is not None and mine.any():
            tokens = np.maximum(workload.output_tokens[mine], 1)
            weight[mine] *= tokens / tokens.mean()
    return weight


def goodput_frac(value: Float64 | Bool, weight: Float64) -> float:
    """Weighted mean of met (or softened) requests, 0 where nothing counts."""
    total = float(weight.sum())
    return float((value * weight).sum()) / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class BlockSums:
    """Sums over blocks of arrival time, from the first scored arrival on; shape (blocks,) each.

    `value` = sum of weight × met (or softened), `weight` = sum of weights. Blocks of one day and load compare across
    policies.
    """

    value: Float64
    weight: Float64


def block_sums(workload: Workload, value: Float64 | Bool, weight: Float64, *, block_s: float = BLOCK_S) -> BlockSums:
    """Per-block sums, ordered in time; a block without a scored request has weight 0.

    By the workload's arrival times: a request stays in its block under every policy, whenever its turn comes.
    """
    scored = np.flatnonzero(workload.scored)
    if len(scored) == 0:
        return BlockSums(np.zeros(0), np.zeros(0))
    at = workload.arrival_ns[scored]
    index = ((at - at[0]) // round(block_s * 1e9)).astype(np.int64)
    blocks = int(index[-1]) + 1
    return BlockSums(
        value=np.bincount(index, weights=value[scored] * weight[scored], minlength=blocks).astype(np.float64),
        weight=np.bincount(index, weights=weight[scored], minlength=blocks).astype(np.float64),
    )


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Milliseconds over the completed requests, None where there is none."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One replay, as `routecal replay` prints it. Node shares are of the requests that got a node, by node index."""

    requests: int
    completed: int
    rejected: int
    cancelled: int
    failed: int
    preemptions: int
    goodput_frac: float
    goodput_frac_by_class: Mapping[str, float]
    ttft_ms: Quantiles
    tpot_ms: Quantiles
    e2e_ms: Quantiles
    reused_tokens: int
    transferred_bytes: int
    output_tokens_per_s: float
    simulated_s: float
    prefill_share: tuple[float, ...]
    decode_share: tuple[float, ...]


def outcome(cluster: Cluster, workload: Workload, replay: Replay, goal: Goal) -> Outcome:
    """Sum up the scored requests of one replay; `simulated_s` spans their first arrival to their last finish."""
    scored = workload.scored
    times = latency(workload, replay)
    ok, weight = met(workload, times, goal), weights(workload, goal)
    done = scored & ~np.isnan(times.ttft_s)
    sent = scored & (replay.transfer_drained_ns != NOT_YET)
    span_s = float(replay.finished_ns[done].max() - replay.arrived_ns[scored].min()) / 1e9 if done.any() else 0.0
    by_class = {
        c.name: goodput_frac(ok, np.where(workload.class_index == i, weight, 0.0)) for i, c in enumerate(goal.classes)
    }
    refused = (replay.status == int(Status.REJECTED)) | (replay.status == int(Status.TOO_LARGE))
    return Outcome(
        requests=int(scored.sum()),
        completed=int(done.sum()),
        rejected=int((refused & scored).sum()),
        cancelled=int(((replay.status == int(Status.CANCELLED)) & scored).sum()),
        failed=int(((replay.status == int(Status.FAILED)) & scored).sum()),
        preemptions=int(replay.preemptions[scored].sum(dtype=np.int64)),
        goodput_frac=goodput_frac(ok, weight),
        goodput_frac_by_class=by_class,
        ttft_ms=_quantiles_ms(times.ttft_s[done]),
        tpot_ms=_quantiles_ms(times.tpot_s[done]),
        e2e_ms=_quantiles_ms(times.e2e_s[done]),
        reused_tokens=int(replay.cached_tokens[scored].sum(dtype=np.int64)),
        transferred_bytes=int(replay.sent_tokens[sent].sum(dtype=np.int64)) * cluster.kv_bytes_per_token,
        output_tokens_per_s=float(workload.output_tokens[done].sum(dtype=np.int64)) / span_s if span_s > 0 else 0.0,
        simulated_s=span_s,
        prefill_share=_share(replay.prefill_node[scored], len(cluster.prefill)),
        decode_share=_share(replay.decode_node[scored], len(cluster.decode)),
    )


def _targets(workload: Workload, times: Latency, goal: Goal) -> Iterator[tuple[Float64, Float64]]:
    """Targets of every request in seconds, inf = none, each with the time that it is for; those that a class has."""
    at = workload.class_index
    if len(at) and int(at.max()) >= len(goal.classes):
        raise TwinError("every request's class must be one of the goal's", value=int(at.max()))

    def of(name: str) -> Float64 | None:
        values = [getattr(c, name) for c in goal.classes]
        if all(value is None for value in values):
            return None
        return np.array([np.inf if value is None else value for value in values])[at]

    for name, time_s in (("ttft_s", times.ttft_s), ("tpot_s", times.tpot_s), ("deadline_s", times.e2e_s)):
        target_s = of(name)
        if target_s is not None:
            yield target_s, time_s
    rates = [c.tokens_per_s for c in goal.classes]
    if any(rate is not None for rate in rates):
        tokens = np.maximum(workload.output_tokens, 1).astype(np.float64)
        slowest = np.array([0.0 if rate is None else 1 / rate for rate in rates])[at]
        yield np.where(slowest > 0, tokens * slowest, np.inf), times.e2e_s


def _sigmoid(target_s: Float64, time_s: Float64, width: float) -> Float64:
    """1 / (1 + (time / target)^(1 / width)): the sigmoid of the log ratio without its logarithm."""
    late = np.minimum(time_s / target_s, 1e6)
    return np.asarray(1.0 / (1.0 + late ** (1.0 / width)), dtype=np.float64)


def gaps_ms(replay: Replay) -> Quantiles:
    """ITL: quantiles over all gaps between two tokens, those of requests that are not scored among them."""
    found = [1e3 * quantile_s(replay.itl_counts, level) for level in (0.5, 0.95, 0.99)]
    return Quantiles(*(None if np.isnan(gap) else gap for gap in found))


def _quantiles_ms(seconds: Float64) -> Quantiles:
    if len(seconds) == 0:
        return Quantiles(None, None, None)
    p50, p95, p99 = (float(q) for q in np.quantile(seconds, (0.5, 0.95, 0.99)) * 1e3)
    return Quantiles(p50, p95, p99)


def _share(node: npt.NDArray[np.int32], nodes: int) -> tuple[float, ...]:
    placed = node[node >= 0]
    if len(placed) == 0:
        return (0.0,) * nodes
    return tuple(float(n) / len(placed) for n in np.bincount(placed, minlength=nodes))
