"""Synthetic days of the pool in `laws`: rows that resemble their neighbours, and drift on demand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from models.honesty.cache import hit_blocks
from models.honesty.day import DayTables
from models.portable import arrays
from models.portable.cache import CacheLaw
from models.portable.estimators import Estimators

DAY_US = 86_400_000_000
BLOCK = 16
CHAINS, CHAIN_BLOCKS = 12, 8


@dataclass(frozen=True, slots=True)
class Drift:
    """Factors on the truth: seconds by node, seconds by port, tokens by app; blocks of each cache."""

    node: dict[str, float] = field(default_factory=dict)
    port: dict[str, float] = field(default_factory=dict)
    app: dict[str, float] = field(default_factory=dict)
    cache_blocks: float = 60.0
    apps: tuple[str, ...] = ("a", "b")


def wander(rng: np.random.Generator, rows: int, *, own: float, slow: float, keep: float = 0.9) -> np.ndarray:
    """Log-normal noise: `own` spread of each row, on a level of spread `slow` that changes slowly; shape (rows,)."""
    from scipy.signal import lfilter

    steps = rng.normal(0.0, slow * np.sqrt(1.0 - keep * keep), rows)
    steps[:1] = rng.normal(0.0, slow)
    level: np.ndarray = lfilter([1.0], [1.0, -keep], steps)
    return np.exp(level + rng.normal(0.0, own, rows))


def day(pool: Estimators, seed: int, drift: Drift | None = None, *, rows: int = 400) -> DayTables:
    """A day of `rows` rows a table and group."""
    rng, drift = np.random.default_rng(seed), drift or Drift()
    return DayTables(
        lengths=_lengths(rng, drift, 4 * rows),
        prefill_steps=_prefill(rng, pool, drift, 2 * rows),
        decode_steps=_decode(rng, pool, drift, 2 * rows),
        transfers=_transfers(rng, pool, drift, 2 * rows),
        prompts=_prompts(rng, drift, rows),
        block_tokens=BLOCK,
    )


def _times(rng: np.random.Generator, rows: int) -> np.ndarray:
    return np.sort(rng.integers(0, DAY_US, rows))


def _lengths(rng: np.random.Generator, drift: Drift, rows: int) -> pl.DataFrame:
    at, app = _times(rng, rows), rng.choice(drift.apps, rows)
    factor = np.array([drift.app.get(name, 1.0) for name in app.tolist()])
    output = np.maximum(1, np.rint(150.0 * factor * wander(rng, rows, own=0.6, slow=0.08, keep=0.99))).astype(np.int64)
    return pl.DataFrame({
        "arrived_at_us": at, "ended_at_us": at + 30_000_000, "slo_class": ["chat"] * rows, "app": app, "tenant": app,
        "prompt_tokens": rng.integers(10, 4000, rows), "output_tokens": output, "censored": [False] * rows,
    })  # fmt: skip


def _seconds(rng: np.random.Generator, node: np.ndarray, drift: Drift, own: float) -> np.ndarray:
    found = np.zeros(len(node))
    for name in sorted(set(node.tolist())):
        mine = node == name
        found[mine] = wander(rng, int(mine.sum()), own=own, slow=0.02) * drift.node.get(name, 1.0)
    return found


def _prefill(rng: np.random.Generator, pool: Estimators, drift: Drift, rows: int) -> pl.DataFrame:
    node, tokens = rng.choice(["p0", "p1"], rows), rng.integers(50, 4000, rows)
    x = tokens.astype(np.float64)
    seconds = arrays.by_node(
        pool.prefill, node.tolist(), lambda law, at: arrays.prefill_s(law, x[at], 0.0 * x[at], 0.0 * x[at])
    )
    busy = seconds * _seconds(rng, node, drift, 0.1) * 1e6
    return pl.DataFrame({
        "node": node, "started_at_us": _times(rng, rows), "n_steps": [1] * rows, "busy_us": busy, "new_tokens": tokens,
        "sum_t2": tokens * tokens, "sum_chunk_context": [0] * rows, "prompts": [1] * rows,
    })  # fmt: skip


def _decode(rng: np.random.Generator, pool: Estimators, drift: Drift, rows: int) -> pl.DataFrame:
    node, size = rng.choice(["d0", "d1"], rows), rng.uniform(1.0, 60.0, rows)
    tokens = size * 1000.0
    seconds = arrays.by_node(pool.decode, node.tolist(), lambda law, at: arrays.decode_s(law, size[at], tokens[at]))
    busy = seconds * _seconds(rng, node, drift, 0.08) * 1e6
    return pl.DataFrame({
        "node": node, "observed_at_us": _times(rng, rows), "n_steps": [1] * rows, "busy_us": busy, "sequences": size,
        "tokens": tokens,
    })  # fmt: skip


def _transfers(rng: np.random.Generator, pool: Estimators, drift: Drift, rows: int) -> pl.DataFrame:
    p, d = rng.choice(["p0", "p1"], rows), rng.choice(["d0", "d1"], rows)
    sent, share = rng.lognormal(18.0, 1.0, rows), rng.choice([6e9, 1.2e10], rows)
    path = np.where((p == "p0") == (d == "d0"), "local", "cross")
    ports = zip(p.tolist(), d.tolist(), strict=True)
    factor = np.array([drift.port.get(f"out:{a}", 1.0) * drift.port.get(f"in:{b}", 1.0) for a, b in ports])
    seconds = arrays.transfer_s(pool.transfer, path.tolist(), sent, share / factor, np.zeros(rows))
    return pl.DataFrame({
        "path": path, "prefill_node": p, "decode_node": d, "started_at_us": _times(rng, rows),
        "duration_us": seconds * wander(rng, rows, own=0.15, slow=0.02) * 1e6, "bytes": sent,
        "share_bytes_per_s": share,
    })  # fmt: skip


def _prompts(rng: np.random.Generator, drift: Drift, rows: int) -> pl.DataFrame:
    """Prompts that begin like one of a few chains and end in blocks of their own."""
    at, node = _times(rng, rows), rng.choice(["p0", "p1"], rows)
    chain, length = rng.integers(0, CHAINS, rows), rng.integers(1, CHAIN_BLOCKS + 1, rows)
    blocks = [
        [int(c) * 100 + j for j in range(n)] + [10**6 + 10 * k, 10**6 + 10 * k + 1]
        for k, (c, n) in enumerate(zip(chain.tolist(), length.tolist(), strict=True))
    ]
    prompt = [len(of) * BLOCK + 5 for of in blocks]
    cached = np.zeros(rows, np.int64)
    for name in ("p0", "p1"):
        mine = np.flatnonzero(node == name)
        found = hit_blocks(
            CacheLaw(drift.cache_blocks), at[mine].tolist(), (at[mine] + 10).tolist(), [blocks[k] for k in mine],
            [len(blocks[k]) for k in mine],
        )  # fmt: skip
        cached[mine] = np.array(found)[:, 0] * BLOCK
    gone = rng.uniform(size=rows) < 0.02  # what else may cost a hit
    return pl.DataFrame({
        "node": node, "started_at_us": at, "finished_at_us": at + 10, "prompt_tokens": prompt,
        "cached_tokens": np.where(gone, 0, cached), "blocks": blocks,
    })  # fmt: skip
