"""`otlp-spans`: spans in OTLP/JSON, as the collector's file exporter writes them (one batch a line) or one document.

One row of `request_parts` a span that says something about a request (features/readers/otlp_parts.py); the derivation
joins them by request, whatever files they are in. SGLang's stages name no request: they wait under `trace:<trace id>`
for a span of their trace that does. Other spans are skipped as `other_span`, spans without request and trace as
`no_request_id`.

A chunk's lines are decoded together (otlp_columns), those that are written otherwise than exporters write them, and a
document over several lines, one by one (otlp_objects); what spans say is worked out once, for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from pathlib import Path

import numpy as np
import polars as pl

from features.errors import SourceError
from features.readers.base import Batch, ReadContext, Reader
from features.readers.head import DOCUMENT_BYTES_MAX, Head
from features.readers.lines import ROW, BadLine, Lines, lines_of
from features.readers.otlp_attributes import REQUEST
from features.readers.otlp_columns import decode
from features.readers.otlp_objects import (
    AT,
    DOCUMENT,
    FAULT,
    HALF,
    OWN,
    ROOT,
    SPANS,
    START,
    TRACE,
    Judged,
    MisfitError,
    decode_line,
)
from features.readers.otlp_parts import PART_OF, PARTS, Part
from features.readers.plain import Chunk, whole_lines
from features.schemas import TABLES

BY_TRACE = "trace:"
_DTYPES = TABLES["request_parts"].dtypes
_KEY = ("request_id", "part", "part_at_us", "rank")
_EMPTY = pl.DataFrame(schema={AT: pl.Int64, **{name: _DTYPES[name] for name in _KEY}, ROW: pl.Int64})
_FIRST_LINES = 40
_TRIED_BYTES = 256 << 10
"""Of a chunk of which it is not known whether most of its lines can be decoded together."""
_PART, _RULE = "span.part", "rule"


def _sniff(head: Head) -> str:
    if sum(isinstance(value.get(ROOT), list) for value in head.objects) * 2 > len(head.objects):
        return f"objects have {ROOT}, OTLP's traces"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    doubtful = True
    for chunk in _chunks(path):
        spans, judged = pl.DataFrame(schema=SPANS), Judged()
        if chunk.cut_short:
            judged.bad.append((0, BadLine(chunk.first_row, "file_cut_short")))
        elif chunk.first_row == DOCUMENT:
            judged.take(0, DOCUMENT, chunk.content)
        else:
            lines = lines_of(chunk)
            left = np.arange(len(lines.texts))
            if not doubtful or _is_worth_it(lines):
                spans, left = decode(lines)
            doubtful = len(left) * 2 > len(lines.texts)
            for place, (row, line) in zip(left.tolist(), lines.numbered(left), strict=True):
                if line.strip():
                    judged.take(place, row, line)
        if judged.own:
            spans = pl.concat([spans, judged.frame()])
        table, faults, skipped = request_parts(spans)
        bad = [line for _, line in sorted(judged.bad + faults, key=itemgetter(0))]
        yield Batch(table.with_columns(pl.lit(context.pool).alias("pool")), bad, skipped)


def _is_worth_it(lines: Lines) -> bool:
    """Most of the first lines can be decoded together: of a log that is strange throughout, the rest is not tried."""
    first = max(1, int(np.searchsorted(lines.starts, _TRIED_BYTES)))
    if first * 4 > len(lines.texts):
        return True
    _, left = decode(replace(lines, texts=lines.texts[:first], whole=lines.whole[:first]))
    return len(left) * 2 <= first


def request_parts(spans: pl.DataFrame) -> tuple[pl.DataFrame, list[tuple[int, BadLine]], dict[str, int]]:
    """Rows of `request_parts` by `at`; spans that are bad, with their `at`; and how many were skipped as what."""
    frames, bad, skipped = [_EMPTY], [], {"other_span": 0, "no_request_id": 0}
    for (place,), of in spans.with_columns(PART_OF.alias(_PART)).partition_by(_PART, as_dict=True).items():
        if place is None:
            skipped["other_span"] += of.height
            continue
        told = of.lazy().select(_columns(PARTS[place])).with_columns(_without_half(PARTS[place])).collect()
        faults = told.filter(pl.col(_RULE).is_not_null())
        bad += [(at, BadLine(row, rule)) for at, row, rule in faults.select(AT, ROW, _RULE).iter_rows()]
        sound = told.filter(pl.col(_RULE).is_null()).drop(_RULE)
        frames.append(sound.filter(pl.col("request_id").is_not_null()))
        skipped["no_request_id"] += sound.height - frames[-1].height
    table = pl.concat(frames, how="diagonal").sort(AT).drop(AT)
    return table, bad, {kind: number for kind, number in skipped.items() if number}


def _columns(part: Part) -> list[pl.Expr]:
    columns = {
        "request_id": pl.coalesce(REQUEST, pl.when(pl.col(TRACE) != "").then(pl.format(BY_TRACE + "{}", TRACE))),
        "part": pl.format(part.kind + "/{}/{}", TRACE, OWN),
        "part_at_us": pl.col(START),
        "rank": pl.lit(part.rank),
        **part.columns,
    }
    typed = [column.cast(_DTYPES[name]).alias(name) for name, column in columns.items()]
    return [pl.col(AT), *typed, pl.col(ROW), pl.coalesce(part.too_long, FAULT).alias(_RULE)]


def _without_half(part: Part) -> pl.Expr:
    """Rules as they are, and that of the first text that holds half of a character."""
    texts = [name for name in ("request_id", "part", *part.columns) if _DTYPES[name] == pl.String]
    halves = [pl.when(pl.col(name).str.contains(HALF, literal=True)).then(pl.lit(f"{name}|type")) for name in texts]
    return pl.coalesce(_RULE, pl.when(pl.col("request_id").is_not_null()).then(pl.coalesce(halves)))


def _chunks(path: Path) -> Iterator[Chunk]:
    """Whole lines; a document over several of them comes whole, its row is DOCUMENT.

    Raises SourceError if a document is larger than DOCUMENT_BYTES_MAX.
    """
    chunks = whole_lines(path)
    first = next(chunks)
    if _opens_document(first.content):
        held = [first]
        for chunk in chunks:
            held.append(chunk)
            if sum(len(chunk.content) for chunk in held) > DOCUMENT_BYTES_MAX:
                raise SourceError("a JSON document must be at most 64 MiB", place=str(path), hint="one batch a line")
        whole = b"".join(chunk.content for chunk in held)
        if _is_object(whole):
            yield Chunk(DOCUMENT, whole)
            return
        chunks = iter(held[1:])  # a cut line came first
    yield from chain((first,), chunks)


def _is_object(content: bytes) -> bool:
    try:
        decode_line(content)
    except MisfitError:
        return False
    return True


def _opens_document(content: bytes) -> bool:
    """None of the first lines is an object by itself, and yet they begin one."""
    if not content.lstrip().startswith(b"{"):
        return False
    return not any(_is_object(line) for line in content.split(b"\n", _FIRST_LINES)[:_FIRST_LINES])


READER = Reader("otlp-spans", "request_parts", "spans of routers and engines, OTLP/JSON", _sniff, _read)
