"""Synthetic training tables of any size: 30 nodes, 3 classes × 8 applications, ten days."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from features.tables import length_table
from features.transfers import transfers

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

P_NODES, D_NODES, RACKS = 15, 15, 3
CLASSES, APPS = ("interactive", "standard", "long_context"), 8
DAYS, DAY_US = 10, 86_400_000_000
PORT, UPLINK = 25e9, 50e9  # bytes/s
KV_BYTES = 327_680  # a token
NOISE = 0.1


def lengths(rng: np.random.Generator, rows: int) -> pl.DataFrame:
    """Training rows of answers: log-normal by app and prompt, in sessions of some turns."""
    app = rng.choice(APPS, rows, p=_shares(APPS))
    prompt = np.clip(rng.lognormal(6.0 + 0.4 * app, 1.0), 1, 100_000).astype(np.int64)
    output = rng.lognormal(4.0 + 0.3 * (app % 4) + 0.1 * np.log1p(prompt), 0.7)
    most = rng.choice([512, 1024, 4096, 8192], rows)
    cut = output >= most
    arrived = np.sort(rng.integers(0, DAYS * DAY_US, rows))
    answer = np.where(cut, most, output + 1).astype(np.int64)
    requests = pl.DataFrame(
        {
            "request_id": pl.Series(np.arange(rows)).cast(pl.String),
            "arrived_at_us": arrived,
            "finished_at_us": arrived + answer * 20_000,
            "slo_class": pl.Series(np.digitize(prompt, (4000, 16_000))).replace_strict(
                list(range(3)), list(CLASSES), return_dtype=pl.String
            ),
            "app": pl.Series(app).replace_strict(
                list(range(APPS)), [f"app{k}" for k in range(APPS)], return_dtype=pl.String
            ),
            "session_id": pl.Series(rng.integers(0, max(1, rows // 4), rows)).cast(pl.String),
            "prompt_tokens": prompt,
            "output_tokens": answer,
            "max_output_tokens": most,
            "finish_reason": pl.Series(cut).replace_strict([True, False], ["length", "stop"], return_dtype=pl.String),
            "prefill_cached_tokens": (prompt * rng.beta(1, 2, rows)).astype(np.int64),
        }
    ).with_columns(
        tenant=pl.lit(None, pl.String),
        model=pl.lit("m"),
        block_hashes=pl.lit(None, pl.List(pl.UInt64)),
        block_tokens=pl.lit(None, pl.Int64),
        block_hash_scope=pl.lit(None, pl.String),
    )
    return length_table(requests)


def prefill_steps(rng: np.random.Generator, rows: int) -> pl.DataFrame:
    """Runs of 1 to 4 steps of up to 8,192 new tokens."""
    node, speed = _nodes(rng, rows, "p", P_NODES)
    steps = rng.choice(4, rows, p=(0.7, 0.15, 0.1, 0.05)) + 1
    last = np.exp(rng.uniform(np.log(32), np.log(8192), rows))
    tokens = last + (steps - 1) * 8192
    squares = last**2 + (steps - 1) * 8192.0**2
    context = np.where(rng.random(rows) < 0.5, 0.0, tokens * rng.uniform(0, 30_000, rows))
    seconds = 0.015 * steps + 1.45e-5 * tokens + 3e-10 * squares + 1.2e-10 * context
    return pl.DataFrame(
        {
            "node": node,
            "started_at_us": np.sort(rng.integers(0, DAYS * DAY_US, rows)),
            "busy_us": seconds * speed * rng.lognormal(0, NOISE, rows) * 1e6,
            "n_steps": steps,
            "prompts": steps + rng.poisson(1.0, rows),
            "new_tokens": tokens,
            "sum_t2": squares,
            "sum_chunk_context": context,
            "last_tokens": last,
        }
    )


def decode_steps(rng: np.random.Generator, rows: int) -> pl.DataFrame:
    """Windows of a second between two polls."""
    node, speed = _nodes(rng, rows, "d", D_NODES)
    sequences = np.exp(rng.uniform(0, np.log(192), rows))
    tokens = sequences * rng.lognormal(8.0, 0.4, rows)
    seconds = (0.0068 + 4e-5 * sequences + 6.2e-8 * np.minimum(tokens, 786_432)) * speed
    steps = np.maximum(1, 1.0 / seconds).astype(np.int64)
    return pl.DataFrame(
        {
            "observed_at_us": np.sort(rng.integers(0, DAYS * DAY_US, rows)),
            "node": node,
            "phase": "decode",
            "n_steps": steps,
            "busy_us": (seconds * steps * rng.lognormal(0, NOISE, rows) * 1e6).astype(np.int64),
            "sequences": sequences,
            "tokens": tokens,
            "new_tokens": (sequences * steps).astype(np.int64),
            "context_tokens": pl.Series([None] * rows, dtype=pl.Float64),
            "source": "decode_moments",
            "interval_us": 1_000_000,
            "sequences_sq": sequences**2,
            "sequences_busy": sequences * seconds * 1e6,
        }
    )


def transfers_table(rng: np.random.Generator, rows: int) -> pl.DataFrame:
    """Transfers of three racks; a port is busy a third of the time."""
    p, d = rng.integers(0, P_NODES, rows), rng.integers(0, D_NODES, rows)
    tokens = np.clip(rng.lognormal(7.5, 1.0, rows), 64, 100_000).astype(np.int64)
    size = tokens * KV_BYTES
    alone = 0.002 + size / (0.9 * PORT)
    started = np.sort(rng.uniform(0, rows * float(alone.mean()) / (P_NODES * 0.33), rows))
    took = alone * (1 + rng.poisson(0.3, rows)) * rng.lognormal(0, NOISE, rows)
    start_us = (started * 1e6).astype(np.int64)
    end_us = start_us + (took * 1e6).astype(np.int64) + 1
    requests = pl.DataFrame(
        {
            "request_id": pl.Series(np.arange(rows)).cast(pl.String),
            "prefill_node": _names(p, "p", P_NODES),
            "decode_node": _names(d, "d", D_NODES),
            "prompt_tokens": tokens,
            "prefill_started_at_us": start_us - 200_000,
            "prefill_finished_at_us": start_us,
            "transfer_started_at_us": start_us,
            "transfer_finished_at_us": end_us,
            "transferred_bytes": size,
        }
    ).with_columns(decode_resident_tokens=pl.lit(None, pl.Int64), transfer_descriptors=pl.lit(None, pl.Int64))
    nodes = [*(("p", k) for k in range(P_NODES)), *(("d", k) for k in range(D_NODES))]
    facts = {f"{role}{k}/dp0": (f"rack{k % RACKS}", PORT) for role, k in nodes}
    uplinks = {(f"rack{a}", f"rack{b}"): UPLINK for a in range(RACKS) for b in range(RACKS) if a != b}
    return transfers(requests, facts, uplinks)


MAKERS = {
    "lengths": lengths,
    "prefill_steps": prefill_steps,
    "decode_steps": decode_steps,
    "transfers": transfers_table,
}
"""Training table -> what makes so many rows of it."""


def _shares(count: int) -> Float64:
    share = 1.0 / np.arange(1, count + 1)
    return np.asarray(share / share.sum(), np.float64)


def _nodes(rng: np.random.Generator, rows: int, role: str, count: int) -> tuple[pl.Series, Float64]:
    """A node for each row, and how slow it is."""
    node = rng.integers(0, count, rows)
    return _names(node, role, count), rng.lognormal(0, 0.05, count)[node]


def _names(node: Int64, role: str, count: int) -> pl.Series:
    return pl.Series(node).replace_strict(
        list(range(count)), [f"{role}{k}/dp0" for k in range(count)], return_dtype=pl.String
    )
