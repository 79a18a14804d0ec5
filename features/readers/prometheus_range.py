"""`prometheus-range`: answers of Prometheus' `/api/v1/query_range` and `/query`, one JSON document or one a line.

One row a value of a series. A matrix has `values` [[seconds, "value"], …], a vector one `value`; other results give no
rows. The node is the series' `instance` (or `pod`), or the worker that a router's metric is about. Functions such as
rate() drop the name of a metric, so only plain selectors can be read.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from features.readers.base import Batch, ReadContext, Reader
from features.readers.head import Head
from features.readers.lines import ROW, BadLine, decode_object, split_lines
from features.readers.one_document import document_over_lines
from features.readers.plain import whole_lines
from features.readers.prometheus_samples import AT, SAMPLE_COLUMNS, UNKNOWN
from features.readers.prometheus_series import Series, series_of
from features.readers.prometheus_text import stem

_US = 1_000_000
_LIST = re.compile(rb'"values"\s*:\s*\[\s*\[')
_END = b"]]"
_HALVES = re.compile(r"[\ud800-\udfff]")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?Inf|NaN")
_TIMES_END_S = 1e11
UNNAMED, FAILED, OTHER, HISTOGRAMS = "unnamed_series", "failed_query", "other_result", "native_histogram"
"""Kinds that give no rows: series without a name, answers that are none, results that are no series."""


@dataclass(slots=True)
class _Found:
    """What a chunk holds: values of series as text of a CSV, or one by one, and what gives no row."""

    texts: list[bytes] = field(default_factory=list)
    of_text: list[tuple[int, Series, int]] = field(default_factory=list)
    rows: list[tuple[float, float, int, Series]] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def _sniff(head: Head) -> str:
    answers = [value for value in head.objects if isinstance(value.get("data"), dict)]
    fits = sum("resultType" in value["data"] and "result" in value["data"] for value in answers)
    return "answers of a Prometheus query (status, data with resultType)" if fits * 2 > len(head.objects) else ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    worker = stem(context.file)
    document = document_over_lines(path)
    if document is not None:
        found = _Found()
        _take_answer(document, None, found, [])
        yield _batch(found, worker)
        return
    for chunk in whole_lines(path):
        if chunk.cut_short:
            yield Batch(pl.DataFrame(schema=SAMPLE_COLUMNS), [BadLine(chunk.first_row, "file_cut_short")])
            return
        lines = list(enumerate(split_lines(chunk.content), chunk.first_row))
        found = _Found()
        for row, line in lines:
            _take_line(line, row, found)
        try:
            yield _batch(found, worker)
        except _NotPlainError:
            found = _Found()
            for row, line in lines:
                _take_line(line, row, found, whole=True)
            yield _batch(found, worker)


class _NotPlainError(Exception):
    """Values are not all pairs of a time and a number."""


def _take_line(line: bytes, row: int, found: _Found, *, whole: bool = False) -> None:
    """An answer on a line. The lists of values are cut out and not decoded, unless `whole`."""
    if not line.strip():
        return
    texts: list[bytes] = []
    skeleton = line
    first, *parts = [line] if whole else _LIST.split(line)
    ends = [part.find(_END) for part in parts]
    if parts and min(ends) >= 0:
        texts = [part[:end] for part, end in zip(parts, ends, strict=True)]
        rest = (part[end + len(_END) :] for part, end in zip(parts, ends, strict=True))
        skeleton = first + b"".join(b'"values":%d%b' % (at, tail) for at, tail in enumerate(rest))
    value, rule = decode_object(skeleton)
    if value is None and texts:  # a list of values ends elsewhere, or the line is none
        texts = []
        value, rule = decode_object(line)
    if value is None:
        found.bad.append(BadLine(row, rule))
    else:
        _take_answer(value, row, found, texts)


def _take_answer(answer: dict[str, Any], row: int | None, found: _Found, texts: Sequence[bytes]) -> None:
    """`row` None: the answer is the whole file, and its series are numbered."""
    if answer.get("status") == "error":
        found.skipped[FAILED] += 1
        return
    data = answer.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(result, list):
        found.bad.append(BadLine(row or 1, "data.result|type" if isinstance(data, dict) else "data|type"))
        return
    if data.get("resultType") not in ("matrix", "vector"):
        found.skipped[OTHER] += 1
        return
    for number, item in enumerate(result, 1):
        at = row or number
        metric = item.get("metric") if isinstance(item, dict) else None
        if not isinstance(metric, dict) or not all(_is_text(text) for pair in metric.items() for text in pair):
            found.bad.append(BadLine(at, "data.result[].metric|type"))
        else:
            _take_series(item, metric, at, found, texts)


def _is_text(value: object) -> bool:
    """A text that can be written: half of a pair of surrogates cannot."""
    return isinstance(value, str) and not _HALVES.search(value)


def _take_series(item: dict[str, Any], metric: dict[str, str], row: int, found: _Found, texts: Sequence[bytes]) -> None:
    values = item.get("values", [item["value"]] if "value" in item else None)
    if values is None:
        found.skipped[HISTOGRAMS] += 1
        return
    series = series_of(metric.get("__name__", ""), metric)
    kind = series.kind if "__name__" in metric else UNNAMED
    if isinstance(values, int) and values < len(texts):
        text = texts[values].replace(b"],[", b"\n").replace(b"], [", b"\n")
        count = text.count(b"\n") + 1
        if kind:
            found.skipped[kind] += count
        else:
            found.texts.append(text)
            found.of_text.append((row, series, count))
    elif not isinstance(values, list):
        found.bad.append(BadLine(row, "data.result[].values|type"))
    elif kind:
        found.skipped[kind] += len(values)
    else:
        for pair in values:
            sample = _pair(pair)
            if sample is None:
                found.bad.append(BadLine(row, "data.result[].values|type"))
            else:
                found.rows.append((*sample, row, series))


def _pair(pair: Any) -> tuple[float, float] | None:  # noqa: ANN401  any JSON value
    """Seconds and value of [seconds, "value"], None if it is none."""
    if not isinstance(pair, list) or len(pair) != 2:
        return None
    time, value = pair
    if any(isinstance(part, bool) or not isinstance(part, int | float | str) for part in pair):
        return None
    if not _NUMBER.fullmatch(str(time)) or not _NUMBER.fullmatch(str(value)):
        return None
    seconds = float(time)
    return (seconds, float(value)) if abs(seconds) < _TIMES_END_S else None


def _batch(found: _Found, worker: str) -> Batch:
    """Raises _NotPlainError if a list of values is not what it seemed."""
    series = [one for _, one, _ in found.of_text] + [one for *_, one in found.rows]
    rows = [row for row, _, _ in found.of_text] + [row for _, _, row, _ in found.rows]
    counts = [count for *_, count in found.of_text] + [1] * len(found.rows)
    about = pl.DataFrame(
        {
            "node": [(one.worker or worker) + one.suffix for one in series],
            "metric": [one.metric for one in series],
            "labels": [one.labels for one in series],
            "gauge": [one.gauge for one in series],
            ROW: rows,
        },
        schema={"node": pl.String, "metric": pl.String, "labels": pl.String, "gauge": pl.Boolean, ROW: pl.Int64},
    )
    of_each = np.repeat(np.arange(len(series)), counts)
    numbers = pl.concat([_plain(found.texts, sum(counts[: len(found.of_text)])), _listed(found.rows)])
    frame = pl.concat([about[of_each], numbers], how="horizontal")
    unknown = frame["value"].is_nan() | (frame["gauge"] & (frame["value"] == -1))
    skipped = found.skipped + Counter({UNKNOWN: int(unknown.sum())})
    clear = frame.filter(~unknown).sort(ROW, maintain_order=True)
    return Batch(clear.select(*SAMPLE_COLUMNS), sorted(found.bad, key=lambda line: line.row), dict(skipped))


def _plain(texts: Sequence[bytes], count: int) -> pl.DataFrame:
    """Times and values of `seconds,"value"` lines. Raises _NotPlainError."""
    content = b"\n".join(texts)
    if not content:
        return _listed([])
    if b" " in content:
        content = content.replace(b" ", b"")
    try:
        cut = pl.read_csv(io.BytesIO(content), has_header=False, schema={"time": pl.Float64(), "text": pl.String()})
    except pl.exceptions.PolarsError as error:
        raise _NotPlainError from error
    values = cut.select(_time("time"), pl.col("text").cast(pl.Float64, strict=False).alias("value"))
    if values.height != count or values.null_count().sum_horizontal()[0]:
        raise _NotPlainError
    return values


def _listed(rows: Sequence[tuple[float, float, int, Series]]) -> pl.DataFrame:
    listed = pl.DataFrame(
        {"time": [row[0] for row in rows], "value": [row[1] for row in rows]},
        schema={"time": pl.Float64, "value": pl.Float64},
    )
    return listed.select(_time("time"), "value")


def _time(seconds: str) -> pl.Expr:
    return (pl.col(seconds) * _US).round().cast(pl.Int64, strict=False).alias(AT)


READER = Reader("prometheus-range", "metric_samples", "answers of Prometheus' query_range and query", _sniff, _read)
