"""Logs -> lake: read, name, check, stage, merge, derive, and say what became of every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

from features.derived.derive import Derived, derive
from features.errors import SourceError
from features.firewall.facts import PoolFacts
from features.firewall.judges import Judge, judge_of
from features.ingest_report import IngestReport
from features.lake import Lake, check_pool_name
from features.naming import Alias, ClassRule, NodeNames, classify, headers_of
from features.prefix import thin
from features.privacy import NAMED, Names, key_of_lake
from features.quality import bad_lines, check, reason_of
from features.readers.base import Batch, ReadContext, Reader
from features.readers.files import LogFile, find_logs, log_digest
from features.readers.registry import AUTO, reader_named, sniff
from features.schemas import TABLES
from features.staging import Part, StagedFile, Staging

REQUEST_TABLES = ("requests", "request_parts")
_NODE_COLUMNS = {
    "requests": ("prefill_node", "decode_node"),
    "request_parts": ("prefill_node", "decode_node"),
    "decisions": ("prefill_node", "decode_node"),
    "decision_parts": ("endpoint",),
    "node_loads": ("node",),
    "steps": ("node",),
    "metric_samples": ("node",),
    "transfer_totals": ("node",),
}


def ingest(
    paths: Sequence[Path] | Path,
    *,
    format: str,  # noqa: A002  the option's name
    pool: str,
    lake: Lake,
    starts_at_us: int | None = None,
    aliases: Sequence[Alias] = (),
    class_rules: Sequence[ClassRule] = (),
    facts: PoolFacts | None = None,
    name_key: bytes | None = None,
    trace: Path | None = None,
) -> IngestReport:
    """Reads files, folders and glob patterns into the lake. Reading a file again adds no row.

    `format` is a reader's name or `auto`, which recognises each file by its content. A table's partition day is the UTC
    day of arrival (requests), of the sample (node_loads) or of the decision (decisions). Files are streamed: memory
    does not grow with them. With several files, one that cannot be read at all is reported and counts as one
    quarantined row. `facts` of the pool sharpen the firewall; `name_key` hashes tenants and sessions (None: the lake's
    own). `trace`: what was replayed, for logs of a replay that does not keep block hashes.

    Raises SourceError if there is no file, or nothing in any file could be read.
    """
    check_pool_name(pool)
    fixed = None if format == AUTO else reader_named(format)
    errors: list[SourceError] = []
    with Staging(lake.root) as staging:
        logs = find_logs([paths] if isinstance(paths, Path) else paths, staging.new_part)
        context = _Context(
            pool, lake, NodeNames(aliases), tuple(class_rules), starts_at_us, facts or PoolFacts(), name_key, trace
        )
        run = _Run(context, staging)
        for log in logs:
            try:
                run.read(log, fixed or run.recognise(log))
            except SourceError as error:
                errors.append(error)
                run.unreadable[log.name] = str(error).replace(str(log.path), log.name)  # a member of an archive
        if len(errors) == len(logs):
            raise errors[0]
        if errors:
            run.refuse(len(errors))
        run.merge()
        return run.report(len(logs))


@dataclass(frozen=True, slots=True)
class _Context:
    """What an ingest is given."""

    pool: str
    lake: Lake
    nodes: NodeNames
    class_rules: tuple[ClassRule, ...]
    starts_at_us: int | None
    facts: PoolFacts
    name_key: bytes | None
    trace: Path | None


@dataclass(slots=True)
class _FileRows:
    """What one file held: counts, staged rows, quarantined rows."""

    staged: StagedFile
    judge: Judge
    digest: str
    skipped: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    bad: list[pl.DataFrame] = field(default_factory=list)
    parsed: int = 0
    lines_bad: int = 0
    duplicates: int = 0


class _Run:
    """One ingest: staged rows that wait for their partition, and the counts so far."""

    def __init__(self, context: _Context, staging: Staging) -> None:
        self._c, self._staging = context, staging
        self._names: Names | None = None
        self._counts: Counter[str] = Counter()
        self._rules: Counter[str] = Counter()
        self._samples: dict[str, dict[str, Any]] = {}
        self._skipped, self._told = Counter[str](), Counter[str]()
        self._corrected: Counter[str] = Counter()
        self._offsets: dict[str, int] = {}
        self._formats: set[str] = set()
        self._recognised: dict[str, str] = {}
        self._partitions: set[str] = set()
        self._parts: dict[tuple[str, date], list[Part]] = {}
        self._sources: dict[tuple[str, date], dict[str, str]] = {}
        self._derived = Derived()
        self.unreadable: dict[str, str] = {}

    def recognise(self, log: LogFile) -> Reader:
        """The reader that a file fits by its content. Errors as `sniff`."""
        sniffed = sniff(log.path)
        self._recognised.setdefault(sniffed.reader.name, sniffed.reason)
        return sniffed.reader

    def read(self, log: LogFile, reader: Reader) -> None:
        """Reads one file whole before any of it counts: an error leaves no trace of it.

        Raises SourceError if the file cannot be read or no line of it is of the format.
        """
        digest = log_digest(log.path)
        headers = headers_of(self._c.class_rules)
        context = ReadContext(self._c.pool, log.name, self._c.starts_at_us, headers, self._c.trace)
        held = _FileRows(self._staging.file(), judge_of(reader.table, self._c.facts), digest)
        try:
            for batch in reader.read(log.path, context):
                self._take(batch, reader, log, held)
            if not held.parsed:
                raise _no_rows(reader, log, held)
        except BaseException:  # an interrupt as well: what is staged must not outlive its file
            held.staged.drop()
            raise
        self._keep(held, reader, log)

    def merge(self) -> None:
        """Merges what is staged, one partition after the other, and rebuilds what follows from it."""
        for (table, day), parts in sorted(self._parts.items()):
            merged = self._c.lake.merge_staged(
                table, day, self._c.pool, parts, self._staging, sources=self._sources[table, day]
            )
            self._counts["accepted"] += merged.added
            self._counts["duplicates"] += merged.duplicates
            self._partitions.add(merged.partition.name)
        touched = list(self._parts)
        self._derived = derive(
            self._c.lake, self._c.pool, touched, self._staging, self._c.facts, self._rules_on_hashes()
        )
        self._corrected.update(self._derived.corrected)
        self._offsets.update(self._derived.offsets_us)

    def _rules_on_hashes(self) -> list[ClassRule]:
        """The class rules for rows whose tenants are hashed already."""
        return [
            rule if rule.tenant is None else replace(rule, tenant=self._hasher().hash_of("tenant", rule.tenant))
            for rule in self._c.class_rules
        ]

    def _hasher(self) -> Names:
        if self._names is None:
            self._names = Names(self._c.name_key or key_of_lake(self._c.lake.root), self._c.pool, self._c.lake)
        return self._names

    def refuse(self, files: int) -> None:
        """Counts files of which nothing could be read, a row each."""
        self._counts["read"] += files
        self._quarantine("file_unreadable", files, {"file": next(iter(self.unreadable)), "row": None})

    def _quarantine(self, rule: str, rows: int, sample: dict[str, Any]) -> None:
        """Counts rows that broke a rule."""
        self._counts["quarantined"] += rows
        self._rules[rule] += rows
        self._samples.setdefault(rule, {**sample, "reason": reason_of(rule)})

    def report(self, files: int) -> IngestReport:
        """The counts."""
        counts = {name: self._counts[name] for name in ("read", "accepted", "quarantined", "duplicates")}
        return IngestReport(
            format=",".join(sorted(self._formats)),
            files=files,
            skipped=self._skipped.total(),
            **counts,
            rules=dict(sorted(self._rules.items())),
            partitions=sorted(self._partitions),
            skipped_kinds=dict(sorted(self._skipped.items())),
            told=dict(sorted(self._told.items())),
            recognised=dict(sorted(self._recognised.items())),
            unreadable=self.unreadable,
            unmapped=dict(sorted(self._c.nodes.unmapped.items())),
            samples=dict(sorted(self._samples.items())),
            corrected=dict(sorted(self._corrected.items())),
            clock_offsets_us=dict(sorted(self._offsets.items())),
            derived=dict(sorted(self._derived.rows.items())),
            derived_rules=dict(sorted(self._derived.rules.items())),
        )

    def _take(self, batch: Batch, reader: Reader, log: LogFile, held: _FileRows) -> None:
        """Checks a batch and stages its rows by what becomes of them."""
        table = reader.table
        held.skipped.update({kind: count for kind, count in batch.skipped.items() if count})
        held.told.update({kind: count for kind, count in batch.told.items() if count})
        held.parsed += batch.frame.height + sum(batch.skipped.values())
        held.lines_bad += len(batch.bad)
        held.bad += [rows for rows in (bad_lines(batch.bad, reader.name, log.name),) if rows.height]
        if batch.frame.is_empty():
            return
        source = {"source": pl.lit(reader.name), "source_file": pl.lit(log.name)}
        checked = check(table, self._named(table, batch.frame, held.digest).with_columns(**source), held.judge.rules)
        held.bad += [rows for rows in (checked.quarantined,) if rows.height]
        held.duplicates += checked.duplicates
        held.judge.see(checked.accepted)
        for day, rows in _by_day(table, checked.accepted):
            held.staged.add(table, day, rows)

    def _keep(self, held: _FileRows, reader: Reader, log: LogFile) -> None:
        verdict = held.judge.judge(held.staged, reader.table)
        held.bad += verdict.quarantined
        self._corrected.update(verdict.corrected)
        self._offsets.update(verdict.offsets_us)
        self._formats.add(reader.name)
        self._skipped.update(held.skipped)
        self._told.update(held.told)
        # Counted where rows come in, so that one that is lost on its way shows.
        self._counts["read"] += held.parsed + held.lines_bad
        self._counts["duplicates"] += held.duplicates
        for key, parts in held.staged.parts.items():
            if held.staged.rows[key]:
                self._parts.setdefault(key, []).extend(parts)
                self._sources.setdefault(key, {})[f"{log.name}#{held.digest[:8]}"] = held.digest
        for bad in held.bad:
            firsts = bad.group_by("rule", maintain_order=True).agg(pl.len(), pl.col("source_row").first())
            for rule, rows, row in firsts.iter_rows():
                self._quarantine(rule, rows, {"file": log.name, "row": row})
        if held.bad:
            ordered = pl.concat(held.bad).sort("source_row", maintain_order=True)
            self._c.lake.write_quarantine(reader.table, self._c.pool, held.digest, [ordered])
        if self._names is not None:
            self._names.close(held.digest)

    def _named(self, table: str, frame: pl.DataFrame, digest: str) -> pl.DataFrame:
        """Nodes by their own names, classes by rules on what the log says, then tenants and sessions hashed."""
        time = TABLES[table].time_column
        for column in _NODE_COLUMNS.get(table, ()):
            frame = self._c.nodes.translate(frame, column, time)
        if table not in REQUEST_TABLES:
            return frame
        if {"block_hashes", "block_tokens", "prompt_tokens"} <= set(frame.columns):
            frame = thin(frame)
        if table == "requests":
            frame = classify(frame, self._c.class_rules)
        return self._hasher().hashed(frame, digest) if set(NAMED) & set(frame.columns) else frame


def _by_day(table: str, rows: pl.DataFrame) -> Iterator[tuple[date, pl.DataFrame]]:
    """Rows by the UTC day of the table's time."""
    days = rows.select(pl.from_epoch(TABLES[table].time_column, time_unit="us").dt.date().alias("day"))["day"]
    if days.n_unique() <= 1:
        if rows.height:
            yield days[0], rows
        return
    for part in rows.with_columns(_day=days).partition_by("_day", maintain_order=True):
        yield part["_day"][0], part.drop("_day")


def _no_rows(reader: Reader, log: LogFile, held: _FileRows) -> SourceError:
    other = sum(rows.height for rows in held.bad)
    first = f", the first breaks `{held.bad[0]['rule'][0]}`" if held.bad else ""
    return SourceError(
        f"a log must hold rows of the format {reader.name}",
        value=f"{other} other lines{first}",
        place=str(log.path),
        hint="is the format right, and the file whole?",
    )
