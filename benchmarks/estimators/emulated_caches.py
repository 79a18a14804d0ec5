"""Prefix caches block by block, as a plain list in the order of use, and the log of what they found."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import polars as pl

BLOCK_TOKENS = 16
START_US = 1_767_571_200_000_000
Prompt = tuple[int, tuple[int, ...]]
"""When it looks, microseconds, and its blocks."""


@dataclass(slots=True)
class Cache:
    """At most `capacity` blocks, each gone after `ttl_us` without use; the one that was used longest ago goes first."""

    capacity: int
    ttl_us: float
    used_us: OrderedDict[int, int]

    def look(self, prompt: Prompt, most: int) -> int:
        """Blocks of a prompt's beginning that are held, at most `most`; then the prompt's blocks are used."""
        at_us, blocks = prompt
        while self.used_us and at_us - next(iter(self.used_us.values())) > self.ttl_us:
            self.used_us.popitem(last=False)
        found = 0
        while found < min(most, len(blocks)) and blocks[found] in self.used_us:
            found += 1
        for block in reversed(blocks):
            self.used_us[block] = at_us
            self.used_us.move_to_end(block)
        while len(self.used_us) > self.capacity:
            self.used_us.popitem(last=False)
        return found


def prompts(seed: int, count: int, *, per_second: float, sessions: int = 400) -> list[Prompt]:
    """Sessions that grow turn by turn behind a few system prompts; some end, others begin. Busy and quiet minutes."""
    rng = np.random.default_rng(seed)
    system = [tuple(10_000_000 + 1_000 * k + j for j in range(int(rng.integers(4, 40)))) for k in range(12)]
    chains: list[tuple[int, ...]] = [system[int(rng.integers(12))] for _ in range(sessions)]
    at_s, fresh, made = 0.0, 20_000_000, []
    for _ in range(count):
        at_s += float(rng.exponential(1.0 / (per_second * (0.3 + 1.4 * (int(at_s) // 300 % 2)))))
        who = int(sessions * rng.uniform() ** 2)
        if len(chains[who]) > 250 or rng.uniform() < 0.02:
            chains[who] = system[int(rng.integers(12))]
        more = int(rng.integers(3, 30))
        chains[who] = (*chains[who], *range(fresh, fresh + more))
        fresh += more
        made.append((START_US + round(at_s * 1e6), chains[who]))
    return made


def log(asked: list[Prompt], cache: Cache, node: str = "p0", *, lost_frac: float = 0.0, seed: int = 0) -> pl.DataFrame:
    """The table of `features.cache_uses.cache_uses`. Of a part `lost_frac` of the prompts half of the hit was lost."""
    rng = np.random.default_rng(seed)
    rows = []
    for prompt in asked:
        tokens = len(prompt[1]) * BLOCK_TOKENS + int(rng.integers(0, BLOCK_TOKENS))
        found = cache.look(prompt, (tokens - 1) // BLOCK_TOKENS)
        if rng.uniform() < lost_frac:
            found //= 2
        rows.append((node, prompt[0], None, BLOCK_TOKENS, list(prompt[1]), tokens, found * BLOCK_TOKENS))
    schema: dict[str, pl.DataType | type[pl.DataType]] = {
        "node": pl.String, "at_us": pl.Int64, "block_hash_scope": pl.String, "block_tokens": pl.Int64,
        "block_hashes": pl.List(pl.UInt64), "prompt_tokens": pl.Int64, "cached_tokens": pl.Int64,
    }  # fmt: skip
    return pl.DataFrame(rows, schema, orient="row")
