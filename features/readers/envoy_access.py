"""`envoy-endpoint-scores`: JSON access logs of Envoy that carry the endpoint picker's dynamic metadata.

The picker (`--emit-endpoint-scores`) puts the weighted total of every candidate into the namespace `envoy.lb` under
`x-gateway-destination-endpoint-scores` and its choice, an ordered list, under `x-gateway-destination-endpoint`. Both
may stand in the log under these names, with `_` for `-`, or inside `envoy.lb` or `dynamic_metadata`; `-` is nothing.
The request header `x-prefiller-host-port` names the P that was picked: log it too, or a PD pool's D look colocated.

Rows of `decision_parts`: `total` an endpoint, `pick` for P. Lines without scores are skipped as `no_scores`, those
without a request id as `no_request_id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from features.readers.base import Batch, ReadContext, Reader
from features.readers.epp_scores import PICK, TOTAL
from features.readers.head import Head
from features.readers.lines import ROW, Form
from features.readers.picked_lines import Kind, Pick, read_picked, time_us

CHOICE = "x-gateway-destination-endpoint"
SCORES, SERVED, PREFILLER = f"{CHOICE}-scores", f"{CHOICE}-served", "x-prefiller-host-port"
_METADATA = ("envoy.lb", "dynamic_metadata")
_IDS = ("x-request-id", "x_request_id", "request_id")
_TIMES = ("start_time", "@timestamp", "timestamp", "time")


def _names(field: str) -> tuple[str, str]:
    return field, field.replace("-", "_")


_FIELDS = tuple(name for field in (SCORES, CHOICE, SERVED, PREFILLER) for name in _names(field))
_SCHEMA = dict.fromkeys((*_IDS, *_TIMES, *_FIELDS, *_METADATA), pl.String())
_PICK = Pick((Kind((), Form(_SCHEMA, loose=frozenset((*_FIELDS, *_METADATA)))),))


def _sniff(head: Head) -> str:
    if any("msg" in value or "resourceSpans" in value for value in head.objects):
        return ""
    fits = sum(any(name in value for name in (*_FIELDS, *_METADATA)) for value in head.objects)
    if fits * 2 > len(head.objects) and re.search("x[-_]gateway[-_]destination[-_]endpoint", head.text):
        return f"lines are an access log with {CHOICE} and its scores"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    del context
    for picked in read_picked(path, _PICK):
        lines = _fields(picked.frame)
        scored = lines.filter(pl.col("scores").str.starts_with("{") & pl.col("scores").str.contains('":', literal=True))
        named = scored.filter(pl.col("request_id").is_not_null() & (pl.col("request_id") != "-"))
        skipped = {"no_scores": lines.height - scored.height, "no_request_id": scored.height - named.height}
        yield Batch(_rows(named), picked.bad, skipped)


def _fields(frame: pl.DataFrame) -> pl.DataFrame:
    """What the lines say under whatever names."""
    # Most names that a field may have are not in a log: only columns that hold something are looked at.
    held = [column.name for column in frame if column.null_count() < frame.height]
    times = [time_us(frame[name]) for name in _TIMES if name in held]

    def field(name: str, value: str = r'"([^"]*)"') -> pl.Expr:
        pattern = rf'"{name.replace("-", "[-_]")}": ?{value}'
        texts: list[pl.Expr] = [pl.col(column) for column in _names(name) if column in held]
        texts += [pl.col(column).str.extract(pattern) for column in _METADATA if column in held]
        known: list[pl.Expr] = [pl.when(~text.is_in(["-", ""])).then(text) for text in texts]
        return pl.coalesce([*known, pl.lit(None, pl.String)])

    return frame.with_columns(times).select(
        pl.coalesce([*(pl.col(name) for name in _IDS if name in held), pl.lit(None, pl.String)]).alias("request_id"),
        pl.coalesce([*(pl.col(column.name) for column in times), pl.lit(None, pl.Int64)]).alias("decided_at_us"),
        field(SCORES, r"(\{[^{}]*\})").alias("scores"),
        pl.coalesce(field(CHOICE), field(SERVED)).str.replace(r",.*$", "").alias("choice"),
        field(PREFILLER).alias("prefiller"),
        ROW,
    )


def _rows(lines: pl.DataFrame) -> pl.DataFrame:
    disaggregated = pl.col("prefiller").is_not_null()
    # A map of addresses to numbers: no commas and quotes but those between them.
    pairs = pl.col("scores").str.strip_chars("{} ").str.split(",")
    pair = pl.col("pair").str.split_exact('":', 1).struct
    totals = (
        lines.with_columns(pairs.alias("pair"))
        .explode("pair")
        .with_columns(
            pair.field("field_0").str.strip_chars(' "').alias("address"),
            pair.field("field_1").str.strip_chars(" ").cast(pl.Float64, strict=False).alias("score"),
        )
        .select(
            "request_id",
            "decided_at_us",
            pl.when(disaggregated).then(pl.lit("decode")).otherwise(pl.lit("colocated")).alias("profile"),
            (pl.col("address") + "/dp0").alias("endpoint"),
            pl.lit(TOTAL).alias("plugin"),
            "score",
            (pl.col("address") == pl.col("choice")).alias("chosen"),
            ROW,
        )
    )
    if lines["prefiller"].null_count() == lines.height:
        return totals
    picks = lines.filter(disaggregated).select(
        "request_id",
        "decided_at_us",
        pl.lit("prefill").alias("profile"),
        (pl.col("prefiller") + "/dp0").alias("endpoint"),
        pl.lit(PICK).alias("plugin"),
        pl.lit(None, pl.Float64).alias("score"),
        pl.lit(value=True).alias("chosen"),
        ROW,
    )
    return pl.concat([totals, picks]).sort(ROW, maintain_order=True)


READER = Reader(
    "envoy-endpoint-scores", "decision_parts", "JSON access log of Envoy with the candidates' scores", _sniff, _read
)
