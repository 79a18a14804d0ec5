"""Cached tokens of a replayed prefix cache against those that the log tells of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from models.cache.rows import NodeUses, read
from models.metrics import FloatArray
from models.portable.cache import CacheLaw


@dataclass(frozen=True, slots=True)
class CacheScore:
    """A node's prompts under its law. Tokens are in whole blocks of the log's hashes.

    `error_frac`: replayed / logged tokens - 1. `off_frac`: sum over prompts of what was too much or too little / logged
    tokens; both NaN if nothing was cached. Prompts that found what no prompt of the table had used are left out.
    """

    node: str
    prompts: int
    logged_tokens: float
    replayed_tokens: float
    error_frac: float
    off_frac: float


def score_cache(
    law: Mapping[str, CacheLaw], table: pl.DataFrame, *, block_tokens: int | None = None
) -> tuple[CacheScore, ...]:
    """Scores by node, sorted by name, of nodes that have a law. Arguments as of `fit_cache`."""
    scores = []
    for node, uses in read(table).items():
        if node not in law:
            continue
        per_hash = 1.0 if block_tokens is None else uses.block_tokens / block_tokens
        replayed = replayed_blocks(uses, law[node].capacity_blocks / per_hash, law[node].ttl_s)
        known = np.isfinite(uses.cached) & ~uses.cold
        logged, replayed = uses.cached[known] * uses.block_tokens, replayed[known] * uses.block_tokens
        total = float(logged.sum())
        scores.append(
            CacheScore(
                node=node,
                prompts=int(np.count_nonzero(known)),
                logged_tokens=total,
                replayed_tokens=float(replayed.sum()),
                error_frac=float(replayed.sum()) / total - 1.0 if total > 0 else float("nan"),
                off_frac=float(np.abs(replayed - logged).sum()) / total if total > 0 else float("nan"),
            )
        )
    return tuple(scores)


def replayed_blocks(uses: NodeUses, capacity: float, ttl_s: float | None) -> FloatArray:
    """Blocks that each prompt finds in a cache of `capacity` blocks that is empty when the table begins, (prompts,)."""
    held = (uses.reuses.distance < capacity) & (uses.reuses.age_s <= (np.inf if ttl_s is None else ttl_s))
    found = np.bincount(uses.reuses.request[held], minlength=len(uses.most))
    return np.minimum(found, uses.most).astype(np.float64)
