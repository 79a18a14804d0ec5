"""Findings about the size of the pool: P compute, D memory, D steps, and what follows from too little of it."""

from __future__ import annotations

from features.diagnosis.finding import Finding, Severity, Tables, percent, stage
from features.diagnosis.intervals import wilson

FEWEST_REQUESTS = 200
RESERVATION_SHARE, RESERVATION_MS = 0.10, 50.0
"""Part of TTFT that goes into waiting for D's memory, and ms a request."""
POOL_ABOVE = 0.25
"""Part of the time in which the Ds as a whole are above high water."""
EVERYWHERE = 1 / 3
"""Every D's wait against the mean, from which the wait is the pool's and not one node's."""
AVOIDABLE_PART = 0.5
"""A wait of which another node would have spared more than this is the router's, not the pool's."""
QUEUE_SHARE, P_BUSY = 0.25, 0.85
HELD_BY_WAITING, WAITING_TIME = 0.10, 0.30
"""Part of P's KV memory that finished prompts hold while they wait to leave, and of the time that any does."""
SLOW_TPOT_SHARE, EVEN_CV = 0.10, 0.35
PREEMPTED_SHARE, REFUSED_SHARE, FEWEST_EVENTS = 0.01, 0.005, 10


def capacity_findings(tables: Tables) -> list[Finding]:
    """`undersized_*_pool`, `slow_decode_pool`, `back_pressure`, `preemptions`, `refused_requests`, …."""
    if tables["traffic"][0]["requests"] < FEWEST_REQUESTS:
        return []
    found = (
        _prefill(tables), _decode_memory(tables), _decode_steps(tables), _back_pressure(tables), _preemptions(tables),
        _refused(tables), _failures(tables),
    )  # fmt: skip
    return [finding for finding in found if finding is not None]


def _prefill(tables: Tables) -> Finding | None:
    queue = stage(tables, "queue")
    busy = [row["busy_frac"] for row in tables["prefill_nodes"] if row["busy_frac"] is not None]
    if queue is None or not busy or queue["known"] < FEWEST_REQUESTS:
        return None
    mean_busy = sum(busy) / len(busy)
    saved = _part(tables, "queue_saved_ms", "sampled_queue_ms")
    if queue["share_frac"] < QUEUE_SHARE or mean_busy < P_BUSY or saved > AVOIDABLE_PART:
        return None
    return _pool_finding(
        "undersized_prefill_pool", "severe", queue["share_frac"], "share of TTFT in P's queue", QUEUE_SHARE,
        queue["known"],
        f"Prompts wait {queue['mean_ms']:.0f} ms for a P, {percent(queue['share_frac'])} of TTFT ({queue['known']} "
        f"requests), while "
        f"the Ps compute {percent(mean_busy)} of the time; another P would have spared {percent(saved)} of that wait.",
    )  # fmt: skip


def _decode_memory(tables: Tables) -> Finding | None:
    wait = stage(tables, "reservation")
    if wait is None or wait["known"] < FEWEST_REQUESTS:
        return None
    if wait["share_frac"] < RESERVATION_SHARE or wait["mean_ms"] < RESERVATION_MS:
        return None
    by_node = [row["reservation_mean_ms"] for row in tables["decode_nodes"] if row["reservation_mean_ms"] is not None]
    saved = _part(tables, "reservation_saved_ms", "sampled_reservation_ms")
    high = tables["pool_high_water"][0] if tables["pool_high_water"] else {}
    above = high.get("above_frac")
    full = min(by_node) >= EVERYWHERE * wait["mean_ms"] if above is None else above >= POOL_ABOVE
    if saved > AVOIDABLE_PART or not full:
        return None
    water = "" if above is None else f", and the pool is above high water {percent(above)} of the time"
    return _pool_finding(
        "undersized_decode_pool", "severe", wait["share_frac"], "share of TTFT in waiting for D's memory",
        RESERVATION_SHARE, wait["known"],
        f"Finished prompts wait {wait['mean_ms']:.0f} ms for room on a D, {percent(wait['share_frac'])} of TTFT "
        f"({wait['known']} requests){water}; another D would have spared {percent(saved)} of that wait.",
    )  # fmt: skip


