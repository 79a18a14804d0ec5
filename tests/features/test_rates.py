from __future__ import annotations

from typing import Any

import polars as pl

from features.rates import kv_rates
from features.schemas import with_all_columns

START_US = 1_767_571_200_000_000
S = 1_000_000


def loads(*rows: tuple[int, int | None, int | None]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=["at", "generated_tokens", "active_blocks"], orient="row")
    return with_all_columns(
        "node_loads",
        frame.with_columns(
            observed_at_us=START_US + pl.col("at") * S, node=pl.lit("d0"), role=pl.lit("decode"), block_tokens=16
        ),
    )


def joined(*rows: tuple[int, int]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema={"at": pl.Int64, "prompt_tokens": pl.Int64}, orient="row")
    return with_all_columns(
        "requests", frame.with_columns(decode_admitted_at_us=START_US + pl.col("at"), decode_node=pl.lit("d0"))
    )


def rows(found: pl.DataFrame) -> list[tuple[Any, ...]]:
    return found.select("admitted_blocks", "growth_blocks_per_s", "release_blocks_per_s").rows()


def test_growth_and_release_between_samples() -> None:
    found = kv_rates(
        loads((0, 0, 100), (2, 320, 130), (3, 320, 130)), joined((1, 160), (2 * S, 161), (2 * S + 1, 16), (9 * S, 5))
    )
    # 10 + 11 blocks joined, 20 grew, 30 more are active: 11 were given back in 2 s.
    assert rows(found) == [(21, 10.0, 5.5), (1, 0.0, 1.0)]


def test_what_is_unknown_or_fell_gives_no_rate() -> None:
    assert rows(kv_rates(loads((0, 0, 10), (1, 16, 11)), joined())) == [(None, 1.0, None)]
    assert rows(kv_rates(loads((0, 50, 10), (1, 16, None)), joined((1, 16)))) == [(1, None, None)]
    assert kv_rates(loads((0, 0, 10)), joined()).is_empty()
