"""The diagnosis of one day of a pool: tables, findings, and an answer in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from features.diagnosis.answers import Answer, answers_of
from features.diagnosis.facts import DiagnosisFacts, Limits
from features.diagnosis.finding import Finding, Rows
from features.diagnosis.findings import findings_of
from features.diagnosis.session import session
from features.diagnosis.tables import tables_of
from features.errors import LakeError
from features.lake import Lake

_FOR_CHARTS = ("windows", "sums")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One day of a pool. `tables`: name -> rows (docs/diagnosis.md); `sampled`: what was looked at in part, and how."""

    pool: str
    day: date
    findings: tuple[Finding, ...]
    answers: tuple[Answer, ...]
    tables: Mapping[str, Rows]
    sampled: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """Findings first, then the answers, the overall one last."""
        return [*(finding.text for finding in self.findings), *(answer.text for answer in self.answers)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; tables that only charts need are left out."""
        return {
            "pool": self.pool,
            "day": self.day.isoformat(),
            "findings": [asdict(finding) for finding in self.findings],
            "answers": [asdict(answer) for answer in self.answers],
            "sentences": self.sentences,
            "sampled": list(self.sampled),
            "tables": {name: rows for name, rows in self.tables.items() if name not in _FOR_CHARTS},
        }


def diagnose(
    lake: Lake, day: date, pool: str, *, facts: DiagnosisFacts, spill: Path, limits: Limits | None = None
) -> Diagnosis:
    """Diagnose a day. `spill`: a folder for what does not fit into memory, empty again afterwards.

    Raises LakeError if the lake has no requests of the day.
    """
    limits = limits or Limits()
    if not lake.path("requests", day, pool).exists():
        raise LakeError(
            "a day must have requests to be diagnosed", value=f"{pool} {day}", place=str(lake.root),
            hint=_held(lake, pool),
        )  # fmt: skip
    with session(lake, [day], pool, facts, limits, spill) as opened:
        tables = tables_of(opened, facts, limits)
    findings = findings_of(tables)
    answers = answers_of(tables, findings)
    return Diagnosis(pool, day, tuple(findings), tuple(answers), tables, tuple(_sampled(tables)))


def _held(lake: Lake, pool: str) -> str:
    """What could be diagnosed instead."""
    days, pools = lake.days("requests", pool), lake.pools()
    if days:
        return f"{pool} has requests of {len(days)} days, {days[0]} to {days[-1]}; routecal ingest reads more logs"
    return f"pools with requests: {', '.join(pools)}" if pools else "routecal ingest reads its logs"


def _sampled(tables: Mapping[str, Rows]) -> list[str]:
    found = []
    looked = sum(row["sampled"] for row in tables.get("sums", ()))
    known = tables["traffic"][0].get("ttft_known") or 0
    if looked < known / 2:
        found.append(f"What another node would have spared is estimated from {looked} of {known} requests.")
    stride = max((row["block_stride"] for row in tables.get("prefix", ())), default=1)
    if stride > 1:
        found.append(f"Prefix hits are followed for one in {stride} prompt blocks, chosen by their hash.")
    return found
