"""`multi-round-qa`: results of vLLM production-stack's multi-round benchmark, CSV, one row a finished request.

Source: production-stack benchmarks/multi-round-qa, also in AIBrix' regression runs. launch_time and finish_time are
unix seconds of the client, `ttft` and `generation_time` seconds; a user of the benchmark is a number and makes a
session. The client saw no node. Token counts are written as floats. Request ids are made of the file's name and the
line number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from features.readers.base import Batch, ReadContext, Reader
from features.readers.csv_lines import csv_header, read_csv_lines
from features.readers.head import Head
from features.readers.lines import ROW
from features.readers.traces import row_ids, trace_name
from features.readers.units import SECOND_US, whole_us

_COLUMNS = {
    "prompt_tokens": pl.Float64,
    "generation_tokens": pl.Float64,
    "ttft": pl.Float64,
    "user_id": pl.Int64,
    "launch_time": pl.Float64,
    "finish_time": pl.Float64,
}


def _sniff(head: Head) -> str:
    if {*_COLUMNS, "generation_time", "question_id"} <= set(csv_header(head.text)):
        return "the first line names launch_time, ttft, finish_time, user_id and question_id"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    launched = pl.col("launch_time")
    for parsed in read_csv_lines(path, _COLUMNS):
        frame = parsed.frame.select(
            row_ids(context),
            pl.lit(context.pool).alias("pool"),
            whole_us(launched, SECOND_US).alias("arrived_at_us"),
            pl.format("{}-{}", pl.lit(trace_name(context)), "user_id").alias("session_id"),
            _tokens("prompt_tokens").alias("prompt_tokens"),
            _tokens("generation_tokens").alias("output_tokens"),
            whole_us(launched + pl.col("ttft"), SECOND_US).alias("first_token_at_us"),
            whole_us(pl.col("finish_time"), SECOND_US).alias("finished_at_us"),
            ROW,
        )
        yield Batch(frame, parsed.bad)


def _tokens(name: str) -> pl.Expr:
    """A count that is written as a float; a part of a token breaks the rule of its column."""
    whole = pl.col(name).cast(pl.Int64, strict=False)
    return pl.when(whole.cast(pl.Float64) == pl.col(name)).then(whole).when(pl.col(name).is_not_null()).then(-2)


READER = Reader("multi-round-qa", "requests", "results of the multi-round-qa benchmark, CSV", _sniff, _read)
