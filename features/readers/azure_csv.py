"""`azure-llm`: the Azure LLM inference traces of 2023 and 2024 and the multimodal one of 2025.

Source: Azure/AzurePublicDataset. CSV of TIMESTAMP (UTC wall clock, up to 7 decimals; with an offset in later files),
ContextTokens and GeneratedTokens. Times are cut to whole microseconds. The multimodal file has NumImages besides, which
is not kept: its ContextTokens count images already. The trace has no ids, sessions, hashes or models; request ids are
made of the file's name and the line number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from features.readers.base import Batch, ReadContext, Reader
from features.readers.csv_lines import csv_header, read_csv_lines
from features.readers.head import Head
from features.readers.lines import ROW, BadLine
from features.readers.traces import row_ids

_COLUMNS = {"TIMESTAMP": pl.String, "ContextTokens": pl.Int64, "GeneratedTokens": pl.Int64}
_UTC = "%Y-%m-%d %H:%M:%S%.f"


def _sniff(head: Head) -> str:
    if set(_COLUMNS) <= set(csv_header(head.text)):
        return "the first line names TIMESTAMP, ContextTokens and GeneratedTokens"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    for parsed in read_csv_lines(path, _COLUMNS):
        timed = parsed.frame.select(
            row_ids(context),
            pl.lit(context.pool).alias("pool"),
            _time_us(parsed.frame["TIMESTAMP"]),
            pl.col("ContextTokens").alias("prompt_tokens"),
            pl.col("GeneratedTokens").alias("output_tokens"),
            ROW,
        )
        if timed["arrived_at_us"].null_count() == 0:
            yield Batch(timed, parsed.bad)
            continue
        late = timed.filter(pl.col("arrived_at_us").is_null())[ROW].to_list()
        bad = [*parsed.bad, *(BadLine(row, "TIMESTAMP|type") for row in late)]
        yield Batch(timed.filter(pl.col("arrived_at_us").is_not_null()), sorted(bad, key=lambda line: line.row))


def _time_us(texts: pl.Series) -> pl.Series:
    """Unix microseconds; null for a text that is no time."""
    times = _of_seven_decimals(texts)
    if times.null_count():
        plain = texts.str.to_datetime(_UTC, time_unit="us", strict=False)
        offset = texts.str.to_datetime(f"{_UTC}%#z", time_unit="us", strict=False).dt.replace_time_zone(None)
        times = plain.zip_with(plain.is_not_null(), offset)
    return times.dt.epoch("us").alias("arrived_at_us")


def _of_seven_decimals(texts: pl.Series) -> pl.Series:
    """Times of the one form that nearly all have, three times as fast; null for others."""
    text = pl.col(texts.name)
    digits = text.str.slice(20, 7)
    form = (
        (text.str.len_bytes() == 27)
        & (text.str.slice(19, 1) == ".")
        & digits.str.head(1).is_between(pl.lit("0"), pl.lit("9"))
    )
    second = text.str.head(19).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)
    part = pl.duration(microseconds=digits.cast(pl.Int64, strict=False) // 10)
    return texts.to_frame().select(pl.when(form).then(second + part)).to_series()


READER = Reader("azure-llm", "requests", "Azure LLM inference trace, CSV", _sniff, _read)
