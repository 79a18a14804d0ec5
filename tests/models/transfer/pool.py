"""Tables of an emulated pool's transfers."""

from __future__ import annotations

from functools import cache

import polars as pl

from benchmarks.estimators.emulated_links import (
    BLOCK_TOKENS,
    FACTS,
    KV_BYTES_PER_TOKEN,
    UPLINKS,
    Links,
    log,
    prompts,
    run,
)
from features.transfers import transfers

SLOW_PORT = Links(port_factor={"out:p1": 0.5}, descriptor_s=4e-6, descriptors_per_block=8.0, wire_frac=0.5)
OVERLAPPED = Links(overlap_frac=0.7, last_frac=1 / 40)
QUIET = Links(handshake_s=0.3)


@cache
def table(name: str, seed: int = 1, count: int = 2500, per_second: float = 12.0) -> pl.DataFrame:
    """Transfers of one of the pools above."""
    links = {"slow port": SLOW_PORT, "overlapped": OVERLAPPED, "quiet": QUIET}[name]
    asked = prompts(seed, count, per_second=per_second, resident=True)
    return transfers(
        log(asked, run(links, asked, seed)),
        FACTS,
        UPLINKS,
        kv_bytes_per_token=KV_BYTES_PER_TOKEN,
        block_tokens=BLOCK_TOKENS,
    )
