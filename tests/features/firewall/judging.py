"""Logs of our own format for tests of the firewall: from request to report and lake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from features.firewall.facts import PoolFacts
from features.ingest import ingest
from features.ingest_report import IngestReport
from features.lake import Lake
from tests.features.logs import NAME_KEY, lines, request

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """A report, the table's rows and the quarantine of one log."""

    report: IngestReport
    rows: pl.DataFrame
    quarantine: pl.DataFrame

    @property
    def refused(self) -> list[tuple[str, int]]:
        """(rule, row of the file) of every quarantined row."""
        return [(rule, row) for rule, row in self.quarantine.select("rule", "source_row").rows()]


def judged(tmp_path: Path, rows: Sequence[Row], *, table: str = "requests", facts: PoolFacts | None = None) -> Judged:
    """What becomes of a log with these lines. Rows read are accounted for, and every rule has its sample."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(lines(*rows))
    lake = Lake(tmp_path / "lake")
    report = ingest(log, format="auto", pool="a", lake=lake, facts=facts, name_key=NAME_KEY)
    assert report.read == len(rows) == report.accepted + report.quarantined + report.skipped + report.duplicates
    assert sum(report.rules.values()) == report.quarantined
    paths = list((lake.root / "quarantine").rglob("*.parquet"))
    quarantine = pl.concat(map(pl.read_parquet, paths)) if paths else pl.DataFrame({"rule": [], "source_row": []})
    assert quarantine.height == report.quarantined
    for rule, sample in report.samples.items():
        held = quarantine.filter(rule=rule)
        assert sample == {"file": "log.jsonl", "row": held["source_row"][0], "reason": held["reason"][0]}
        assert len(sample["reason"]) > 20
    return Judged(report, lake.scan(table, lake.days(table, "a"), "a").collect(), quarantine)


def served(i: int, *, p_off_us: int = 0, d_off_us: int = 0, wait_us: int = 2_000, **changes: Any) -> Row:
    """A request of 40 ms prefill: P starts `wait_us` after it was told, the first token comes 33 ms after prefill.

    `p_off_us`, `d_off_us`: how far the clocks of P and D are ahead of the router's.
    """
    told = request(i)["arrived_at_us"] + 11
    begun = told + wait_us
    return request(
        i,
        **{
            "decided_at_us": told,
            "prefill_started_at_us": begun + p_off_us,
            "prefill_finished_at_us": begun + 40_003 + p_off_us,
            "transfer_started_at_us": begun + 40_003 + p_off_us,
            "transfer_finished_at_us": begun + 60_001 + p_off_us,
            "decode_admitted_at_us": begun + 61_007 + d_off_us,
            "first_token_at_us": begun + 73_003,
            "finished_at_us": begun + 700_001,
            **changes,
        },
    )


def told_to_start_us(rows: pl.DataFrame) -> pl.Series:
    """From the router's decision to P's start, row by row."""
    return rows["prefill_started_at_us"] - rows["decided_at_us"]


def in_chunks(frame: pl.DataFrame, sizes: Sequence[int], take: Callable[[pl.DataFrame], object]) -> None:
    """Gives `frame` to `take` in pieces of these sizes, the last one takes the rest."""
    at = 0
    for size in sizes:
        take(frame.slice(at, size))
        at += size
    take(frame.slice(at))
