"""The IO manager: canonical tables live in the lake, what is derived from them beside the runs.

An output is a polars frame, or plain values that JSON can hold. A partition is one file, written whole or not at
all, and byte-identical when made again from the same values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl

from features.errors import LakeError
from features.lake import Lake, check_pool_name
from features.parquet import file_digest, parquet_bytes, read_parquet, write_atomically
from features.schemas import TABLES
from pipelines.defs.partitions import night_of_key

SOURCES = "sources"
"""Output metadata: name of an input -> its SHA-256, kept in the file."""


class LakeIOManager(dg.ConfigurableIOManager):
    """Keeps an asset's partitions: `requests`, `node_loads` … in the lake, all others under `derived`.

    The asset's name is the table's. An input over several partitions is their rows in order of the days; annotate it
    as `pl.LazyFrame` to scan instead of load. JSON inputs over several partitions are a list in order of the days.
    """

    lake: str
    derived: str

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:  # noqa: ANN401  dagster's signature
        """Write one partition. Raises LakeError for a value that is neither a frame nor plain."""
        day, pool = night_of_key(context.partition_key)
        name = context.asset_key.path[-1]
        sources = _sources(context.output_metadata.get(SOURCES))
        if isinstance(obj, pl.DataFrame) and name in TABLES:
            part = Lake(Path(self.lake)).write(name, day, pool, obj, sources=sources)
            path, digest, rows = str(Path(self.lake) / part.name), part.digest, part.rows
        else:
            target = self._derived(name, day, pool, ".parquet" if isinstance(obj, pl.DataFrame) else ".json")
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, parquet_bytes(obj, sources) if isinstance(obj, pl.DataFrame) else _json(name, obj))
            path, digest, rows = (
                str(target),
                file_digest(target),
                len(obj) if isinstance(obj, pl.DataFrame | list) else 1,
            )
        context.add_output_metadata({"path": dg.MetadataValue.path(path), "sha256": digest, "dagster/row_count": rows})

    def load_input(self, context: dg.InputContext) -> Any:  # noqa: ANN401  dagster's signature
        """Read one partition, or several. Raises LakeError if one of a derived asset is missing."""
        name = context.asset_key.path[-1]
        nights = sorted(night_of_key(key) for key in context.asset_partition_keys)
        lazy = context.dagster_type.typing_type is pl.LazyFrame
        if name in TABLES:
            frames = [
                self._scan(name, pool, [d for d, p in nights if p == pool]) for pool in sorted({p for _, p in nights})
            ]
            return _joined(frames, lazy=lazy)
        paths = [self._existing(name, day, pool) for day, pool in nights]
        if all(path.suffix == ".parquet" for path in paths):
            return _joined((read_parquet(path)[0].lazy() for path in paths), lazy=lazy)
        values = [json.loads(path.read_text("utf-8")) for path in paths]
        return values[0] if len(values) == 1 else values

    def read(self, name: str, day: date, pool: str) -> Any:  # noqa: ANN401  JSON
        """The stored JSON value of one partition. Raises LakeError if it is missing."""
        return json.loads(self._existing(name, day, pool).read_text("utf-8"))

    def read_table(self, name: str, day: date, pool: str) -> pl.DataFrame:
        """The stored frame of one partition of a derived asset. Raises LakeError if it is missing."""
        return read_parquet(self._existing(name, day, pool))[0]

    def _scan(self, table: str, pool: str, days: list[date]) -> pl.LazyFrame:
        return Lake(Path(self.lake)).scan(table, days, pool)

    def _derived(self, name: str, day: date, pool: str, suffix: str) -> Path:
        return Path(self.derived) / name / f"pool={check_pool_name(pool)}" / f"day={day.isoformat()}{suffix}"

    def _existing(self, name: str, day: date, pool: str) -> Path:
        for suffix in (".parquet", ".json"):
            path = self._derived(name, day, pool, suffix)
            if path.exists():
                return path
        raise LakeError("an asset's partition must exist", value=f"{name} {day} {pool}", hint="materialize it first")


def _sources(metadata: object) -> dict[str, str]:
    """Digests of inputs from an output's metadata, if it has any."""
    value = metadata.value if isinstance(metadata, dg.JsonMetadataValue) else None
    return {str(name): str(digest) for name, digest in value.items()} if isinstance(value, Mapping) else {}


def _joined(frames: Iterable[pl.LazyFrame], *, lazy: bool) -> pl.LazyFrame | pl.DataFrame:
    whole = pl.concat(list(frames))
    return whole if lazy else whole.collect()


def _json(name: str, value: object) -> bytes:
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise LakeError(
            "an asset's value must be a frame or plain JSON values", value=str(error), place=name
        ) from error
