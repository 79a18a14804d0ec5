"""`kv-cache-tester`: agent conversations with block hashes and timings, one JSON document a conversation.

Source: callanjfox/kv-cache-tester (WEKA), {id, block_size, hash_id_scope, requests[]}; a file may also hold a document
a line. `t` is seconds from the conversation's start, which needs a wall time; `api_time` and `ttft` are seconds from
there. The loop is closed: a turn is sent after the one before it was answered, so times hold for the system that was
recorded only. A sub-agent stands as an entry with requests of its own, which are a session of their own. The hashes of
scope `local` mean something inside their conversation only. `think_time` depends on the answer that it precedes and is
not kept. `source_row` is the number of the request in its document, or the line if there are several documents.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from features.errors import SourceError
from features.readers.base import Batch, ReadContext, Reader, most_have, without_null
from features.readers.conform import misfit
from features.readers.documents import document_bytes, read_document
from features.readers.head import Head
from features.readers.lines import ROW, BadLine, read_lines
from features.readers.objects import decode_objects
from features.readers.plain import whole_lines
from features.readers.traces import start_us, trace_name
from features.readers.units import SECOND_US, whole_us

_GLOBAL = "global"
_GROUP = "subagent"
_REQUEST: dict[str, Any] = {
    "type": pl.String(),
    "t": pl.Float64(),
    "model": pl.String(),
    "in": pl.Int64(),
    "out": pl.Int64(),
    "hash_ids": pl.List(pl.UInt64()),
    "stop": pl.String(),
    "api_time": pl.Float64(),
    "ttft": pl.Float64(),
}
_ENTRY: dict[str, Any] = {**_REQUEST, "agent_id": pl.String(), "requests": pl.List(pl.Struct(_REQUEST))}
_SCHEMA: dict[str, Any] = {
    "id": pl.String(),
    "block_size": pl.Int64(),
    "hash_id_scope": pl.String(),
    "requests": pl.List(pl.Struct(_ENTRY)),
}
_FINISH = {"end_turn": "stop", "tool_use": "stop", "stop_sequence": "stop", "max_tokens": "length"}


def _sniff(head: Head) -> str:
    if most_have(head.objects, "id", "block_size", "hash_id_scope", "requests"):
        return "a conversation has id, block_size, hash_id_scope and requests"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    starts_at_us = start_us(path, context)
    if _one_document(path):
        frame, bad = _document(path)
        yield _batch(frame, bad, context, starts_at_us, by_line=False)
        return
    for parsed in read_lines(path, _SCHEMA):
        yield _batch(parsed.frame, parsed.bad, context, starts_at_us, by_line=True)


def _one_document(path: Path) -> bool:
    """Whether the file is one object, on one line or several."""
    start = next(whole_lines(path)).content.strip()
    first, _, rest = start.partition(b"\n")
    return not rest.strip() or not first.rstrip().endswith(b"}")


def _document(path: Path) -> tuple[pl.DataFrame, list[BadLine]]:
    """One row, and the requests of the document that are none, by their number."""
    content = document_bytes(path).replace(b"\n", b" ")  # a text in JSON has no line break of its own
    if (frame := _decoded(content.decode("utf-8", "replace"))) is not None:
        return frame, []
    value = read_document(path)
    entries = value.get("requests")
    wrong = misfit({**value, "requests": None}, _SCHEMA)
    if wrong or not isinstance(entries, list):
        raise SourceError("a conversation must have its fields", value=wrong or "requests", place=str(path))
    rules = [_entry_rule(entry) for entry in entries]
    bad = [BadLine(number, rule) for number, rule in enumerate(rules, 1) if rule]
    # A request that is none keeps its place, so that the others keep their numbers.
    held = [{} if rule else entry for entry, rule in zip(entries, rules, strict=True)]
    frame = _decoded(json.dumps({**value, "requests": held}))
    if frame is None:
        raise SourceError("a conversation must be JSON", place=str(path))
    return frame, bad


def _entry_rule(entry: Any) -> str:  # noqa: ANN401  any JSON value
    if not isinstance(entry, dict):
        return "json_object"
    wrong = misfit(entry, _ENTRY)
    return f"{wrong}|type" if wrong else ""


def _decoded(text: str) -> pl.DataFrame | None:
    decoded = decode_objects(pa.array([text.lstrip()]), _SCHEMA)
    return None if len(decoded.odd) else decoded.frame.with_columns(pl.lit(1, pl.Int64).alias(ROW))


def _batch(
    conversations: pl.DataFrame, bad: list[BadLine], context: ReadContext, starts_at_us: int, *, by_line: bool
) -> Batch:
    row = ROW if by_line else "number"
    whole, bare = without_null(conversations, "requests")
    entries, empty = _entries(whole)
    if not by_line:
        entries = entries.filter(~pl.col("number").is_in([line.row for line in bad]))
    kind = pl.col("type")
    asked = kind.is_in(["n", "s"]).fill_null(value=False) | (kind.is_null() & pl.col("in").is_not_null())
    nothing = kind.is_null() & pl.col("in").is_null()
    void = [BadLine(number, "requests|nullability") for number in entries.filter(nothing)[row]]
    others = entries.filter(~asked & ~nothing)["type"].value_counts().rows()
    skipped = Counter({_GROUP: empty}) + Counter({str(name): int(count) for name, count in others})
    frame = _requests(entries.filter(asked), context, starts_at_us).with_columns(pl.col(row).alias(ROW))
    return Batch(frame.drop("number"), sorted([*bad, *bare, *void], key=lambda line: line.row), skipped)


def _entries(conversations: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Entries with their `number` in the document, those of sub-agents in their place; how many sub-agents had none."""
    filled = conversations.filter(pl.col("requests").list.len() > 0).rename({"requests": "entry"})
    flat = (
        filled.explode("entry")
        .with_columns(number=pl.int_range(pl.len()).over(ROW) + 1)
        .with_columns(pl.col("entry").struct.unnest())
        .drop("entry")
    )
    group = (pl.col("type") == _GROUP).fill_null(value=False)
    own, groups = flat.filter(~group).drop("requests"), flat.filter(group)
    agents = groups.filter(pl.col("requests").list.len() > 0).drop(*_REQUEST).explode("requests")
    inner = agents.with_columns(pl.col("requests").struct.unnest()).drop("requests")
    every = pl.concat([own, inner.select(own.columns)]).sort(ROW, "number", maintain_order=True)
    empty = groups.select((pl.col("requests").list.len().fill_null(0) == 0).sum()).item()
    return every, empty


