"""Findings about what routers did: herding, old telemetry, waits that another node would have spared."""

from __future__ import annotations

from typing import Any

from features.diagnosis.finding import Finding, Tables, bounds, percent
from features.diagnosis.intervals import Estimate, ratio_of_sums, wilson

FEWEST_DECISIONS = 200
HERD_EXCESS = 0.25
"""Share of consecutive decisions for the same node beyond what chance gives."""
HERD_COST = 1.2
"""Wait of late requests of a run over that of the first, from which runs do harm; unknown waits do not acquit."""
STALE_AGE_MS, FEWEST_AGES = 2000.0, 30
STALE_PLACEMENTS = 2.0
"""Decisions a node within one telemetry age, from which age matters."""
AVOIDABLE_SHARE, AVOIDABLE_LOW, AVOIDABLE_MS = 0.15, 0.08, 20.0
"""Part of TTFT that a less loaded node would have spared: estimate and lower end of its interval; ms a request."""


def routing_findings(tables: Tables) -> list[Finding]:
    """`herding`, `stale_telemetry`, `avoidable_wait`."""
    return [*_herding(tables), *_stale(tables), *_avoidable(tables)]


def avoidable(tables: Tables) -> Estimate | None:
    """Part of TTFT that a less loaded node would have spared."""
    return ratio_of_sums(tables.get("sums", []), "saved_ms", "sampled_ttft_ms")


def _herding(tables: Tables) -> list[Finding]:
    found = []
    for side in ("decode", "prefill"):
        herd = [(row, share) for row in tables.get("repeats", ()) if row["side"] == side and (share := _herds(row))]
        if not herd:
            continue
        pairs = sum(row["pairs"] for row, _ in herd)
        value = sum(row["repeats"] for row, _ in herd) / pairs
        chance = sum(row["expected_frac"] * row["pairs"] for row, _ in herd) / pairs
        share = wilson(value * pairs, pairs)
        assert share is not None
        low, high = bounds(share)
        routers = ", ".join(row["router_id"] for row, _ in herd)
        role = "D" if side == "decode" else "P"
        found.append(
            Finding(
                name="herding",
                severity="severe",
                subject=f"{routers} on {role}",
                value=value,
                unit="share of consecutive decisions for the same node",
                compared_to=chance,
                comparison="the same shares in random order",
                low=low,
                high=high,
                n=pairs,
                counted="pairs of consecutive decisions",
                text=f"{routers}: {percent(value)} of consecutive decisions chose the same {role} as the one before "
                f"[{percent(share.low)}, {percent(share.high)}; {pairs} pairs], {percent(chance)} would by chance; "
                f"runs of up to "
                f"{max(row['longest_run'] for row, _ in herd)}.{_cost(herd)}{_together(tables, side)}",
            )
        )
    return found


def _herds(row: dict[str, Any]) -> Estimate | None:
    share = wilson(row["repeats"], row["pairs"])
    if share is None or row["decisions"] < FEWEST_DECISIONS or share.low - row["expected_frac"] < HERD_EXCESS:
        return None
    first, late = row["first_wait_ms"], row["late_wait_ms"]
    harmless = first is not None and late is not None and late < HERD_COST * first
    return None if harmless else share


def _cost(herd: list[tuple[dict[str, Any], Estimate]]) -> str:
    known = [row for row, _ in herd if row["first_wait_ms"] is not None and row["late_wait_ms"] is not None]
    if not known:
        return " What it costs is unknown: the log has no waits."
    worst = max(known, key=lambda row: row["late_wait_ms"] - row["first_wait_ms"])
    return (
        f" Late in such a run a request waits {worst['late_wait_ms']:.0f} ms, the first one "
        f"{worst['first_wait_ms']:.0f} ms."
    )


def _together(tables: Tables, side: str) -> str:
    for row in tables.get("agreement", ()):
        if row["side"] == side and row["agreement_frac"] > row["expected_frac"]:
            return (
                f" Two routers chose the same node within one telemetry period in {percent(row['agreement_frac'])} "
                f"of the cases, "
                f"{percent(row['expected_frac'])} by chance."
            )
    return ""


def _stale(tables: Tables) -> list[Finding]:
    rows = [row for row in tables.get("telemetry", ()) if row["known"]]
    known = sum(row["known"] for row in rows)
    if known < FEWEST_AGES:
        return []
    age_ms = sum(row["age_p50_ms"] * row["known"] for row in rows) / known
    traffic = tables["traffic"][0]
    seconds = max((traffic["to_us"] - traffic["from_us"]) / 1e6, 1e-6)
    nodes = max(len(tables["decode_nodes"]), 1)
    placed = traffic["requests"] / seconds * age_ms / 1000 / nodes
    if age_ms < STALE_AGE_MS or placed < STALE_PLACEMENTS:
        return []
    return [
        Finding(
            name="stale_telemetry",
            severity="warning",
            subject=", ".join(row["router_id"] for row in rows),
            value=age_ms,
            unit="ms, median age of a sample at a decision",
            compared_to=STALE_AGE_MS,
            comparison="the threshold",
            low=None,
            high=None,
            n=known,
            counted="logged decisions",
            text=f"{', '.join(row['router_id'] for row in rows)} decide on samples that are {age_ms / 1000:.1f} s "
            f"old (median of {known} decisions); in "
            f"that time the pool "
            f"places {placed:.1f} requests on every D.",
        )
    ]


def _avoidable(tables: Tables) -> list[Finding]:
    share = avoidable(tables)
    sampled = sum(row["sampled"] for row in tables.get("sums", ()))
    if share is None or sampled < FEWEST_DECISIONS:
        return []
    mean_ms = sum(row["saved_ms"] for row in tables["sums"]) / sampled
    if share.value < AVOIDABLE_SHARE or share.low < AVOIDABLE_LOW or mean_ms < AVOIDABLE_MS:
        return []
    low, high = bounds(share)
    missed = sum(row["sampled_missed"] for row in tables["sums"])
    saved = sum(row["missed_saved"] for row in tables["sums"])
    return [
        Finding(
            name="avoidable_wait",
            severity="severe" if share.value >= 2 * AVOIDABLE_SHARE else "warning",
            subject="pool",
            value=share.value,
            unit="share of TTFT",
            compared_to=AVOIDABLE_SHARE,
            comparison="the threshold",
            low=low,
            high=high,
            n=share.n,
            counted="blocks of time",
            text=f"A less loaded node would have spared about {percent(share.value)} of TTFT "
            f"[{percent(max(0.0, share.low))}, "
            f"{percent(share.high)}; {sampled} decisions], {mean_ms:.0f} ms a request, and {saved} of {missed} TTFT "
            f"misses.",
        )
    ]
