"""All tables of a diagnosis, in the order in which one needs the other."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from features.diagnosis.facts import DiagnosisFacts, Limits
from features.diagnosis.series import imbalance
from features.diagnosis.session import Session

Rows: TypeAlias = list[dict[str, Any]]

DIMENSIONS = {
    "all": "'all'",
    "slo_class": "slo_class",
    "prompt_bucket": "prompt_bucket",
    "prefill_node": "prefill_node",
    "decode_node": "decode_node",
    "router_id": "router_id",
}
"""Name of a dimension -> its expression over the table `r`."""
_SLO = ("all", "prompt_bucket", "prefill_node", "decode_node")
_FEWEST_TTL_HITS, _FEWEST_TTL_MISSES = 100, 100
_CHARTED_WINDOWS = 240
NO_TTL_S = 1e18


def tables_of(session: Session, facts: DiagnosisFacts, limits: Limits) -> dict[str, Rows]:
    """Name -> rows of every table of docs/diagnosis.md. A table about which the logs say nothing is empty."""
    session.set(high_water=facts.high_water, window_us=round(limits.window_s * 1e6))
    session.build("r", file="base")
    traffic = session.one("traffic")
    found: dict[str, Rows] = {"traffic": [traffic]}
    if not traffic["requests"]:
        return found
    session.set(from_us=traffic["from_us"], to_us=traffic["to_us"])
    session.build("samples")
    found["ttft_stages"] = _by_dimension(session, "ttft_stages", tuple(DIMENSIONS))
    found["slo"] = _by_dimension(session, "slo", _SLO)
    for name in ("prefill_nodes", "decode_nodes"):
        found[name] = session.rows(name)
    _loads(session, limits, found)
    _links(session, found)
    _routing(session, limits, found)
    _speed(session, found)
    _prefix(session, limits, found)
    return found


def _by_dimension(session: Session, file: str, names: tuple[str, ...]) -> Rows:
    # One dimension at a time: quantiles hold their values.
    return [row for name in names for row in session.rows(file, name=name, dimension=DIMENSIONS[name])]


def _loads(session: Session, limits: Limits, found: dict[str, Rows]) -> None:
    session.build("windows")
    whole = session.frame("SELECT role, metric, window_us, node, value FROM windows")
    found["imbalance"] = imbalance(whole, limits.window_s)
    span_us = max(1, session.ask("SELECT max(window_us) - min(window_us) AS us FROM windows")[0]["us"] or 1)
    session.set(chart_us=max(round(limits.window_s * 1e6), span_us // _CHARTED_WINDOWS))
    found["windows"] = session.rows("charted")
    found["pool_high_water"] = session.rows("pool_high_water")


def _routing(session: Session, limits: Limits, found: dict[str, Rows]) -> None:
    found["telemetry"] = session.rows("telemetry")
    found["telemetry_period"] = session.rows("telemetry_period")
    session.set(
        period_us=period_us(found["telemetry"], found["telemetry_period"]),
        decision_stride=max(1, math.ceil(found["traffic"][0]["requests"] / limits.decisions)),
    )
    session.build("load_events")
    session.build("given_windows")
    found["imbalance"] += imbalance(session.frame("SELECT * FROM given_windows"), limits.window_s)
    session.build("placements")
    session.build("avoidable")
    for name in ("repeats", "agreement", "misplaced", "sums"):
        found[name] = session.rows(name)
    session.drop("flows", "load_events", "given_windows", "placements", "avoidable")


def period_us(telemetry: Rows, period: Rows) -> int:
    """The routers' telemetry period: twice the usual age at a decision, else the usual time between two samples."""
    ages = [float(row["age_p50_ms"]) for row in telemetry if row["age_p50_ms"] is not None]
    if ages:
        return max(1000, round(2000 * max(ages)))
    usual = period[0]["period_p50_ms"] if period else None
    return max(1000, round(1000 * float(usual))) if usual else 1_000_000


def _links(session: Session, found: dict[str, Rows]) -> None:
    session.build("flows")
    (usual,) = session.ask("SELECT median(bytes) AS bytes, median(alone_bytes_per_s) AS rate FROM flows")
    session.set(large_bytes=float(usual["bytes"] or 0.0), usual_bytes_per_s=float(usual["rate"] or 1.0))
    found["links"] = session.rows("links")
    found["pair_rates"] = session.rows("pair_rates")
    found["transfer_totals"] = session.rows("transfer_totals")


def _speed(session: Session, found: dict[str, Rows]) -> None:
    session.build("prefill_runs")
    found["prefill_speed"] = session.rows("prefill_speed")
    found["decode_speed"] = session.rows("decode_speed")
    session.drop("prefill_runs")


def _prefix(session: Session, limits: Limits, found: dict[str, Rows]) -> None:
    uses = session.ask("SELECT coalesce(sum(len(block_hashes)), 0) AS n FROM r")[0]["n"]
    stride = max(1, math.ceil(int(uses) / limits.blocks))
    session.set(block_stride=stride, ttl_s=NO_TTL_S)
    for name in ("prefill_work", "blocks", "rooms", "block_uses"):
        session.build(name)
    evidence = session.one("ttl_evidence")
    ttl_s = ttl_of(evidence)
    session.set(ttl_s=NO_TTL_S if ttl_s is None else ttl_s)
    found["prefix"] = [row | {"block_stride": stride} for row in session.rows("prefix")]
    found["prefix_loss"] = session.rows("prefix_loss")
    found["ttl"] = [evidence | {"ttl_s": ttl_s}]
    found["hot_prefix"] = session.rows("hot_prefix")
    session.drop("prefill_work", "blocks", "rooms", "block_uses")


def ttl_of(evidence: dict[str, Any]) -> float | None:
    """Seconds after which a P drops idle prefixes, if the log shows it: late misses, and no hit as late as they."""
    if (evidence.get("misses") or 0) < _FEWEST_TTL_MISSES or (evidence.get("hits") or 0) < _FEWEST_TTL_HITS:
        return None
    late = evidence["miss_gap_p05_s"]
    return float(late) if late >= evidence["hit_gap_p95_s"] else None
