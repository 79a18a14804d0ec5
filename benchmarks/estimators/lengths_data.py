"""Real traces as tables of lengths: what a router knew at arrival, in order of time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from features.length_history import with_length_history
from features.prefix import thin
from features.readers import azure_csv, kv_cache_tester, mooncake
from features.readers.base import ReadContext, Reader
from features.schemas import with_all_columns

START_US = 1_767_571_200_000_000
"""Wall time at which relative clocks start."""
GAP_US = 1_000_000
"""Between two conversations that stand one after the other."""


def azure(data: Path) -> pl.DataFrame:
    """Azure conversation trace: prompt and output tokens, nothing else."""
    return _known(_requests(azure_csv.READER, data / "azure-llm-2023" / "AzureLLMInferenceTrace_conv.csv", START_US))


def mooncake_conversation(data: Path) -> pl.DataFrame:
    """Mooncake conversation trace; sessions from block hashes."""
    return _known(_requests(mooncake.READER, data / "mooncake-fast25" / "conversation_trace.jsonl", START_US))


def kv_cache(data: Path) -> pl.DataFrame:
    """kv-cache-tester conversations, one after the other in order of their ids: each has a clock of its own.

    `app` is the flag by which the client asked for a stream, part of the request. `think_time` is not read.
    """
    frames, start_us = [], START_US
    for path in _conversations(data):
        rows = _requests(kv_cache_tester.READER, path, start_us)
        if rows.is_empty():
            continue
        flags = pl.DataFrame(list(_flags(path)), ["request_id", "flag"], orient="row")
        rows = rows.join(flags, on="request_id", how="left", maintain_order="left")
        frames.append(rows.with_columns(app="flag").drop("flag"))
        ends = [rows[name].max() for name in ("arrived_at_us", "finished_at_us")]
        start_us = max(int(end) for end in ends if isinstance(end, int)) + GAP_US
    return _known(pl.concat(frames))


def _requests(reader: Reader, path: Path, start_us: int) -> pl.DataFrame:
    if not path.is_file():
        raise FileNotFoundError(path)
    batches = reader.read(path, ReadContext("a", path.name, start_us))
    return with_all_columns("requests", pl.concat([batch.frame for batch in batches]))


def _known(requests: pl.DataFrame) -> pl.DataFrame:
    return with_length_history(thin(requests))


def _conversations(data: Path) -> list[Path]:
    found = sorted((data / "kv-cache-tester" / "traces").glob("*.json*"))
    if not found:
        raise FileNotFoundError(data / "kv-cache-tester" / "traces")
    return found


def _flags(path: Path) -> Iterator[tuple[str, str]]:
    """Request id, as the reader makes it, and `type`: n = whole answer, s = stream."""
    content = path.read_bytes()
    value = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    for number, request in enumerate(value["requests"], 1):
        yield f"{value['id']}-{number:06d}", request["type"]
