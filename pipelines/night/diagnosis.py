"""A day's diagnosis with what the settings know of the pool."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime
from pathlib import Path

from features.diagnosis.diagnose import Diagnosis, diagnose
from features.diagnosis.facts import ClassTarget, DiagnosisFacts, Limits, NodeFact, UplinkFact
from features.kv import bytes_per_s
from features.lake import Lake
from pipelines.settings import DAY_US, Pool

_MS = 1000.0


def pool_facts(pool: Pool, day: date) -> DiagnosisFacts:
    """Targets, nodes and uplinks that are valid at some time of the day."""
    start_us = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
    end_us = start_us + DAY_US
    nodes = [n for n in pool.nodes if _in_force(n.valid.from_us, n.valid.to_us, start_us, end_us)]
    links = [u for u in pool.uplinks if _in_force(u.valid.from_us, u.valid.to_us, start_us, end_us)]
    return DiagnosisFacts(
        classes=tuple(ClassTarget(c.name, _ms(c.ttft_target_s), _ms(c.tpot_target_s)) for c in pool.classes),
        # A node or link that was described anew during the day counts as it was described last.
        nodes=tuple({n.name: NodeFact(n.name, n.role, n.rack, bytes_per_s(n.port_gbps)) for n in nodes}.values()),
        uplinks=tuple(
            {(u.from_rack, u.to_rack): UplinkFact(u.from_rack, u.to_rack, bytes_per_s(u.gbps)) for u in links}.values()
        ),
        high_water=pool.incumbent.high_water,
    )


def diagnose_day(lake: Lake, day: date, pool: str, facts: DiagnosisFacts, *, limits: Limits | None = None) -> Diagnosis:
    """`features.diagnosis.diagnose`, spilling to a temporary folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="routecal-diagnosis-") as spill:
        return diagnose(lake, day, pool, facts=facts, spill=Path(spill), limits=limits)


def _in_force(from_us: int | None, to_us: int | None, start_us: int, end_us: int) -> bool:
    return (from_us is None or from_us < end_us) and (to_us is None or to_us > start_us)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MS
