"""`mooncake-delta`: Mooncake rows of sessions whose lengths are differences from turn to turn.

Source: NVIDIA Dynamo's replay, trace format mooncake-delta: {request_id, session_id, timestamp, delay, input_length,
output_length, hash_ids}, milliseconds, 512-token blocks. A turn's prompt is the one before it, its output and the
`input_length` new tokens. `timestamp` is there on a session's first turn; a later one has `delay`, the time after the
answer before it. When that answer ended is not in the trace, so such a turn arrives at the earliest time that it can:
the arrival of the turn before it plus `delay`. The loop is closed: arrivals hold for a pool that answers at once.

Hash ids name the new tokens only. Whole blocks of a first turn keep theirs, which sessions share; a later block mixes
old and new tokens, so it gets an id of its session and its place. Of each open session a few numbers and the first
turn's ids are held; beyond SESSIONS_MAX the longest unseen is forgotten, and later turns of it are bad lines.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, most_have
from features.readers.head import Head
from features.readers.lines import ROW, BadLine, read_lines
from features.readers.mooncake import BLOCK_TOKENS
from features.readers.traces import row_ids, start_us
from features.readers.units import MS_US, whole_us

SESSIONS_MAX = 200_000
_SCHEMA: dict[str, Any] = {
    "request_id": pl.String,
    "session_id": pl.String,
    "timestamp": pl.Float64,
    "delay": pl.Float64,
    "input_length": pl.Int64,
    "output_length": pl.Int64,
    "hash_ids": pl.List(pl.UInt64),
}
_OPEN: dict[str, Any] = {
    "key": pl.Int64,
    "held_tokens": pl.Int64,
    "arrived_us": pl.Int64,
    "first_ids": pl.List(pl.UInt64),
    "seen": pl.Int64,
}
_ID_BITS = 62
_BLOCKS_MAX = 1 << 16
"""No prompt has as many blocks: a longer one is a damaged number, and no list is made of it."""
_OTHERS = ("dependencies", "wait_for", "chat_id")


def _sniff(head: Head) -> str:
    if not most_have(head.objects, "session_id", "input_length", "output_length", without=_OTHERS):
        return ""
    sessions: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for value in head.objects:
        sessions[str(value.get("session_id"))].append(value)
    # Rows of whole prompts look the same, but there a later turn starts with the first one's first block.
    told = [_same_start(turns[0], turn) for turns in sessions.values() for turn in turns[1:]]
    if False in told and True not in told:
        return "lines have session_id, input_length and output_length, and later turns hold new tokens only"
    return ""


def _same_start(first: dict[str, Any], turn: dict[str, Any]) -> bool | None:
    """Whether two turns start with the same whole block; None if nothing tells."""
    ids, later, tokens = first.get("hash_ids"), turn.get("hash_ids"), first.get("input_length")
    if not (isinstance(ids, list) and isinstance(later, list) and isinstance(tokens, int)):
        return None
    return ids[0] == later[0] if ids and later and tokens >= BLOCK_TOKENS else None


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    starts_at_us = start_us(path, context)
    held = pl.DataFrame(schema=_OPEN)
    forgotten = pl.Series("key", [], dtype=pl.Int64)
    for parsed in read_lines(path, _SCHEMA):
        keyed = parsed.frame.with_columns(_keys(parsed.frame, context.file))
        lost = keyed["key"].is_in(forgotten.implode()) if len(forgotten) else pl.repeat(False, keyed.height, eager=True)
        bad = [BadLine(row, "session_forgotten") for row in keyed.filter(lost)[ROW]]
        turns = _turns(keyed.filter(~lost), held, starts_at_us)
        held = _held(turns, held)
        if held.height > SESSIONS_MAX:
            oldest = held.sort("seen").head(held.height - SESSIONS_MAX)
            forgotten = pl.concat([forgotten, oldest["key"]])
            held = held.join(oldest.select("key"), on="key", how="anti")
        yield Batch(_requests(turns, context), sorted([*parsed.bad, *bad], key=lambda line: line.row))


def _keys(rows: pl.DataFrame, file: str) -> pl.Series:
    """A number for each session; a row without one is a session of its own."""
    labels = rows.select(pl.coalesce("session_id", pl.format("\n{}", ROW))).to_series()
    keys = {label: _key(f"{file}\n{label}") for label in labels.unique()}
    return labels.replace_strict(keys, return_dtype=pl.Int64).cast(pl.Int64).alias("key")


def _key(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    # Above every id of the trace; room for the places of the session's blocks below int64's end.
    return (int.from_bytes(digest, "little") >> (64 - _ID_BITS)) | (1 << 40)


def _turns(rows: pl.DataFrame, held: pl.DataFrame, starts_at_us: int) -> pl.DataFrame:
    """Rows with whole prompts, arrivals, and the ids of the session's first whole blocks (`first_ids`)."""
    joined = rows.join(held, on="key", how="left", maintain_order="left")
    stamp = whole_us(pl.col("timestamp"), MS_US) + starts_at_us
    timed = joined.with_columns(
        opens=pl.col("seen").is_null() & (pl.int_range(pl.len()).over("key") == 0),
        stamp=stamp,
        wait=pl.when(pl.col("timestamp").is_null()).then(whole_us(pl.col("delay"), MS_US)).otherwise(0),
    ).with_columns(part=pl.col("stamp").is_not_null().cum_sum().over("key"))
    new, made, wait = (_known(name) for name in ("input_length", "output_length", "wait"))
    is_open = pl.col("seen").is_not_null()
    before = pl.when(is_open).then("held_tokens").otherwise(0)
    whole_ids = pl.col("hash_ids").list.head((new // BLOCK_TOKENS).clip(0))
    # A length or delay that is unknown leaves every later one of its session unknown.
    lengths_known = ~(new.is_null() | made.is_null().shift(1, fill_value=False)).cum_max().over("key")
    waits_known = ~wait.is_null().cum_max().over("key", "part")
    base = pl.when(pl.col("part") == 0).then("arrived_us").otherwise(pl.col("stamp").first().over("key", "part"))
    waited = pl.when(pl.col("stamp").is_null()).then(wait).otherwise(0).cum_sum().over("key", "part")
    return timed.with_columns(
        prompt_tokens=pl.when(lengths_known).then(before + (new + made.shift(1, fill_value=0)).cum_sum().over("key")),
        arrived_at_us=pl.when(waits_known).then(base + waited),
        first_ids=pl.when(is_open).then("first_ids").otherwise(whole_ids.first().over("key")),
    ).drop("held_tokens", "arrived_us", "part", "stamp", "wait", "seen")


def _known(name: str) -> pl.Expr:
    return pl.when(pl.col(name) >= 0).then(name)


def _held(turns: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """What is to be known of each session for its next turn."""
    last = turns.filter(pl.col("session_id").is_not_null()).unique("key", keep="last", maintain_order=True)
    now = last.select(
        "key",
        (pl.col("prompt_tokens") + pl.col("output_length")).alias("held_tokens"),
        pl.col("arrived_at_us").alias("arrived_us"),
        pl.col("first_ids").fill_null([]),
        pl.col(ROW).alias("seen"),
    )
    return pl.concat([held.join(now.select("key"), on="key", how="anti"), now])


def _requests(turns: pl.DataFrame, context: ReadContext) -> pl.DataFrame:
    shared = pl.col("first_ids").list.len().cast(pl.Int64)
    whole = pl.col("prompt_tokens") // BLOCK_TOKENS
    own = pl.int_ranges(
        pl.col("key") + shared, pl.col("key") + pl.max_horizontal(shared, pl.when(whole <= _BLOCKS_MAX).then(whole))
    )
    later = pl.concat_list("first_ids", own.cast(pl.List(pl.UInt64)))
    hashed = pl.col("hash_ids").is_not_null() & (whole <= _BLOCKS_MAX)
    hashes = pl.when("opens").then("hash_ids").when(hashed).then(later)
    return turns.select(
        pl.coalesce("request_id", row_ids(context)).alias("request_id"),
        pl.lit(context.pool).alias("pool"),
        "arrived_at_us",
        "session_id",
        "prompt_tokens",
        pl.col("output_length").alias("output_tokens"),
        pl.lit(BLOCK_TOKENS, pl.Int64).alias("block_tokens"),
        hashes.alias("block_hashes"),
        pl.lit(context.file).alias("block_hash_scope"),
        ROW,
    )


READER = Reader(
    "mooncake-delta", "requests", "Mooncake sessions, lengths from turn to turn", _sniff, _read, needs_start=True
)
