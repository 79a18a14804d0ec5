"""What a day says in all, in sentences: where the time goes, and what holds the pool back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from features.diagnosis.finding import Finding, Tables, percent, stage
from features.diagnosis.intervals import wilson
from features.diagnosis.losses import decisions, lost_shares
from features.diagnosis.rules_capacity import unevenness
from features.diagnosis.rules_links import described
from features.diagnosis.rules_routing import AVOIDABLE_LOW, AVOIDABLE_SHARE, FEWEST_DECISIONS, avoidable

STAGES = {
    "router": "router", "queue": "P queue", "compute": "P compute", "reservation": "waiting for room on D",
    "transfer": "transfer", "admission": "waiting for D's batch", "first_step": "first step",
    "unattributed": "unknown",
}  # fmt: skip
AREAS = {
    "herding": "routing", "avoidable_wait": "routing", "stale_telemetry": "routing",
    "prefix_missed_by_routing": "routing", "hot_prefix": "routing", "slow_prefill_node": "P compute",
    "undersized_prefill_pool": "P compute", "undersized_decode_pool": "D memory", "back_pressure": "D memory",
    "preemptions": "D memory", "allocation_failures": "D memory", "refused_requests": "D memory",
    "slow_decode_node": "D compute", "slow_decode_pool": "D compute", "congested_link": "links",
    "thrashing_prefix_cache": "cache",
}  # fmt: skip
"""Name of a finding -> the part of the pool that it is about."""


_PARTS = len(set(AREAS.values()))


@dataclass(frozen=True, slots=True)
class Answer:
    """`question`: its stable key. `verdict`: yes, no or unknown; for `where` and `bottleneck` a stage or area.

    `value`: the number that decides, None where nothing is known. `text` says it with its numbers.
    """

    question: str
    verdict: str
    value: float | None
    text: str


def answers_of(tables: Tables, findings: list[Finding]) -> list[Answer]:
    """The answers, the last one overall; a day without requests has one that says so."""
    traffic = tables["traffic"][0]
    if not traffic["requests"]:
        return [Answer("bottleneck", "unknown", None, "The day has no requests.")]
    areas = {AREAS[finding.name] for finding in findings}
    parts: tuple[tuple[str, Callable[[Tables], Answer]], ...] = (
        ("P compute", _prefill), ("D memory", _decode_memory), ("D compute", _decode_steps), ("links", _links),
        ("cache", _cache),
    )  # fmt: skip
    judged = [_judged(make(tables), area in areas) for area, make in parts]
    routing = _routing(tables, findings)
    known = [("routing", routing), *zip((area for area, _ in parts), judged, strict=True)]
    unknown = [area for area, answer in known if answer.verdict == "unknown"]
    return [
        *(make(tables) for make in (_where, _slo, _balancing)),
        *judged,
        routing,
        _bottleneck(tables, findings, unknown),
    ]


def _judged(answer: Answer, found: bool) -> Answer:
    """Whether a part of the pool is at fault is what the findings say."""
    return answer if answer.verdict == "unknown" and not found else replace(answer, verdict="yes" if found else "no")


def _where(tables: Tables) -> Answer:
    total = stage(tables, "ttft")
    if total is None:
        return Answer(
            "where", "unknown", None, "No request says when its first token came: where TTFT goes is unknown."
        )
    parts = [
        (label, row) for key, label in STAGES.items() if (row := stage(tables, key)) and row["share_frac"] >= 0.005
    ]
    parts.sort(key=lambda part: -part[1]["share_frac"])
    if not parts:
        return Answer("where", "unknown", None, f"TTFT is {total['mean_ms']:.0f} ms; none of its stages is known.")
    listed = ", ".join(f"{label} {percent(row['share_frac'])}" for label, row in parts)
    label, row = parts[0]
    return Answer(
        "where", label, row["share_frac"],
        f"TTFT is {total['mean_ms']:.0f} ms on average (P99 {total['p99_ms']:.0f} ms, {total['known']} requests): "
        f"{listed}.",
    )  # fmt: skip


def _slo(tables: Tables) -> Answer:
    rows = [row for row in tables["slo"] if row["dimension"] == "all" and row["judged"]]
    share = wilson(sum(row["met"] for row in rows), sum(row["judged"] for row in rows))
    if share is None:
        return Answer(
            "slo", "unknown", None, "No request can be judged: no class has a target, or the log has no times."
        )
    worst = min(rows, key=lambda row: row["met"] / row["judged"])
    return Answer(
        "slo", "yes" if share.value >= 0.99 else "no", share.value,
        f"{percent(share.value)} of {share.n} requests met their targets [{percent(share.low)}, "
        f"{percent(share.high)}]; the class "
        f"with the lowest share is {worst['slo_class']} with {percent(worst['met'] / worst['judged'])} of "
        f"{worst['judged']}.",
    )  # fmt: skip


def _balancing(tables: Tables) -> Answer:
    share, looked = avoidable(tables), decisions(tables)
    if share is None and looked >= FEWEST_DECISIONS:
        return Answer("balancing", "unknown", None, "Whether balancing is worth it is unknown: no request waited.")
    if share is None or looked < FEWEST_DECISIONS:
        text = (
            "Whether balancing is worth it is unknown: the log must say which nodes were chosen and when they were "
            f"done, for at least {FEWEST_DECISIONS} requests; it does for {looked}."
        )
        return Answer("balancing", "unknown", None, text)
    missed = sum(row["sampled_missed"] for row in tables["sums"])
    saved = sum(row["missed_saved"] for row in tables["sums"])
    worth = share.value >= AVOIDABLE_SHARE and share.low >= AVOIDABLE_LOW
    uneven = _uneven(tables)
    return Answer(
        "balancing", "yes" if worth else "no", share.value,
        f"Balancing is {'worth it' if worth else 'not worth much'} here: a less loaded node would have spared about "
        f"{percent(share.value)} of TTFT [{percent(max(0.0, share.low))}, {percent(min(1.0, share.high))}] and "
        f"{saved} of {missed} "
        f"TTFT misses{uneven}.",
    )  # fmt: skip


def _uneven(tables: Tables) -> str:
    parts = [
        f"{load} varies by {percent(cv)} between nodes"
        for role, load in (("decode", "the Ds' load"), ("prefill", "the Ps' backlog"))
        if (cv := unevenness(tables, role)) is not None
    ]
    return "; " + ", ".join(parts) if parts else ""


def _routing(tables: Tables, findings: list[Finding]) -> Answer:
    if avoidable(tables) is None or decisions(tables) < FEWEST_DECISIONS:
        return Answer(
            "routing", "unknown", None, "Whether routing is the bottleneck is unknown: the log does not say enough."
        )
    lost = lost_shares(tables)
    named = [finding for finding in findings if AREAS[finding.name] == "routing"]
    largest = max(lost[AREAS[finding.name]] for finding in findings) if findings else 0.0
    yes = bool(named) and lost["routing"] >= largest
    text = (
        f"Routing is {'the' if yes else 'not the'} bottleneck: about {percent(lost['routing'])} of TTFT hangs on "
        f"which node was "
        f"chosen, with the prefix hits that another P held."
    )
    return Answer("routing", "yes" if yes else "no", lost["routing"], text)


def _prefill(tables: Tables) -> Answer:
    busy = [row["busy_frac"] for row in tables["prefill_nodes"] if row["busy_frac"] is not None]
    queue = stage(tables, "queue")
    if not busy:
        return Answer("prefill_compute", "unknown", None, "How busy the Ps are is unknown.")
    mean = sum(busy) / len(busy)
    waits = (
        ""
        if queue is None
        else f"; prompts wait {queue['mean_ms']:.0f} ms for them, {percent(queue['share_frac'])} of TTFT"
    )
    text = f"The Ps compute {percent(mean)} of the time, the busiest {percent(max(busy))}{waits}."
    return Answer("prefill_compute", "no", mean, text)


def _decode_memory(tables: Tables) -> Answer:
    high = tables["pool_high_water"][0] if tables["pool_high_water"] else {}
    wait = stage(tables, "reservation")
    if not high.get("windows") and wait is None:
        return Answer("decode_memory", "unknown", None, "How full the Ds are is unknown.")
    parts = []
    if high.get("windows"):
        parts.append(
            f"the Ds hold {percent(high['committed_mean_frac'])} of their KV on average and are above high water "
            f"{percent(high['nodes_above_frac'])} of the time ({high['windows']} windows)"
        )
    if wait is not None:
        parts.append(f"requests wait {wait['mean_ms']:.0f} ms for room, {percent(wait['share_frac'])} of TTFT")
    text = "; ".join(parts)
    return Answer("decode_memory", "no", high.get("above_frac"), text[0].upper() + text[1:] + ".")


def _decode_steps(tables: Tables) -> Answer:
    traffic = tables["traffic"][0]
    share = wilson(traffic["tpot_missed"], traffic["tpot_judged"])
    if share is None:
        return Answer(
            "decode_compute",
            "unknown",
            None,
            "Whether D's steps keep their pace is unknown: no TPOT target, or no times.",
        )
    text = (
        f"{percent(share.value)} of {share.n} requests miss their TPOT target [{percent(share.low)}, "
        f"{percent(share.high)}]."
    )
    return Answer("decode_compute", "no", share.value, text)


def _links(tables: Tables) -> Answer:
    rows = [row for row in tables["links"] if row["kind"] != "pair"]
    transfer = stage(tables, "transfer")
    if not rows or transfer is None:
        return Answer(
            "links", "unknown", None, "What transfers cost is unknown: the log has no transfer times or bytes."
        )
    used = [row for row in rows if row["line_use_frac"] is not None]
    line = ""
    if used:
        busiest = max(used, key=lambda row: row["busy_frac"])
        line = (
            f"; the busiest link, {described(busiest['kind'], busiest['name'])}, is in use "
            f"{percent(busiest['busy_frac'])} of the time, then at "
            f"{percent(busiest['line_use_frac'])} of its line rate"
        )
    text = f"Transfers take {transfer['mean_ms']:.0f} ms, {percent(transfer['share_frac'])} of TTFT{line}."
    return Answer("links", "no", transfer["share_frac"], text)


def _cache(tables: Tables) -> Answer:
    whole: dict[str, Any] | None = next((row for row in tables["prefix"] if row["node"] is None), None)
    if whole is None or not whole["hashed_ceiling_tokens"]:
        text = "What prefix caches could give is unknown: the log has no block hashes, or no prefix came twice."
        return Answer("cache", "unknown", None, text)
    if not whole["ceiling_tokens"]:
        could = percent(whole["hashed_ceiling_tokens"] / whole["hashed_prompt_tokens"])
        text = (
            f"An endless prefix cache of the day would have given {could} of the prompt tokens "
            f"({whole['hashed_requests']} requests); what was hit is unknown."
        )
        return Answer("cache", "unknown", None, text)
    ceiling = whole["ceiling_tokens"]
    names = {
        "routing": "another P held them", "eviction": "evicted", "ttl": "dropped after idling",
        "eviction_or_ttl": "evicted or dropped", "not_ready": "not computed yet", "unexplained": "no reason found",
    }  # fmt: skip
    lost = ", ".join(f"{names[row['cause']]} {percent(row['tokens'] / ceiling)}" for row in tables["prefix_loss"])
    hit = whole["hit_tokens"] / ceiling
    text = (
        f"Prefix caches gave {percent(hit)} of the hits that an endless cache of the day would have given "
        f"({percent(ceiling / whole['prompt_tokens'])} of the prompt tokens, {whole['requests']} requests)"
        f"{'; lost: ' + lost if lost else ''}."
    )
    return Answer("cache", "no", hit, text)


def _bottleneck(tables: Tables, findings: list[Finding], unknown: list[str]) -> Answer:
    """`unknown`: parts of the pool about which the logs say nothing."""
    if not findings and len(unknown) == _PARTS:
        return Answer("bottleneck", "unknown", None, "The logs do not say enough to judge this pool.")
    if not findings:
        silent = f" Unknown: {', '.join(unknown)}." if unknown else ""
        return Answer("bottleneck", "none", None, f"Nothing in this pool stands out: no rule found a fault.{silent}")
    lost = lost_shares(tables)
    areas = {AREAS[finding.name] for finding in findings}
    area = max(areas, key=lambda name: (lost[name], name))
    first = next(finding for finding in findings if AREAS[finding.name] == area)
    rest = sorted(areas - {area})
    more = f" Faults were also found in: {', '.join(rest)}." if rest else ""
    return Answer("bottleneck", area, lost[area], f"What holds this pool back most is {area}. {first.text}{more}")
