"""`prometheus-polls`: scrapes as `routecal record metrics` keeps them, one JSON line a poll.

A line is {polled_at_us, target, status, body}; body is the answer of `GET /metrics`, a comment if there was none. One
row a sample of the body, of the poll's time where the sample has none of its own; the row's number is the poll's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, most_have, without_null
from features.readers.head import Head
from features.readers.lines import ROW, read_lines
from features.readers.prometheus_samples import AT, LINE, WORKER, SampleParser

ERROR = "# error: "
"""A body that starts so says why there is no scrape."""
_OK = 200
_SCHEMA = {"polled_at_us": pl.Int64, "target": pl.String, "status": pl.Int64, "body": pl.String}


def is_scrape(poll: Mapping[str, Any]) -> bool:
    """Whether a poll was one of /metrics: its body is text, answered or saying why not."""
    body = poll.get("body")
    return isinstance(body, str) and (poll.get("status") == _OK or body.startswith(ERROR))


def _sniff(head: Head) -> str:
    if not most_have(head.objects, "polled_at_us", "target", "status", "body"):
        return ""
    fits = any(is_scrape(value) for value in head.objects)
    return "lines are polls (polled_at_us, target, status, body) whose body is text" if fits else ""


def _repair(value: dict[str, Any]) -> None:
    """The body of a failed poll is whatever the target or a proxy said; nothing is read from it."""
    if value.get("status") != _OK:
        value["body"] = None


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    del context
    parser = SampleParser()
    for parsed in read_lines(path, _SCHEMA, repair=_repair):
        frame, nameless = without_null(parsed.frame, "target")
        frame, timeless = without_null(frame, "polled_at_us")
        answered = frame.filter((pl.col("status") == _OK) & ~pl.col("body").str.starts_with(ERROR))
        filled = answered.filter(pl.col("body").str.contains(r"\S"))
        worker = pl.col("target").str.replace(r"^[A-Za-z][A-Za-z0-9+.-]*://", "").str.replace(r"/.*$", "")
        lines = filled.select(
            pl.col("body").str.split("\n").alias(LINE), pl.col("polled_at_us").alias(AT), worker.alias(WORKER), ROW
        ).explode(LINE)
        batch = parser.parse(lines)
        skipped = {"failed_poll": frame.height - answered.height, "no_samples": answered.height - filled.height}
        bad = sorted([*parsed.bad, *nameless, *timeless, *batch.bad], key=lambda line: line.row)
        yield Batch(batch.frame, bad, {**batch.skipped, **skipped})


READER = Reader("prometheus-polls", "metric_samples", "recorded scrapes of GET /metrics", _sniff, _read)