def _requests(rows: pl.DataFrame, context: ReadContext, starts_at_us: int) -> pl.DataFrame:
    conversation = pl.col("id").fill_null(trace_name(context))
    local = pl.format("{}/{}", pl.lit(context.file), conversation)
    sent, turn = pl.col("t"), pl.int_range(pl.len()).over(ROW) + 1

    def at(*after: str) -> pl.Expr:
        return whole_us(pl.sum_horizontal(sent, *after, ignore_nulls=False), SECOND_US, since_us=starts_at_us)

    return rows.select(
        pl.format("{}-{}", conversation, turn.cast(pl.String).str.zfill(6)).alias("request_id"),
        pl.lit(context.pool).alias("pool"),
        at().alias("arrived_at_us"),
        pl.when(pl.col("agent_id").is_null())
        .then(conversation)
        .otherwise(pl.format("{}/{}", conversation, "agent_id"))
        .alias("session_id"),
        "model",
        pl.col("in").alias("prompt_tokens"),
        pl.col("out").alias("output_tokens"),
        pl.col("stop").replace_strict(_FINISH, default=None, return_dtype=pl.String).alias("finish_reason"),
        pl.col("block_size").alias("block_tokens"),
        pl.col("hash_ids").alias("block_hashes"),
        pl.when(pl.col("hash_id_scope") == _GLOBAL)
        .then(pl.lit("kv-cache-tester"))
        .otherwise(local)
        .alias("block_hash_scope"),
        at("ttft").alias("first_token_at_us"),
        at("api_time").alias("finished_at_us"),
        "number",
        ROW,
    )


READER = Reader("kv-cache-tester", "requests", "kv-cache-tester conversations", _sniff, _read, needs_start=True)
