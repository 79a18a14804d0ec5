"""Lines of the Prometheus text format -> rows of `metric_samples`: vectorised, and line by line where a line is odd.

A line is `name{label="value",…} value [timestamp]`: milliseconds, or seconds as OpenMetrics has them. Series repeat
from scrape to scrape, so a chunk is cut into series and values, and each series is judged once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import polars as pl

from features.readers.base import Batch
from features.readers.lines import ROW, BadLine
from features.readers.prometheus_series import MALFORMED, UNUSED, Series, series_of_text

COMMENT, UNKNOWN, AMBIGUOUS = "comment", "unknown_value", "ambiguous_series"
"""Kinds of lines that give no rows: HELP, TYPE and other comments; values that stand for unknown (NaN, and -1 of a
gauge); series of one process that differ only in labels that are not kept."""
LINE, AT, WORKER = "line", "observed_at_us", "worker"
_SECONDS_END, _MS_END = 10**11, 10**13
_KNOWN_SERIES_MAX = 200_000
_SERIES: Mapping[str, Any] = {
    "head": pl.String, "kind": pl.String, "metric": pl.String, "labels": pl.String, "named": pl.String,
    "suffix": pl.String, "gauge": pl.Boolean,
}  # fmt: skip
_SAMPLE = re.compile(r'([^{\s]*[ \t]*\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}|[^{\s]+[ \t])[ \t]*(.*)', re.DOTALL)
_EXEMPLAR = re.compile(r"[ \t]#[ \t]*\{.*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:[Ii]nf|INF)|[Nn]a[Nn]|NAN")
_KEY = (AT, "node", "metric", "labels")
SAMPLE_COLUMNS: Mapping[str, Any] = {
    AT: pl.Int64, "node": pl.String, "metric": pl.String, "labels": pl.String, "value": pl.Float64, ROW: pl.Int64
}  # fmt: skip


class SampleParser:
    """Parses chunks of one file, and remembers the series that it met."""

    def __init__(self) -> None:
        self._known: dict[str, Series] = {}

    def parse(self, lines: pl.DataFrame) -> Batch:
        """Samples of `lines`: columns `line`, ROW, and what holds where the line says nothing: observed_at_us, worker.

        A sample whose time nobody knows has a null one.
        """
        written = _where(lines, lines[LINE].is_not_null() & (lines[LINE].str.len_bytes() > 0))
        comment = written[LINE].str.starts_with("#")
        skipped = Counter({COMMENT: int(comment.sum())})
        rows, bad = _cut(_where(written, ~comment))
        series = self._series(rows["head"])
        judged = rows.join(series, on="head", how="left", maintain_order="left")
        used = _where(judged, judged["kind"] == "")
        if used.height < judged.height:
            rest = judged.filter(pl.col("kind") != "")
            bad += [BadLine(row, MALFORMED) for row in rest.filter(pl.col("kind") == MALFORMED)[ROW]]
            skipped[UNUSED] += rest.filter(pl.col("kind") == UNUSED).height
        known = _where(used, ~(used["value"].is_nan() | (used["gauge"] & (used["value"] == -1))))
        skipped[UNKNOWN] += used.height - known.height
        named = known.with_columns((pl.coalesce("named", WORKER) + pl.col("suffix")).alias("node"))
        clear = _unambiguous(named, series)
        skipped[AMBIGUOUS] += named.height - clear.height
        return Batch(clear.select(*SAMPLE_COLUMNS), sorted(bad, key=lambda line: line.row), dict(skipped))

    def _series(self, heads: pl.Series) -> pl.DataFrame:
        if len(self._known) > _KNOWN_SERIES_MAX:
            self._known.clear()
        rows = []
        for head in heads.unique().to_list():
            if head not in self._known:
                self._known[head] = series_of_text(head)
            one = self._known[head]
            rows.append((head, one.kind, one.metric, one.labels, one.worker, one.suffix, one.gauge))
        return pl.DataFrame(rows, schema=_SERIES, orient="row")


def _where(rows: pl.DataFrame, mask: pl.Series) -> pl.DataFrame:
    """Rows of the mask; the frame itself if that is all of them."""
    return rows if mask.all() else rows.filter(mask)


def _cut(lines: pl.DataFrame) -> tuple[pl.DataFrame, list[BadLine]]:
    """Columns head, value and time of samples, and lines that are none."""
    parts = lines.with_columns(pl.col(LINE).str.splitn("} ", 2).struct.rename_fields(["head", "tail"]).alias("_"))
    parts = parts.unnest("_")
    if parts["tail"].null_count():
        by_space = pl.col(LINE).str.splitn(" ", 2).struct
        bare = pl.col("tail").is_null() & ~pl.col(LINE).str.contains("{", literal=True)
        parts = parts.with_columns(
            pl.when(bare).then(by_space.field("field_0")).otherwise("head").alias("head"),
            pl.when(bare).then(by_space.field("field_1")).otherwise("tail").alias("tail"),
        )
    parts = parts.with_columns(pl.col("tail").str.splitn(" ", 2).struct.rename_fields(["value", "stamp"])).unnest(
        "tail"
    )
    parts = parts.with_columns(
        pl.col("value").cast(pl.Float64, strict=False),
        pl.col("stamp").cast(pl.Int64, strict=False).alias("time"),
    )
    odd = parts["value"].is_null() | (parts["time"].is_null() & parts["stamp"].is_not_null())
    columns = ["head", "value", "time", AT, WORKER, ROW]
    if not odd.any():
        return _timed(parts.select(columns)), []
    slow, bad = _one_by_one(parts.filter(odd))
    whole = pl.concat([parts.filter(~odd).select(columns), slow.select(columns)]).sort(ROW, maintain_order=True)
    return _timed(whole), bad


def _timed(rows: pl.DataFrame) -> pl.DataFrame:
    time = pl.col("time")
    if rows["time"].null_count() == rows.height:
        return rows.drop("time")
    scale = pl.when(time < _SECONDS_END).then(1_000_000).when(time < _MS_END).then(1_000).otherwise(1)
    return rows.with_columns(pl.coalesce(time * scale, AT).alias(AT)).drop("time")


def _one_by_one(lines: pl.DataFrame) -> tuple[pl.DataFrame, list[BadLine]]:
    """Samples of lines with more blanks than needed, braces in labels, exemplars or fractions of a second."""
    cut = [_sample(line) for line in lines[LINE]]
    found = [sample or ("", None, None) for sample in cut]
    blank = [not line.strip() for line in lines[LINE]]
    rows = lines[ROW].to_list()
    bad = [
        BadLine(row, MALFORMED) for row, sample, empty in zip(rows, cut, blank, strict=True) if not (sample or empty)
    ]
    head, value, time = zip(*found, strict=True)
    parsed = lines.with_columns(
        pl.Series("head", head, pl.String), pl.Series("value", value, pl.Float64), pl.Series("time", time, pl.Int64)
    )
    return parsed.filter(pl.col("head") != ""), bad


def _sample(line: str) -> tuple[str, float, int | None] | None:
    """Head, value and time of a line, None if it is no sample."""
    match = _SAMPLE.fullmatch(line.strip())
    if match is None:
        return None
    head, rest = match.groups()
    numbers = _EXEMPLAR.sub("", rest).split()
    if not 1 <= len(numbers) <= 2 or any(_NUMBER.fullmatch(number) is None for number in numbers):
        return None
    time = float(numbers[1]) if numbers[1:] else None
    if time is None:
        return head.strip(), float(numbers[0]), None
    if not abs(time) < _MS_END:
        return None
    # Seconds with a fraction are microseconds from here on.
    return head.strip(), float(numbers[0]), round(time * 1_000_000) if time < _SECONDS_END else round(time)


def _unambiguous(rows: pl.DataFrame, series: pl.DataFrame) -> pl.DataFrame:
    """Without samples of one name and key that differ in dropped labels: no rule says which of them is meant."""
    used = series.filter(pl.col("kind") == "")
    if used.select("named", "suffix", "metric", "labels").n_unique() == used.height:
        return rows
    name = pl.col("head").str.extract(r"^([^{\s]*)", 1)
    others = pl.struct("head").n_unique().over(*_KEY, name)
    return rows.filter(others == 1)
