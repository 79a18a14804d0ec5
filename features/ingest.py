"""Logs -> lake: read, name, check, partition, merge, and say what became of every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

from features.errors import SourceError
from features.lake import Lake, check_pool_name
from features.naming import Alias, ClassRule, NodeNames, classify, headers_of
from features.prefix import thin
from features.quality import bad_lines, check
from features.readers.base import Batch, ReadContext, Reader
from features.readers.files import LogFile, find_logs, log_digest
from features.readers.registry import AUTO, reader_named, sniff
from features.schemas import TABLES

FLUSH_ROWS = 1_000_000
"""Rows that are held before they are merged into partitions."""
_NODE_COLUMNS = {
    "requests": ("prefill_node", "decode_node"),
    "decisions": ("prefill_node", "decode_node"),
    "node_loads": ("node",),
}


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What became of the rows. read = accepted + quarantined + skipped + duplicates.

    `format`: the formats met, joined by `,`. `rules`: first broken rule -> rows. `skipped_kinds` sums to `skipped`.
    `partitions`: those that hold rows of these files. `unreadable`: file -> why nothing in it could be read.
    `unmapped`: node name without a valid alias -> rows.
    """

    format: str
    files: int
    read: int
    accepted: int
    quarantined: int
    skipped: int
    duplicates: int
    rules: dict[str, int]
    partitions: list[str]
    skipped_kinds: dict[str, int] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    unmapped: dict[str, int] = field(default_factory=dict)

    @property
    def nothing_read(self) -> bool:
        """Every row broke a rule, or repeats one that did: a command ends with 2."""
        return not self.partitions and self.skipped == 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def ingest(
    paths: Sequence[Path] | Path,
    *,
    format: str,  # noqa: A002  the option's name
    pool: str,
    lake: Lake,
    starts_at_us: int | None = None,
    aliases: Sequence[Alias] = (),
    class_rules: Sequence[ClassRule] = (),
) -> IngestReport:
    """Reads files, folders and glob patterns into the lake. Reading a file again adds no row.

    `format` is a reader's name or `auto`, which recognises each file by its content. A table's partition day is the UTC
    day of arrival (requests), of the sample (node_loads) or of the decision (decisions). With several files, one that
    cannot be read at all is reported and counts as one quarantined row.

    Raises SourceError if there is no file, or nothing in any file could be read.
    """
    check_pool_name(pool)
    logs = find_logs([paths] if isinstance(paths, Path) else paths)
    fixed = None if format == AUTO else reader_named(format)
    run = _Run(pool, lake, NodeNames(aliases), tuple(class_rules), starts_at_us)
    errors: list[SourceError] = []
    for log in logs:
        try:
            run.read(log, fixed or sniff(log.path).reader)
        except SourceError as error:
            errors.append(error)
            run.unreadable[log.name] = str(error)
    if len(errors) == len(logs):
        raise errors[0]
    run.counts["read"] += len(errors)
    run.counts["quarantined"] += len(errors)
    run.rules.update({"file_unreadable": len(errors)} if errors else {})
    run.flush()
    return run.report(len(logs))


@dataclass(slots=True)
class _FileRows:
    """What one file held: counts, rows by (table, day), quarantined rows."""

    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    rows: dict[tuple[str, date], list[pl.DataFrame]] = field(default_factory=dict)
    quarantined: list[pl.DataFrame] = field(default_factory=list)
    parsed: int = 0


