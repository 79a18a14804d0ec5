"""`dynamo-fpm`: NVIDIA Dynamo's forward-pass metrics (version 1) as its trace (`dynamo.fpm.trace.v1`) or a recorder
writes them: one JSON line a pass of a worker's rank, bare or wrapped in {timestamp, event}.

`wall_time` is in seconds, from schedule() to update_from_output(); the pass is placed at the time that it was observed.
One row a pass of one phase: a step's table cannot hold a pass of both, and its time is neither one's, so that it is
skipped as `mixed_pass`; the heartbeat of an idle worker is skipped as `idle_heartbeat`. Queued work is no step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, without_null
from features.readers.head import Head, read_head
from features.readers.lines import ROW, read_lines

_US_PER_MS, _US_PER_S = 1_000, 1_000_000
_SCHEDULED = pl.Struct(
    {
        "num_prefill_requests": pl.Int64(),
        "sum_prefill_tokens": pl.Int64(),
        "sum_prefill_kv_tokens": pl.Int64(),
        "num_decode_requests": pl.Int64(),
        "sum_decode_kv_tokens": pl.Int64(),
    }
)
_FIELDS: dict[str, Any] = {
    "worker_id": pl.String(),
    "dp_rank": pl.Int64(),
    "counter_id": pl.Int64(),
    "wall_time": pl.Float64(),
}
_WORK = ("scheduled_requests", "scheduled")
_OBSERVED = "observed_at_unix_ms"


def _sniff(head: Head) -> str:
    passes = [_inside(value) for value in head.objects]
    fits = sum("wall_time" in one and "counter_id" in one and any(name in one for name in _WORK) for one in passes)
    return "lines are forward passes (counter_id, wall_time, scheduled requests)" if fits * 2 > len(passes) else ""


def _inside(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pass that an object is or holds."""
    for name in ("event", "fpm"):
        inner = value.get(name)
        value = inner if isinstance(inner, dict) else value
    return value


@dataclass(frozen=True, slots=True)
class _Form:
    """How a file wraps its passes, as most of its first lines do: the objects around one, and the name of its work."""

    around: tuple[str, ...]
    work: str

    @property
    def schema(self) -> dict[str, Any]:
        """Types of the fields that are read."""
        schema: dict[str, Any] = {**_FIELDS, self.work: _SCHEDULED}
        if "fpm" not in self.around:
            schema[_OBSERVED] = pl.Int64()
        for name in reversed(self.around):
            schema = {name: pl.Struct(schema), **({_OBSERVED: pl.Int64()} if name == "fpm" else {})}
        return schema

    def flat(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A pass a row: its fields, those of its work and when it was observed."""
        for name in (*self.around, self.work):
            frame = frame.unnest(name)
        return frame.with_columns(pl.col("num_decode_requests").fill_null(0))


def _form(objects: Sequence[Mapping[str, Any]]) -> _Form:
    forms = Counter(
        _Form(
            (
                *(["event"] if isinstance(value.get("event"), dict) else []),
                *(["fpm"] if isinstance({**value, **(value.get("event") or {})}.get("fpm"), dict) else []),
            ),
            next((name for name in _WORK if name in _inside(value)), _WORK[0]),
        )
        for value in objects
        if "counter_id" in _inside(value) and isinstance(value.get("event", {}), dict)
    )
    return forms.most_common(1)[0][0] if forms else _Form((), _WORK[0])


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    del context
    form = _form(read_head(path).objects)
    for parsed in read_lines(path, form.schema):
        flat, idless = without_null(form.flat(parsed.frame), "counter_id")
        flat, empty = without_null(flat, "num_prefill_requests")
        prefill, decode = pl.col("num_prefill_requests") != 0, pl.col("num_decode_requests") != 0
        rows = flat.filter(prefill != decode)
        skipped = {}
        if rows.height < flat.height:
            skipped["idle_heartbeat"] = flat.filter(~prefill & ~decode).height
            skipped["mixed_pass"] = flat.filter(prefill & decode).height
        bad = sorted([*parsed.bad, *idless, *empty], key=lambda line: line.row)
        yield Batch(_steps(rows), bad, skipped)


def _steps(passes: pl.DataFrame) -> pl.DataFrame:
    prefill = pl.col("num_prefill_requests") != 0
    # Passes that ended within one millisecond stay apart, in their order: the counter is its microseconds.
    at = pl.col(_OBSERVED) * _US_PER_MS + pl.col("counter_id") % _US_PER_MS
    return passes.select(
        at.alias("observed_at_us"),
        (pl.col("worker_id") + "/dp" + pl.col("dp_rank").fill_null(0).cast(pl.String)).alias("node"),
        pl.when(prefill).then(pl.lit("prefill")).otherwise(pl.lit("decode")).alias("phase"),
        pl.lit(1, pl.Int64).alias("n_steps"),
        (pl.col("wall_time") * _US_PER_S).round().cast(pl.Int64, strict=False).alias("busy_us"),
        pl.when(prefill)
        .then("num_prefill_requests")
        .otherwise("num_decode_requests")
        .cast(pl.Float64)
        .alias("sequences"),
        pl.when(prefill).then("sum_prefill_tokens").otherwise("sum_decode_kv_tokens").cast(pl.Float64).alias("tokens"),
        # A speculating engine makes more than one token a sequence: what a decode pass made is not told.
        pl.when(prefill).then("sum_prefill_tokens").alias("new_tokens"),
        pl.when(prefill).then("sum_prefill_kv_tokens").cast(pl.Float64).alias("context_tokens"),
        ROW,
    )


READER = Reader("dynamo-fpm", "steps", "Dynamo forward-pass metrics, version 1", _sniff, _read)
