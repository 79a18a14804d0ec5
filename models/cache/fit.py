"""Effective prefix caches of P nodes: the capacity and the age at which blocks are gone, so that a replay of the log's
prompts finds the cached tokens that the log tells of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from features.errors import ModelError
from models.cache.choose import Parted, part
from models.cache.rows import NodeUses, read
from models.metrics import BoolArray
from models.portable.cache import CacheLaw

RECENT_US = 86_400_000_000
RECENT_PROMPTS = 500
"""A node is judged by its last day, or by as much more as holds this many prompts that could reuse something."""
MIN_PROMPTS = 50
PRIOR_PROMPTS = 10.0
"""A node of n telling prompts keeps n / (n + this) of its own log capacity; the rest is the pool's."""
EXPLAINS_PROMPTS, EXPLAINS_RATIO = 5, 3.0
"""A threshold is there only if it puts lookups of so many more prompts right than wrong, and so many times as many."""


@dataclass(frozen=True, slots=True)
class NodeCache:
    """How a node's law was found. `prompts` that could reuse something told of it, with `lookups` of blocks.

    `wrong_frac`: of the lookups. `source`: its own log, the pool's share of the node's blocks, or all of the node's
    blocks, because the log shows no end of the cache.
    """

    prompts: int
    lookups: int
    wrong_frac: float
    source: Literal["own", "pool", "blocks"]


@dataclass(frozen=True, slots=True)
class CacheFit:
    """`law`: node -> its cache, for nodes that the log or the pool tells something of."""

    law: Mapping[str, CacheLaw]
    nodes: Mapping[str, NodeCache]


@dataclass(frozen=True, slots=True)
class _Own:
    """What a node's own log says, in blocks of its hashes. `held`: the largest distance that was a hit, plus 1."""

    parted: Parted
    prompts: int
    lookups: int
    held: float
    blocks_per_hash: float


def fit_cache(
    table: pl.DataFrame, *, blocks: Mapping[str, float] | None = None, block_tokens: int | None = None
) -> CacheFit:
    """Fits a `CacheLaw` a node from the table of `features.cache_uses.cache_uses`.

    `blocks`: usable blocks by node, `block_tokens`: their tokens, as the laws count them; None = those of the hashes.
    A node whose log does not show where its cache ends has all its blocks, or the pool's median part of them.
    ModelError if a column is missing or damaged.
    """
    wrong = {node: has for node, has in (blocks or {}).items() if not 0.0 < has < np.inf}
    if wrong or (block_tokens is not None and block_tokens < 1):
        raise ModelError(
            "blocks of a node and tokens of a block must be above 0", value=wrong or block_tokens, place="cache"
        )
    own = {}
    for node, uses in read(table).items():
        told = _recent(uses)
        per_hash = 1.0 if block_tokens is None else uses.block_tokens / block_tokens
        if told.any():
            own[node] = _own(uses, told, per_hash)
    return _together(own, blocks or {})


def _recent(uses: NodeUses) -> BoolArray:
    """Lookups that tell of the cache as it is now."""
    told = uses.told & ~uses.cold[uses.reuses.request]
    prompts = np.unique(uses.reuses.request[told])
    if not len(prompts):
        return told
    since = int(np.searchsorted(uses.at_us, uses.at_us[-1] - RECENT_US))
    since = min(since, int(prompts[max(0, len(prompts) - RECENT_PROMPTS)]))
    return told & (uses.reuses.request >= since)


def _own(uses: NodeUses, told: BoolArray, blocks_per_hash: float) -> _Own:
    distance, age_s = uses.reuses.distance[told].astype(np.float64), uses.reuses.age_s[told]
    hit = uses.hit[told]
    request = uses.reuses.request[told]

    def explains(with_it: Parted, without: Parted) -> bool:
        now, before = (((distance < p.capacity) & (age_s <= p.age_s)) == hit for p in (with_it, without))
        better, worse = len(np.unique(request[now & ~before])), len(np.unique(request[before & ~now]))
        return better - worse >= EXPLAINS_PROMPTS and better >= EXPLAINS_RATIO * worse

    neither = Parted(np.inf, np.inf, int(np.count_nonzero(~hit)))
    both, no_age, no_capacity = (
        part(distance, age_s, hit, by_distance=by_distance, by_age=by_age)
        for by_distance, by_age in ((True, True), (True, False), (False, True))
    )
    if not explains(both, no_age):
        parted = no_age if explains(no_age, neither) else neither
    else:
        parted = both if explains(both, no_capacity) else no_capacity
    held = float(distance[hit].max()) + 1.0 if hit.any() else 0.0
    return _Own(parted, len(np.unique(uses.reuses.request[told])), len(hit), held, blocks_per_hash)


def _together(own: Mapping[str, _Own], blocks: Mapping[str, float]) -> CacheFit:
    """Nodes drawn to the pool: capacities as parts of a node's blocks, ages as they are."""
    size = {node: blocks.get(node, float("nan")) / found.blocks_per_hash for node, found in own.items()}
    telling = [n for n, found in own.items() if found.prompts >= MIN_PROMPTS]
    ended = [n for n in telling if np.isfinite(own[n].parted.capacity) and own[n].parted.capacity > 0.0]
    known = [n for n in ended if np.isfinite(size[n])]
    part_of_blocks = float(np.median([own[n].parted.capacity / size[n] for n in known])) if known else None
    plain = float(np.median([own[n].parted.capacity for n in ended])) if ended else None
    ages = [own[n].parted.age_s for n in telling]
    age_s = float(np.median(ages)) if ages else np.inf
    law, nodes = {}, {}
    for node in sorted(set(own) | set(blocks)):
        has = size.get(node, blocks.get(node, float("nan")))
        pool = part_of_blocks * has if part_of_blocks is not None and np.isfinite(has) else plain
        if node not in own:
            if telling and pool is not None:
                law[node] = CacheLaw(pool, _age(age_s))
                nodes[node] = NodeCache(0, 0, 0.0, "pool")
            continue
        found = own[node]
        capacity, source = _capacity(found, pool, has, node in telling)
        own_age = found.parted.age_s if node in telling else age_s
        law[node] = CacheLaw(capacity * found.blocks_per_hash, _age(own_age))
        nodes[node] = NodeCache(found.prompts, found.lookups, found.parted.wrong / max(1, found.lookups), source)
    return CacheFit(law, nodes)


def _capacity(
    found: _Own,
    pool: float | None,
    has: float,
    telling: bool,
) -> tuple[float, Literal["own", "pool", "blocks"]]:
    """Blocks of a node's cache, and whose word that is."""
    own = found.parted.capacity
    if telling and own == 0.0:
        return 0.0, "own"
    if telling and np.isfinite(own):
        keep = found.prompts / (found.prompts + PRIOR_PROMPTS) if pool is not None else 1.0
        drawn = float(np.exp(keep * np.log(own) + (1.0 - keep) * np.log(pool or own)))
        return drawn, "own"
    if telling and not np.isfinite(own) and np.isfinite(has):
        return max(has, found.held), "blocks"
    if pool is not None:
        return max(pool, found.held), "pool"
    return (has, "blocks") if np.isfinite(has) else (found.held, "own")


def _age(age_s: float) -> float | None:
    return age_s if np.isfinite(age_s) and age_s > 0.0 else None
