"""Where an arm's requests went: racks, nodes, herding, room on D, and the regret of its decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from policies.objective import BLOCK_S
from policies.search.detail import Detail

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

PROMPT_EDGES = (512, 2_048, 8_192, 32_768)
"""Tokens at which the bins of prompt sizes begin, but for the first. Fixed, so that nights compare."""
BINS = ("< 512", "512 – 2,047", "2,048 – 8,191", "8,192 – 32,767", "≥ 32,768")


@dataclass(frozen=True, slots=True)
class Crossing:
    """Prompts of one size. `crossed_frac`: share whose P and D are in different racks, None without any."""

    prompt_tokens: str
    requests: int
    crossed_frac: float | None


@dataclass(frozen=True, slots=True)
class Flow:
    """One arm on the validation days, over the requests that got both nodes; shares are of all of them, by node name.

    `*_autocorrelation`: of a node's share from one block of 5 s to the next, the mean over nodes and days; None where
    no share varies. Far above 0 is herding that lasts, far below 0 herding from block to block.
    `above_high_water_frac`: share of D-time, against the arm's own `high_water`. `flips_frac`: share of all requests
    whose pair is not the incumbent's in the same replay. Tokens and bytes are sums over the days.
    """

    arm: str
    requests: int
    crossed_frac: float | None
    crossings: tuple[Crossing, ...]
    prefill_share: Mapping[str, float]
    decode_share: Mapping[str, float]
    prefill_autocorrelation: float | None
    decode_autocorrelation: float | None
    high_water: float
    above_high_water_frac: float
    flips_frac: float
    reused_tokens: int
    transferred_bytes: int


@dataclass(frozen=True, slots=True)
class ClassRegret:
    """Regret of an arm's sampled decisions on the validation days, for one class, against hindsight of the moment.

    `ttft_s`: mean of the TTFT that the chosen pair promised less the best pair's, by the pool's true laws and state.
    `missed_frac`: share where some pair would have met both targets and the chosen one not. None without decisions.
    """

    arm: str
    slo_class: str
    decisions: int
    ttft_s: float | None
    missed_frac: float | None


def prompt_bin(prompt_tokens: Int32) -> Int64:
    """Place in `BINS` of each prompt."""
    return np.searchsorted(PROMPT_EDGES, prompt_tokens, side="right").astype(np.int64)


@dataclass(slots=True)
class FlowSums:
    """An arm's flow and regret while its days come one by one, so that one day's requests are held at a time."""

    arm: str
    days: list[_Day] = field(default_factory=list)

    def add(self, mine: Detail, incumbents: Detail) -> None:
        """One more day of the arm, and the incumbent's replay of it."""
        self.days.append(_day(mine, incumbents))

    def flow(self) -> Flow:
        """The arm's flow over its days."""
        days = self.days
        crossed, both = (np.sum([getattr(d, name) for d in days], axis=0) for name in ("crossed", "both"))
        requests = sum(d.requests for d in days)
        return Flow(
            arm=self.arm,
            requests=int(both.sum()),
            crossed_frac=_frac(int(crossed.sum()), int(both.sum())),
            crossings=tuple(
                Crossing(name, int(n), _frac(int(c), int(n))) for name, n, c in zip(BINS, both, crossed, strict=True)
            ),
            prefill_share=_shares([d.prefill for d in days], days[0].prefill_names),
            decode_share=_shares([d.decode for d in days], days[0].decode_names),
            prefill_autocorrelation=_mean([a for d in days for a in d.prefill_lag]),
            decode_autocorrelation=_mean([a for d in days for a in d.decode_lag]),
            high_water=days[0].high_water,
            above_high_water_frac=float(np.average([d.above for d in days], weights=[d.span_s for d in days])),
            flips_frac=_frac(sum(d.flips for d in days), requests) or 0.0,
            reused_tokens=sum(d.reused_tokens for d in days),
            transferred_bytes=sum(d.transferred_bytes for d in days),
        )

    def regret(self) -> tuple[ClassRegret, ...]:
        """The arm's regret, one row a class."""
        total = np.sum([d.regret for d in self.days], axis=0)
        return tuple(
            ClassRegret(
                self.arm,
                name,
                int(count),
                float(regret) / count if count else None,
                float(missed) / count if count else None,
            )
            for name, (count, regret, missed) in zip(self.days[0].classes, total, strict=True)
        )


