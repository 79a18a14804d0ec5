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

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
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
    "session": pl.String,
    "first_row": pl.Int64,
    "first_ids": pl.List(pl.UInt64),
    "held_tokens": pl.Int64,
    "arrived_us": pl.Int64,
    "seen": pl.Int64,
}
_OWN_IDS = 1 << 40
"""Ids of blocks that a session has for itself start here, above every id of a trace."""
_BLOCKS_MAX = 1 << 16
"""No prompt has as many blocks: a longer one is a damaged number, and no list is made of it."""
_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
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
    turns: pl.DataFrame | None = None
    forgotten = pl.Series("forgotten", [], dtype=pl.UInt64)
    for parsed in read_lines(path, _SCHEMA):
        if turns is not None:  # what the last lines leave nobody asks for
            held = _held(turns, held)
            if held.height > SESSIONS_MAX:
                held = held.sort("seen", descending=True)
                forgotten = pl.concat([forgotten, held.slice(SESSIONS_MAX)["session"].hash().alias("forgotten")])
                held = held.head(SESSIONS_MAX)
        rows = parsed.frame.with_columns(session=pl.col("session_id"))
        if rows["session"].null_count():  # such a row is a session of its own
            rows = rows.with_columns(session=pl.coalesce("session", pl.format("\n{}", ROW)))
        bad: list[BadLine] = []
        if len(forgotten):
            lost = rows["session"].hash().is_in(forgotten.implode())
            bad = [BadLine(row, "session_forgotten") for row in rows.filter(lost)[ROW]]
            rows = rows.filter(~lost)
        turns = _turns(rows, held, starts_at_us)
        yield Batch(_requests(turns, context), sorted([*parsed.bad, *bad], key=lambda line: line.row))


def _turns(rows: pl.DataFrame, held: pl.DataFrame, starts_at_us: int) -> pl.DataFrame:
    """Rows with whole prompts, arrivals, and the ids of their session's first whole blocks (`first_ids`)."""
    whole_ids = pl.col("hash_ids").list.head((pl.col("input_length") // BLOCK_TOKENS).clip(0))
    sessions = (
        rows.group_by("session")
        .agg(pl.col(ROW).first().alias("opened"), whole_ids.first().alias("ids"))
        .join(held, on="session", how="left")
        .select(
            "session",
            pl.coalesce("first_row", "opened").alias("first_row"),
            pl.when(pl.col("seen").is_null()).then("ids").otherwise("first_ids").alias("first_ids"),
            pl.when(pl.col("seen").is_null()).then(0).otherwise("held_tokens").alias("held_tokens"),
            "arrived_us",
        )
    )
    stamp = whole_us(pl.col("timestamp"), MS_US, since_us=starts_at_us)
    wait = pl.when(pl.col("timestamp").is_null()).then(whole_us(pl.col("delay"), MS_US)).otherwise(0)
    joined = rows.join(sessions, on="session", how="left", maintain_order="left")
    first = joined["first_row"].to_numpy()
    # Sums run over a session's rows: numbers are put side by side, lists stay where they are.
    order = np.argsort(first, kind="stable")
    turns = joined.select(
        "input_length", "output_length", "held_tokens", "arrived_us", stamp.alias("stamp"), wait.alias("wait")
    )[order]
    opens = np.append(True, np.diff(first[order]) != 0)[: turns.height]
    new, new_known = _known(turns["input_length"])
    made, made_known = _known(turns["output_length"])
    made, made_known = np.where(opens, 0, np.roll(made, 1)), opens | np.roll(made_known, 1)
    before, before_known = _known(turns["held_tokens"])
    # A length or wait that is unknown leaves every later one of its session unknown.
    prompts = before + _sums(new + made, opens)
    lengths_known = before_known & (_sums(~(new_known & made_known), opens) == 0)
    given, is_given = _known(turns["stamp"])
    waits, wait_known = _known(turns["wait"])
    anew = opens | is_given
    carried, is_carried = _known(turns["arrived_us"])
    base = np.where(is_given, given, carried)[_starts(anew)]
    arrivals = base + _sums(np.where(is_given, 0, waits), anew)
    times_known = (is_given | is_carried)[_starts(anew)] & (_sums(~(wait_known | is_given), anew) == 0)
    return joined.drop("held_tokens", "arrived_us").with_columns(
        _back("prompt_tokens", prompts, lengths_known, order),
        _back("arrived_at_us", arrivals, times_known, order),
        opens=pl.col(ROW) == pl.col("first_row"),
    )


def _back(name: str, values: _Ints, known: _Flags, order: _Ints) -> pl.Series:
    """Values in the order of the log, null where unknown."""
    placed, unknown = np.empty_like(values), np.empty_like(known)
    placed[order], unknown[order] = values, ~known
    return pl.Series(name, placed, dtype=pl.Int64).set(pl.Series(unknown), None)


def _known(values: pl.Series) -> tuple[_Ints, _Flags]:
    """Numbers and which of them are known; a negative one is no length and no wait."""
    known = ((values >= 0) & values.is_not_null()).fill_null(value=False)
    return values.fill_null(0).to_numpy(), known.to_numpy()


def _starts(begins: _Flags) -> _Ints:
    """For each row, the place at which its run begins."""
    return np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))


def _sums(values: _Ints | _Flags, begins: _Flags) -> _Ints:
    """Running sums that start anew where `begins`."""
    sums = np.cumsum(values, dtype=np.int64)
    before = sums - values
    return sums - before[_starts(begins)]


def _held(turns: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """What is to be known of each session for its next turn."""
    last = turns.filter(pl.col("session_id").is_not_null()).unique("session", keep="last")
    now = last.select(
        "session",
        "first_row",
        pl.col("first_ids").fill_null([]),
        (pl.col("prompt_tokens") + _length("output_length")).alias("held_tokens"),
        pl.col("arrived_at_us").alias("arrived_us"),
        pl.col(ROW).alias("seen"),
    )
    return pl.concat([held.join(now.select("session"), on="session", how="anti"), now])


def _length(name: str) -> pl.Expr:
    return pl.when(pl.col(name) >= 0).then(name)


def _requests(turns: pl.DataFrame, context: ReadContext) -> pl.DataFrame:
    shared = pl.col("first_ids").list.len().cast(pl.Int64)
    whole = pl.col("prompt_tokens") // BLOCK_TOKENS
    places = pl.max_horizontal(shared, pl.when(whole <= _BLOCKS_MAX).then(whole))
    base = _OWN_IDS + pl.col("first_row") * (2 * _BLOCKS_MAX)
    own = pl.int_ranges(base + shared, base + places)
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
