"""`sglang-loads`: answers of SGLang's `GET /v1/loads` (0.5.9 to 0.5.23), one row a DP rank of an answer.

A line is {polled_at_us, target, status, body} as `routecal record loads` writes it, or a body as it was answered: then
the answer's own time counts and the file's name is the worker. SGLang counts tokens, so `block_tokens` is 1. Its used
tokens include those that a transfer will fill and leave out evictable prefix: `free_blocks` holds that prefix,
`reclaimable_blocks` is unknown. A value of -1 or null, or one that is absent, is unknown; a rank without capacity has
not started and gives no row. Not kept: sizes of weights, speculation, LoRA slots, the `aggregate` of older versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from features.readers.base import Batch, ReadContext, Reader, most_have, without_null
from features.readers.conform import misfit
from features.readers.head import Head
from features.readers.lines import ROW, BadLine, Form, Parsed
from features.readers.objects import decode_objects
from features.readers.one_document import document_over_lines
from features.readers.picked_lines import Kind, Pick, read_picked
from features.readers.prometheus_polls import is_scrape
from features.readers.prometheus_text import stem
from features.readers.sglang_ranks import LOAD, samples

_OK = 200
_LOADS = pl.List(pl.Struct(LOAD))
_POLL: dict[str, Any] = {
    "polled_at_us": pl.Int64(),
    "target": pl.String(),
    "status": pl.Int64(),
    "body": pl.Struct({"loads": _LOADS}),
}
_BARE: dict[str, Any] = {"timestamp": pl.String(), "loads": _LOADS}
_SCHEMA = {**_POLL, **_BARE}
_ISO = "%Y-%m-%dT%H:%M:%S%.f%#z"


def _sniff(head: Head) -> str:
    objects = head.objects
    if most_have(objects, "timestamp", "loads", without=("polled_at_us", "body")):
        return "lines are answers of /v1/loads (timestamp, loads)"
    if not most_have(objects, "polled_at_us", "target", "status", "body"):
        return ""
    if any(isinstance(value.get("body"), str) and is_scrape(value) for value in objects):
        return ""
    bodies = [value["body"] for value in objects if isinstance(value.get("body"), dict) and value.get("status") == _OK]
    answered = [body for body in bodies if "error" not in body]  # what the recorder puts for an answer that is no JSON
    if answered and not any("loads" in body for body in answered):
        return ""
    return "lines are polls (polled_at_us, target, status, body) whose body has loads"


def _repair(value: dict[str, Any]) -> None:
    """The body of a failed poll is whatever the target or a proxy said; nothing is read from it."""
    if "polled_at_us" in value and value.get("status") != _OK:
        value["body"] = None
        value["status"] = None


_PICK = Pick((Kind(('"polled_at_us"',), Form(_POLL, _repair)), Kind((), Form(_BARE))))
"""To look for an answer's fields in polls as well would cost as much again."""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    document = document_over_lines(path)
    if document is not None:
        yield _batch(_one(document), context)
        return
    for picked in read_picked(path, _PICK):
        yield _batch(Parsed(picked.frame, picked.bad), context)


def _one(document: dict[str, Any]) -> Parsed:
    _repair(document)
    wrong = misfit(document, _SCHEMA)
    held = [] if wrong else [json.dumps({name: document.get(name) for name in _SCHEMA})]
    frame = decode_objects(pa.array(held, pa.string()), _SCHEMA).frame
    bad = [BadLine(1, f"{wrong}|type")] if wrong else []
    return Parsed(frame.with_columns(pl.lit(1, pl.Int64).alias(ROW)), bad)


def _batch(parsed: Parsed, context: ReadContext) -> Batch:
    frame, nameless = without_null(_polls(parsed.frame, context), "target")
    failed = (pl.col("status") != _OK).fill_null(value=True)
    answered = frame.filter(~failed)
    filled = answered.filter(pl.col("loads").list.len().fill_null(0) > 0)
    rows, not_started = samples(filled)
    skipped = {
        "failed_poll": frame.height - answered.height,
        "no_loads": answered.height - filled.height,
        "not_started": not_started,
    }
    return Batch(rows, sorted([*parsed.bad, *nameless], key=lambda line: line.row), skipped)


def _polls(frame: pl.DataFrame, context: ReadContext) -> pl.DataFrame:
    """Columns polled_at_us, target, status, loads and ROW; a bare answer was answered, by whom its file's name says."""
    bare = pl.col("polled_at_us").is_null() & pl.col("loads").is_not_null()
    told = pl.col("timestamp").str.to_datetime(_ISO, time_unit="us", time_zone="UTC", strict=False)
    return frame.select(
        pl.when(bare).then(told.dt.epoch("us")).otherwise("polled_at_us").alias("polled_at_us"),
        pl.when(bare).then(pl.lit(stem(context.file))).otherwise("target").alias("target"),
        pl.when(bare).then(pl.lit(_OK, pl.Int64)).otherwise("status").alias("status"),
        pl.coalesce(pl.col("body").struct.field("loads"), "loads").alias("loads"),
        ROW,
    )


READER = Reader("sglang-loads", "node_loads", "answers of SGLang /v1/loads, recorded or bare", _sniff, _read)
