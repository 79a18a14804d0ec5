"""Caches: the day's prompts replayed through each P's effective prefix cache, against the hits that were logged."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from features.errors import ModelError
from models.columns import names, numeric, require
from models.honesty.blocks import BLOCK_ROWS, Estimate, estimate, mean
from models.honesty.reading import ALL, Reading, known
from models.metrics import BoolArray, FloatArray
from models.portable.cache import CacheLaw

CACHE = "cache"
MARGIN = 0.03
"""How far the share of prompt tokens that come from the cache may lie off."""
COLUMNS = ("node", "started_at_us", "finished_at_us", "prompt_tokens", "cached_tokens", "blocks")
_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class Hits:
    """Tokens of n prompts that came from the cache, predicted and seen, in order of their starts."""

    node: tuple[str, ...]
    predicted: FloatArray
    seen: FloatArray
    prompt: FloatArray


def replayed_hits(laws: Mapping[str, CacheLaw], frame: pl.DataFrame, block_tokens: int) -> Hits:
    """Prompts on the P that have a law: COLUMNS, where `blocks` are the ids of the prompt's full blocks of
    `block_tokens` tokens, equal ids = equal prefixes; `cached_tokens` null = not logged, it still fills the cache.
    `unit_tokens`, where it is there: the log tells prefixes in pieces of this size; hits are compared in whole ones.

    Prompts that found what no prompt before them had used are left out: the frame begins too late for them.
    """
    require(frame, COLUMNS, table="prompts")
    rows = frame.filter(pl.col("node").is_in(list(laws))).drop_nulls(["started_at_us", "finished_at_us", "blocks"])
    rows = rows.sort("started_at_us", "node", "finished_at_us", "prompt_tokens", maintain_order=True)
    node = names(rows, "node", table="prompts")
    prompt = numeric(rows, "prompt_tokens", table="prompts", least=0.0)
    if np.isnan(prompt).any():
        raise ModelError("a column must have no nulls", place="prompts.prompt_tokens")
    start, end = rows["started_at_us"].to_list(), rows["finished_at_us"].to_list()
    blocks = rows["blocks"].to_list()
    predicted, reusable = np.zeros(rows.height), np.zeros(rows.height)
    for name in sorted(set(node)):
        at = [k for k, other in enumerate(node) if other == name]
        # At least one token is always computed.
        most = [max(0, int(prompt[k]) - 1) // block_tokens for k in at]
        found = hit_blocks(laws[name], [start[k] for k in at], [end[k] for k in at], [blocks[k] for k in at], most)
        hits = np.array(found, np.float64).reshape(len(at), 2) * block_tokens
        predicted[at], reusable[at] = hits[:, 0], hits[:, 1]
    seen = numeric(rows, "cached_tokens", table="prompts", least=0.0)
    if "unit_tokens" in rows.columns:
        unit = np.fmax(numeric(rows, "unit_tokens", table="prompts", least=1.0), 1.0)
        predicted, seen = predicted // unit * unit, seen // unit * unit
    logged = np.flatnonzero(np.isfinite(seen) & (prompt > 0) & (seen <= reusable))
    return Hits(tuple(node[k] for k in logged.tolist()), predicted[logged], seen[logged], prompt[logged])


def hit_blocks(
    law: CacheLaw, start: Sequence[int], end: Sequence[int], blocks: Sequence[Sequence[int]], most: Sequence[int]
) -> list[tuple[int, int]]:
    """Blocks of each prompt that the cache holds at its start, at most `most`, and those that a cache without an end
    would hold. Times in microseconds, any order.

    Least recently used goes first, the end of a prompt before its beginning. A prompt's blocks are used at its start,
    where they are there, and at its end. Ends come before starts of the same time.
    """
    held: OrderedDict[int, int] = OrderedDict()
    used_once: set[int] = set()
    ttl_us = math.inf if law.ttl_s is None else law.ttl_s * _US_PER_S
    found = [(0, 0)] * len(start)
    events = [(at, 1, k) for k, at in enumerate(start)] + [(at, 0, k) for k, at in enumerate(end)]
    for now, starts, k in sorted(events):
        chain = blocks[k]
        if starts:
            hit = 0
            for block in chain[: most[k]]:
                used = held.get(block)
                if used is None or now - used > ttl_us:
                    break
                hit += 1
            known = next((at for at, block in enumerate(chain) if block not in used_once), len(chain))
            found[k] = hit, known
            chain = chain[:hit]
        else:
            used_once.update(chain)
        for block in reversed(chain):
            held[block] = now
            held.move_to_end(block)
        while len(held) > law.capacity_blocks:
            held.popitem(last=False)
    return found


def cache_readings(hits: Hits) -> list[Reading]:
    """Share of prompt tokens from the cache less the share that was logged: of all P, and of each."""
    if not len(hits.seen):
        return []
    nodes = np.array(hits.node)
    groups = [(ALL, np.ones(len(nodes), np.bool_)), *((name, nodes == name) for name in sorted(set(hits.node)))]
    return [reading for name, rows in groups if rows.sum() >= BLOCK_ROWS for reading in _group(hits, name, rows)]


def hit_error_rows(hits: Hits) -> FloatArray:
    """|predicted - seen| of each prompt by the day's mean prompt."""
    found: FloatArray = np.abs(hits.predicted - hits.seen) / max(1.0, float(np.mean(hits.prompt)))
    return found


def _group(hits: Hits, group: str, rows: BoolArray) -> list[Reading]:
    scale = float(np.mean(hits.prompt[rows]))
    away = (hits.predicted[rows] - hits.seen[rows]) / scale
    found: Estimate = estimate(away, mean)
    low, high = (known(end) for end in found.interval())
    seen = float(np.mean(hits.seen[rows])) / scale
    return [
        Reading(CACHE, group, "hit_error", found.value, found.rows, low, high, 0.0, MARGIN, found.beyond(0.0, MARGIN)),
        Reading(CACHE, group, "hit_share", seen, found.rows),
    ]
