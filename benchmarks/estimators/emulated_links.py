"""A small pool of links, event by event: transfers that share ports and uplinks, written as a log would show them.

Made apart from the twin and from the fit, so that a rule that both got wrong would show. Bytes are a fluid; a resource
is divided equally among the flows on it and what a flow does not take is lost; a flow whose prompt is still computed
can only send what is computed already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from features.schemas import with_all_columns
from models.portable.transfer import TransferLaw, egress, ingress, uplink

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

START_US = 1_767_571_200_000_000
FACTS: Mapping[str, tuple[str, float]] = {
    **{f"p{k}": ("a" if k < 2 else "b", 12.5e9) for k in range(4)},
    **{f"d{k}": ("a" if k < 3 else "b", 12.5e9) for k in range(6)},
}
UPLINKS: Mapping[tuple[str, str], float] = {("a", "b"): 20e9, ("b", "a"): 20e9}
KV_BYTES_PER_TOKEN = 163_840
BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Links:
    """The truth of a pool. `noise`: standard deviation of the log of a transfer's bytes as the links feel them.

    `fixed_first`: alpha and descriptors pass before the bytes leave, not after.
    """

    alpha_s: Mapping[str, float] = field(default_factory=lambda: {"local": 0.002, "cross": 0.005})
    efficiency: Mapping[str, float] = field(default_factory=lambda: {"local": 0.92, "cross": 0.84})
    descriptor_s: float = 0.0
    descriptors_per_block: float = 0.0
    port_factor: Mapping[str, float] = field(default_factory=dict)
    wire_frac: float = 1.0
    overlap_frac: float = 0.0
    last_frac: float = 0.0
    handshake_s: float = 0.0
    noise: float = 0.06
    stalled_frac: float = 0.0
    fixed_first: bool = False

    @classmethod
    def of_law(cls, law: TransferLaw) -> Links:
        """What a law says the pool is, without noise."""
        return cls(
            law.alpha_s, law.efficiency, law.descriptor_s, law.descriptors_per_block, law.port_factor, law.wire_frac,
            law.overlap_frac, law.last_frac, law.handshake_s, 0.0,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prompts:
    """n prompts, shape (n,): what the links are asked for. `scatter`: how much a prompt's blocks lie apart, mean 1."""

    prefill: Int64
    decode: Int64
    computed_s: Float64
    compute_s: Float64
    tokens: Int64
    resident: Int64
    scatter: Float64


@dataclass(frozen=True, slots=True)
class Times:
    """When each transfer began and when its KV was visible, seconds, shape (n,)."""

    started_s: Float64
    visible_s: Float64
    wire_bytes: Float64
    descriptors: Float64


def prompts(seed: int, count: int, *, per_second: float, resident: bool = False) -> Prompts:
    """Poisson arrivals, sizes over three decades, popular nodes, D-resident prefixes of some prompts."""
    rng = np.random.default_rng(seed)
    tokens = np.exp(rng.uniform(np.log(200), np.log(40_000), count)).astype(np.int64)
    held = rng.uniform(0.0, 0.9, count) * (rng.uniform(size=count) < 0.3) * float(resident)
    compute = 0.02 + 6e-5 * tokens.astype(np.float64) * np.exp(rng.normal(0.0, 0.1, count))
    return Prompts(
        prefill=rng.choice(4, count, p=[0.3, 0.25, 0.25, 0.2]),
        decode=rng.choice(6, count, p=[0.25, 0.15, 0.15, 0.15, 0.15, 0.15]),
        computed_s=100.0 + np.cumsum(rng.exponential(1.0 / per_second, count)),
        compute_s=compute,
        tokens=tokens,
        resident=(tokens * held).astype(np.int64) // BLOCK_TOKENS * BLOCK_TOKENS,
        scatter=rng.uniform(0.5, 1.5, count),
    )


@dataclass(slots=True)
class _Flow:
    at: int
    names: tuple[str, ...]
    efficiency: float
    rest: float
    computed_s: float
    making: float  # bytes/s that the prompt's compute yields
    ready: float  # computed and not sent
    after: float  # bytes that come when the compute ends
    rate: float = 0.0