@dataclass(frozen=True, slots=True)
class _Day:
    """Sums of one day: by prompt bin, by node, and (decisions, regret, missed) by class."""

    classes: tuple[str, ...]
    prefill_names: tuple[str, ...]
    decode_names: tuple[str, ...]
    requests: int
    both: Int64
    crossed: Int64
    prefill: Int64
    decode: Int64
    prefill_lag: Sequence[float]
    decode_lag: Sequence[float]
    high_water: float
    above: float
    span_s: float
    flips: int
    reused_tokens: int
    transferred_bytes: int
    regret: Float64


def _day(mine: Detail, incumbents: Detail) -> _Day:
    placed = (mine.prefill_node >= 0) & (mine.decode_node >= 0)
    p, d = mine.prefill_node[placed], mine.decode_node[placed]
    racks_p, racks_d = (np.array([n.rack for n in nodes]) for nodes in (mine.prefill, mine.decode))
    size = prompt_bin(mine.prompt_tokens[placed])
    since = mine.arrival_ns - mine.arrival_ns[:1]
    block = (since // round(BLOCK_S * 1e9))[placed]
    flips = (mine.prefill_node != incumbents.prefill_node) | (mine.decode_node != incumbents.decode_node)
    return _Day(
        classes=mine.classes,
        prefill_names=tuple(n.name for n in mine.prefill),
        decode_names=tuple(n.name for n in mine.decode),
        requests=len(placed),
        both=np.bincount(size, minlength=len(BINS)),
        crossed=np.bincount(size[racks_p[p] != racks_d[d]], minlength=len(BINS)),
        prefill=np.bincount(p, minlength=len(mine.prefill)),
        decode=np.bincount(d, minlength=len(mine.decode)),
        prefill_lag=autocorrelations(p, block, len(mine.prefill)),
        decode_lag=autocorrelations(d, block, len(mine.decode)),
        high_water=mine.high_water,
        above=mine.above_high_water_frac,
        span_s=max(1.0, float(since[-1]) / 1e9) if len(since) else 1.0,
        flips=int(flips.sum()),
        reused_tokens=mine.outcome.reused_tokens,
        transferred_bytes=mine.outcome.transferred_bytes,
        regret=_regret(mine),
    )


def autocorrelations(node: Int32, block: Int64, nodes: int) -> list[float]:
    """Lag-1 autocorrelation of every node's share of the requests in a block; a node of constant share has none.

    `node`, `block` of each request, blocks ascending. A block without requests has no shares and parts its neighbours.
    """
    if len(node) == 0:
        return []
    blocks = int(block[-1]) + 1
    counts = np.zeros((blocks, nodes))
    np.add.at(counts, (block, node), 1.0)
    total = counts.sum(axis=1)
    known = total > 0
    share = counts / np.where(known, total, 1.0)[:, None]
    centred = np.where(known[:, None], share - share[known].mean(axis=0), 0.0)
    power = (centred**2).sum(axis=0)
    lagged = (centred[1:] * centred[:-1]).sum(axis=0)
    return [float(a / b) for a, b in zip(lagged, power, strict=True) if b > 1e-12 * blocks]


def _regret(mine: Detail) -> Float64:
    """(decisions, sum of regret in seconds, missed) of every class; shape (classes, 3)."""
    known = np.isfinite(mine.regret_ttft_s)
    at, count = mine.regret_class[known], len(mine.classes)
    columns = (np.ones(int(known.sum())), mine.regret_ttft_s[known], mine.regret_missed[known].astype(np.float64))
    return np.stack([np.bincount(at, weights=c, minlength=count) for c in columns], axis=1)


def _shares(counts: Sequence[Int64], names: Sequence[str]) -> dict[str, float]:
    total = np.sum(counts, axis=0)
    return {name: float(n) / max(1, int(total.sum())) for name, n in zip(names, total, strict=True)}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _frac(part: int, whole: int) -> float | None:
    return part / whole if whole else None