class _Run:
    """One ingest: rows that wait for their partition, and the counts so far."""

    def __init__(
        self, pool: str, lake: Lake, names: NodeNames, rules: tuple[ClassRule, ...], starts_at_us: int | None
    ) -> None:
        self.pool, self.lake, self.names, self.class_rules = pool, lake, names, rules
        self.starts_at_us = starts_at_us
        self.counts: Counter[str] = Counter()
        self.rules: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.formats: set[str] = set()
        self.partitions: set[str] = set()
        self.unreadable: dict[str, str] = {}
        self._waiting: dict[tuple[str, date], list[pl.DataFrame]] = {}
        self._sources: dict[tuple[str, date], dict[str, str]] = {}
        self._rows = 0

    def read(self, log: LogFile, reader: Reader) -> None:
        """Reads one file whole before any of it counts: an error leaves no trace of it.

        Raises SourceError if the file cannot be read or no line of it is of the format.
        """
        digest = log_digest(log.path)
        context = ReadContext(self.pool, log.name, self.starts_at_us, headers_of(self.class_rules))
        held = _FileRows()
        for batch in reader.read(log.path, context):
            self._take(batch, reader, log, held)
        if not held.parsed:
            rule = held.quarantined[0]["rule"][0] if held.quarantined else "no_rows"
            raise SourceError(
                f"a log must hold rows of the format {reader.name}",
                value=f"{sum(rows.height for rows in held.quarantined)} other lines, the first breaks `{rule}`",
                place=str(log.path),
                hint="is the format right, and the file whole?",
            )
        self._keep(held, reader, log, digest)
        if self._rows >= FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Merges what waits, one partition after the other."""
        for (table, day), frames in sorted(self._waiting.items()):
            merged = self.lake.merge(table, day, self.pool, pl.concat(frames), sources=self._sources[table, day])
            self.counts["accepted"] += merged.added
            self.counts["duplicates"] += merged.duplicates
            self.partitions.add(merged.partition.name)
        self._waiting.clear()
        self._sources.clear()
        self._rows = 0

    def report(self, files: int) -> IngestReport:
        """The counts."""
        return IngestReport(
            format=",".join(sorted(self.formats)),
            files=files,
            read=self.counts["read"],
            accepted=self.counts["accepted"],
            quarantined=self.counts["quarantined"],
            skipped=self.skipped.total(),
            duplicates=self.counts["duplicates"],
            rules=dict(sorted(self.rules.items())),
            partitions=sorted(self.partitions),
            skipped_kinds=dict(sorted(self.skipped.items())),
            unreadable=self.unreadable,
            unmapped=dict(sorted(self.names.unmapped.items())),
        )

    def _take(self, batch: Batch, reader: Reader, log: LogFile, held: _FileRows) -> None:
        """Checks a batch and sorts its rows by what becomes of them."""
        held.parsed += batch.frame.height + sum(batch.skipped.values())
        source = {"source": pl.lit(reader.name), "source_file": pl.lit(log.name)}
        checked = check(reader.table, self._named(reader.table, batch.frame).with_columns(**source))
        kinds = {kind: count for kind, count in batch.skipped.items() if count}
        held.skipped.update(kinds)
        held.counts["read"] += sum(kinds.values()) + checked.accepted.height + checked.duplicates
        held.counts["duplicates"] += checked.duplicates
        time = TABLES[reader.table].time_column
        dated = checked.accepted.with_columns(pl.from_epoch(time, time_unit="us").dt.date().alias("_day"))
        for rows in dated.partition_by("_day", maintain_order=True):
            held.rows.setdefault((reader.table, rows["_day"][0]), []).append(rows.drop("_day"))
        lines = bad_lines(batch.bad, reader.name, log.name)
        held.quarantined += [rows for rows in (lines, checked.quarantined) if rows.height]

    def _keep(self, held: _FileRows, reader: Reader, log: LogFile, digest: str) -> None:
        self.formats.add(reader.name)
        self.counts.update(held.counts)
        self.skipped.update(held.skipped)
        for key, frames in held.rows.items():
            self._waiting.setdefault(key, []).extend(frames)
            self._sources.setdefault(key, {})[f"{log.name}#{digest[:8]}"] = digest
            self._rows += sum(rows.height for rows in frames)
        if held.quarantined:
            bad = pl.concat(held.quarantined)
            self.counts["read"] += bad.height
            self.counts["quarantined"] += bad.height
            self.rules.update(dict(bad["rule"].value_counts().rows()))
            self.lake.write_quarantine(reader.table, self.pool, digest, bad)

    def _named(self, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        time = TABLES[table].time_column
        for column in _NODE_COLUMNS.get(table, ()):
            frame = self.names.translate(frame, column, time)
        if table != "requests":
            return frame
        return classify(thin(frame), self.class_rules) if frame.height else frame