def run(links: Links, asked: Prompts, seed: int = 0) -> Times:
    """Serve the prompts' transfers."""
    rng = np.random.default_rng(seed)
    count = len(asked.tokens)
    lacking = (asked.tokens - asked.resident).astype(np.float64)
    wire = lacking * KV_BYTES_PER_TOKEN * links.wire_frac
    work = wire * np.exp(rng.normal(0.0, links.noise, count))
    stall = np.where(rng.uniform(size=count) < links.stalled_frac, 0.3, 0.0)
    descriptors = np.round(np.ceil(lacking / BLOCK_TOKENS) * links.descriptors_per_block * asked.scatter)
    started = asked.computed_s - links.overlap_frac * asked.compute_s
    order = np.argsort(started, kind="stable")
    kinds = [links.alpha_s["local" if _rack(p, d)[0] == _rack(p, d)[1] else "cross"] for p, d in _pairs(asked)]
    fixed = np.array(kinds) + links.descriptor_s * descriptors
    seen: set[tuple[int, int]] = set()
    flows_at = started + fixed * links.fixed_first
    after = fixed * (not links.fixed_first) + stall
    pairs = _pairs(asked)
    for i in order.tolist():
        pair = pairs[i]
        flows_at[i] += 0.0 if pair in seen else links.handshake_s
        seen.add(pair)
    speed = {egress(f"p{k}"): FACTS[f"p{k}"][1] for k in range(4)} | {
        ingress(f"d{k}"): FACTS[f"d{k}"][1] for k in range(6)
    }
    speed |= {uplink(*racks): limit for racks, limit in UPLINKS.items()}
    speed = {name: limit * links.port_factor.get(name, 1.0) for name, limit in speed.items()}
    on = dict.fromkeys(speed, 0)
    visible = np.zeros(count)
    queue = np.argsort(flows_at, kind="stable").tolist()
    live: list[_Flow] = []
    now, nothing = 0.0, 1e-3
    while queue or live:
        until = flows_at[queue[0]] if queue else np.inf
        for flow in live:
            most = min(speed[name] / on[name] for name in flow.names) * flow.efficiency
            computing = now < flow.computed_s
            flow.rate = most if flow.ready > nothing or not computing else min(most, flow.making)
            until = min(until, now + flow.rest / flow.rate)
            if computing:
                until = min(until, flow.computed_s)
                if flow.ready > nothing and flow.rate > flow.making:
                    until = min(until, now + flow.ready / (flow.rate - flow.making))
        for flow in live:
            computing = now < flow.computed_s
            flow.rest -= flow.rate * (until - now)
            flow.ready += ((flow.making if computing else 0.0) - flow.rate) * (until - now)
            if computing and until >= flow.computed_s:
                flow.ready += flow.after
        now = until
        for flow in [flow for flow in live if flow.rest <= nothing]:
            live.remove(flow)
            for name in flow.names:
                on[name] -= 1
            visible[flow.at] = now + after[flow.at]
        while queue and flows_at[queue[0]] <= now:
            flow = _flow(links, asked, queue.pop(0), work, now)
            live.append(flow)
            for name in flow.names:
                on[name] += 1
    return Times(started, visible, wire, descriptors)


def _pairs(asked: Prompts) -> list[tuple[int, int]]:
    return list(zip(asked.prefill.tolist(), asked.decode.tolist(), strict=True))


def _rack(p: int, d: int) -> tuple[str, str]:
    return FACTS[f"p{p}"][0], FACTS[f"d{d}"][0]


def _flow(links: Links, asked: Prompts, at: int, work: Float64, now: float) -> _Flow:
    p, d = int(asked.prefill[at]), int(asked.decode[at])
    from_rack, to_rack = _rack(p, d)
    names: tuple[str, ...] = (egress(f"p{p}"), ingress(f"d{d}"))
    kind = "local"
    if from_rack != to_rack:
        names, kind = (*names, uplink(from_rack, to_rack)), "cross"
    overlap = links.overlap_frac * asked.compute_s[at]
    early = work[at] * (1.0 - links.last_frac)
    waited = max(0.0, now - (asked.computed_s[at] - overlap))
    if overlap <= waited:
        return _Flow(at, names, links.efficiency[kind], work[at], now, 0.0, work[at], 0.0)
    making = early / overlap
    return _Flow(
        at, names, links.efficiency[kind], work[at], asked.computed_s[at], making, making * waited, work[at] - early
    )


def log(asked: Prompts, times: Times) -> pl.DataFrame:
    """The requests as a log has them, microseconds."""

    def us(seconds: Float64) -> pl.Series:
        return pl.Series(np.rint(seconds * 1e6).astype(np.int64) + START_US)

    frame = pl.DataFrame(
        {
            "request_id": [f"r{i:06}" for i in range(len(asked.tokens))],
            "prefill_node": [f"p{k}" for k in asked.prefill.tolist()],
            "decode_node": [f"d{k}" for k in asked.decode.tolist()],
            "prompt_tokens": asked.tokens,
            "decode_resident_tokens": asked.resident,
            "prefill_started_at_us": us(asked.computed_s - asked.compute_s),
            "prefill_finished_at_us": us(asked.computed_s),
            "transfer_started_at_us": us(times.started_s),
            "transfer_finished_at_us": us(times.visible_s),
            "transferred_bytes": np.rint(times.wire_bytes).astype(np.int64),
            "transfer_descriptors": times.descriptors.astype(np.int64),
        }
    )
    return with_all_columns("requests", frame)