def _decode_steps(tables: Tables) -> Finding | None:
    """TPOT misses on all Ds alike: the steps are too slow for the batch that the pool must carry."""
    total = tables["traffic"][0]
    share = wilson(total["tpot_missed"], total["tpot_judged"])
    if share is None or share.low < SLOW_TPOT_SHARE:
        return None
    rows = [row for row in tables["slo"] if row["dimension"] == "decode_node"]
    nodes: dict[str, list[int]] = {}
    for row in rows:
        missed, judged = nodes.setdefault(row["value"], [0, 0])
        nodes[row["value"]] = [missed + row["tpot_judged"] - row["tpot_met"], judged + row["tpot_judged"]]
    lowest = min((missed / judged for missed, judged in nodes.values() if judged), default=0.0)
    uneven = unevenness(tables, "decode")
    if lowest < 0.5 * share.value or (uneven is not None and uneven > EVEN_CV) or len(nodes) < 2:
        return None
    return _pool_finding(
        "slow_decode_pool", "severe", share.value, "share of requests that miss their TPOT target", SLOW_TPOT_SHARE,
        share.n,
        f"{percent(share.value)} of {share.n} requests miss their TPOT target, on every D ({percent(lowest)} on the "
        f"best): the pool's "
        "decode steps are too slow for its load, however it is spread.",
    )  # fmt: skip


def unevenness(tables: Tables, role: str) -> float | None:
    """Coefficient of variation of the nodes' load: as telemetry shows it, else as the requests give it."""
    for metric in ("running_tokens", "waiting_prompt_tokens", "given_tokens"):
        for row in tables["imbalance"]:
            if (row["role"], row["metric"], row["level"]) == (role, metric, "node"):
                return float(row["cv_mean"])
    return None


def _back_pressure(tables: Tables) -> Finding | None:
    rows = [r for r in tables["prefill_nodes"] if r["awaiting_kv_frac"] is not None and r["awaiting_frac"] is not None]
    if not rows:
        return None
    held = sum(row["awaiting_kv_frac"] for row in rows) / len(rows)
    waiting = sum(row["awaiting_frac"] for row in rows) / len(rows)
    if held < HELD_BY_WAITING or waiting < WAITING_TIME:
        return None
    busy = [row["busy_frac"] for row in rows if row["busy_frac"] is not None]
    computes = f" They compute {percent(sum(busy) / len(busy))} of the time." if busy else ""
    return _pool_finding(
        "back_pressure", "warning", held, "share of P's KV memory", HELD_BY_WAITING, sum(r["requests"] for r in rows),
        f"Finished prompts that cannot leave hold {percent(held)} of the Ps' KV memory; some wait "
        f"{percent(waiting)} of the "
        f"time.{computes}",
    )  # fmt: skip


def _preemptions(tables: Tables) -> Finding | None:
    total = tables["traffic"][0]
    share = wilson(total["preempted_requests"], total["preemptions_known"])
    if share is None or total["preempted_requests"] < FEWEST_EVENTS or share.value < PREEMPTED_SHARE:
        return None
    return _pool_finding(
        "preemptions", "warning", share.value, "share of requests", PREEMPTED_SHARE, share.n,
        f"{total['preempted_requests']} of {share.n} requests lost their KV on D and were computed again "
        f"({total['preemptions']} preemptions).",
    )  # fmt: skip


def _refused(tables: Tables) -> Finding | None:
    total = tables["traffic"][0]
    refused = total["rejected"] + total["failed"]
    if refused < FEWEST_EVENTS or refused / total["requests"] < REFUSED_SHARE:
        return None
    return _pool_finding(
        "refused_requests", "severe", refused / total["requests"], "share of requests", REFUSED_SHARE,
        total["requests"],
        f"{total['rejected']} requests were rejected and {total['failed']} failed, of {total['requests']}.",
    )  # fmt: skip


def _failures(tables: Tables) -> Finding | None:
    counts = [row["allocation_failures"] for row in tables["decode_nodes"] if row["allocation_failures"] is not None]
    total = sum(counts)
    if total < FEWEST_EVENTS:
        return None
    return _pool_finding(
        "allocation_failures", "warning", float(total), "failures", float(FEWEST_EVENTS), len(counts),
        f"D nodes counted {total} failed allocations of KV ({len(counts)} nodes).",
    )  # fmt: skip


def _part(tables: Tables, saved: str, whole: str) -> float:
    """Part of a wait that another node would have spared, 0 where nothing waited."""
    total = sum(row[whole] for row in tables["sums"])
    return float(sum(row[saved] for row in tables["sums"]) / total) if total > 0 else 0.0


def _pool_finding(
    name: str, severity: Severity, value: float, unit: str, threshold: float, n: int, text: str
) -> Finding:
    share = wilson(value * n, n) if 0 <= value <= 1 and unit.startswith("share of requests") else None
    return Finding(
        name=name,
        severity=severity,
        subject="pool",
        value=value,
        unit=unit,
        compared_to=threshold,
        comparison="the threshold",
        low=share.low if share else None,
        high=share.high if share else None,
        n=n,
        counted="nodes" if name == "allocation_failures" else "requests",
        text=text,
    )
