"""A D that decodes by a law, step by step, and what a request log says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from features.schemas import with_all_columns

START_US = 1_767_571_200_000_000


@dataclass(slots=True)
class Decoded:
    """`requests`: the log. `steps`: (start, µs, sequences, tokens) of every step in which requests joined."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    steps: list[tuple[int, int, int, int]] = field(default_factory=list)

    @property
    def requests(self) -> pl.DataFrame:
        return with_all_columns("requests", pl.DataFrame(self.rows, infer_schema_length=None))


def decode(count: int, step_us: Callable[[int, int], int], *, seed: int, gap_us: float, node: str = "d0") -> Decoded:
    """`count` requests land at random and join at the next boundary. `step_us`: (sequences, tokens) -> µs."""
    rng = np.random.default_rng(seed)
    landed = np.cumsum(rng.exponential(gap_us, count)).astype(np.int64) + START_US
    prompt, output = rng.integers(100, 5_000, count), rng.integers(2, 300, count)
    done = Decoded()
    now, running, made = START_US, [], np.zeros(count, np.int64)
    log: list[dict[str, Any]] = [
        {"request_id": f"{node}-{i:04}", "pool": "a", "arrived_at_us": int(landed[i]), "decode_node": node,
         "prompt_tokens": int(prompt[i]), "output_tokens": int(output[i]),
         "transfer_started_at_us": int(landed[i]) - 9_000, "_landed": int(landed[i])}
        for i in range(count)
    ]  # fmt: skip
    at = 0
    while at < count or running:
        if not running:
            now = max(now, int(landed[at]))
        fresh = []
        while at < count and landed[at] <= now:
            log[at]["decode_admitted_at_us"] = now
            fresh.append(at)
            at += 1
        running += fresh
        tokens = int(sum(prompt[i] + made[i] for i in running))
        took = step_us(len(running), tokens)
        if fresh:
            done.steps.append((now, took, len(running), tokens))
        now += took
        for i in running:
            made[i] += 1
            if made[i] == 1:
                log[i]["first_token_at_us"] = now
            if made[i] == output[i]:
                log[i]["finished_at_us"] = now
        running = [i for i in running if made[i] < output[i]]
    done.rows = log
    return done
