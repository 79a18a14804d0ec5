"""Where the winner loses and gains against the incumbent: the same requests in slices of class, size, time and rack."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from policies.evidence.flows import BINS, prompt_bin
from policies.search.detail import Detail

LEAST = 50
SHOWN = 5
THIRDS = ("first third", "second third", "last third")


@dataclass(frozen=True, slots=True)
class Slice:
    """Requests of one slice over all validation days; `difference` = the winner's goodput less the incumbent's."""

    where: str
    requests: int
    winner_goodput_frac: float
    incumbent_goodput_frac: float
    difference: float


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of at least 50 requests with the largest losses and gains, the largest first.

    `looked_at`: slices in all. The extremes of many are partly chance: read them as places to look, not as findings.
    """

    looked_at: int
    losses: tuple[Slice, ...]
    gains: tuple[Slice, ...]


@dataclass(slots=True)
class SliceSums:
    """Sums (requests, weight, weight met by the winner, by the incumbent) a slice, while days come one by one.

    Slices: class × prompt size × third of the day's window; and the rack of the D that the incumbent chose, so that a
    slice holds the same requests under both policies.
    """

    sums: dict[str, np.ndarray] = field(default_factory=lambda: defaultdict(lambda: np.zeros(4)))

    def add(self, winner: Detail, incumbent: Detail) -> None:
        """One more day of both."""
        if len(winner.arrival_ns) == 0:
            return
        values = np.stack(
            [np.ones(len(winner.met)), winner.weight, winner.weight * winner.met, winner.weight * incumbent.met]
        )
        since = winner.arrival_ns - winner.arrival_ns[0]
        third = np.minimum(3 * since // max(1, int(since[-1])), 2)
        code = (winner.class_index * len(BINS) + prompt_bin(winner.prompt_tokens)) * 3 + third
        for at in np.unique(code):
            name, size = winner.classes[at // 3 // len(BINS)], BINS[at // 3 % len(BINS)]
            self.sums[f"{name}, prompt {size} tokens, {THIRDS[at % 3]}"] += values[:, code == at].sum(axis=1)
        placed = incumbent.decode_node >= 0
        rack = np.array([n.rack for n in incumbent.decode])[incumbent.decode_node]
        for name in sorted({n.rack for n in incumbent.decode}):
            self.sums[f"D in rack {name} (the incumbent's choice)"] += values[:, placed & (rack == name)].sum(axis=1)

    def extremes(self) -> Slices:
        """The largest losses and gains; slices that differ in nothing are neither."""
        found = []
        for where, (requests, weight, won, held) in sorted(self.sums.items()):
            if requests >= LEAST and weight > 0:
                mine, theirs = float(won / weight), float(held / weight)
                found.append(Slice(where, int(requests), mine, theirs, mine - theirs))
        ordered = sorted(found, key=lambda s: (s.difference, s.where))
        return Slices(
            looked_at=len(found),
            losses=tuple(s for s in ordered if s.difference < 0)[:SHOWN],
            gains=tuple(s for s in reversed(ordered) if s.difference > 0)[:SHOWN],
        )
