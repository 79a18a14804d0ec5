"""`prometheus-text`: a scrape of `GET /metrics` as it was answered, in the Prometheus text format.

One row a sample. The node is the process that the labels name (`instance`, `pod`, a router's worker), else the file's
name without its suffixes; a rank follows from `dp_rank` (SGLang, Dynamo) or `engine` (vLLM). Samples without a
timestamp are of the time that --starts-at gives: a scrape does not say when it was made.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import polars as pl

from features.errors import SourceError
from features.readers.base import Batch, ReadContext, Reader
from features.readers.head import Head
from features.readers.lines import ROW, BadLine, split_lines
from features.readers.plain import Chunk, whole_lines
from features.readers.prometheus_samples import AT, LINE, SAMPLE_COLUMNS, WORKER, SampleParser

_SUFFIXES = {".gz", ".zst", ".prom", ".txt", ".log", ".metrics", ".json", ".jsonl", ".ndjson"}
_NUMBER = r"[+-]?(?:[0-9.]+(?:[eE][+-]?[0-9]+)?|[Ii]nf|[Nn]a[Nn])"
_WRITTEN = re.compile(
    rf'# (?:HELP|TYPE) [A-Za-z_:]|[A-Za-z_:][A-Za-z0-9_:]*\{{[A-Za-z_"].*\}}[ \t]+{_NUMBER}(?:[ \t]|$)'
    rf"|[A-Za-z][A-Za-z0-9]*[_:][A-Za-z0-9_:]*[A-Za-z0-9][ \t]+{_NUMBER}(?:[ \t]+[0-9.]+)?[ \t]*$"
)


def is_exposition(text: str) -> bool:
    """Whether most of the first lines are of the Prometheus text format."""
    lines = [line for line in text.split("\n", 40)[:40] if line.strip()]
    return sum(_WRITTEN.match(line) is not None for line in lines) * 2 > len(lines)


def stem(file: str) -> str:
    """A log's name without folders and known suffixes."""
    path = PurePosixPath(file)
    while path.suffix in _SUFFIXES and path.stem:
        path = path.with_suffix("")
    return path.name


def _sniff(head: Head) -> str:
    return "lines are samples of the Prometheus text format" if is_exposition(head.text) else ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    parser = SampleParser()
    for chunk in whole_lines(path):
        if chunk.cut_short:
            yield Batch(pl.DataFrame(schema=SAMPLE_COLUMNS), [BadLine(chunk.first_row, "file_cut_short")])
            return
        lines, bad = _written(chunk, context)
        batch = parser.parse(lines)
        if batch.frame[AT].null_count():
            raise SourceError(
                "a scrape needs its time", place=str(path), hint="--starts-at, as its samples have no timestamps"
            )
        yield Batch(batch.frame, sorted([*bad, *batch.bad], key=lambda line: line.row), batch.skipped)


def _written(chunk: Chunk, context: ReadContext) -> tuple[pl.DataFrame, list[BadLine]]:
    """Lines of a chunk, and those that are no text."""
    count = chunk.content.count(b"\n") + (not chunk.content.endswith(b"\n"))
    rows = range(chunk.first_row, chunk.first_row + count)
    lines = _column(chunk.content)
    if lines is not None and lines.height == count:
        return _placed(lines.with_columns(pl.int_range(rows.start, rows.stop, dtype=pl.Int64).alias(ROW)), context), []
    good: list[tuple[str, int]] = []
    bad: list[BadLine] = []
    for row, line in zip(rows, split_lines(chunk.content), strict=True):
        try:
            good.append((line.decode("utf-8").removesuffix("\r"), row))
        except UnicodeDecodeError:
            bad.append(BadLine(row, "utf8"))
    return _placed(pl.DataFrame(good, schema={LINE: pl.String, ROW: pl.Int64}, orient="row"), context), bad


def _column(content: bytes) -> pl.DataFrame | None:
    """Lines as polars reads a file of one column; None if it cannot."""
    try:
        return pl.read_csv(
            io.BytesIO(content), has_header=False, separator="\x01", quote_char=None, schema={LINE: pl.String()}
        )
    except pl.exceptions.PolarsError:
        return None


def _placed(lines: pl.DataFrame, context: ReadContext) -> pl.DataFrame:
    return lines.with_columns(
        pl.lit(context.starts_at_us, pl.Int64).alias(AT), pl.lit(stem(context.file)).alias(WORKER)
    )


READER = Reader(
    "prometheus-text", "metric_samples", "a scrape in the Prometheus text format", _sniff, _read, needs_start=True
)
