"""Findings about prefix caches."""

from __future__ import annotations

from features.diagnosis.finding import Finding, Tables, bounds, percent
from features.diagnosis.intervals import wilson

FEWEST_REQUESTS = 200
EVICTED_OF_CEILING, EVICTED_OF_PROMPT = 0.15, 0.05
"""Prompt tokens that were computed again because a P had evicted them: of what could have been hit, and of all."""
MISROUTED_OF_CEILING, MISROUTED_OF_PROMPT = 0.25, 0.10
"""The same for tokens that another P held. Balance costs some hits in any pool, so more of them is needed."""
HOT_SHARE, HOT_ON_NODE, HOT_WAIT, HOT_WAIT_MS = 0.10, 0.5, 2.0, 20.0
"""A prefix of that share of the requests, that share of them on one P, whose queue is that many times the others'."""


def cache_findings(tables: Tables) -> list[Finding]:
    """`thrashing_prefix_cache`, `prefix_missed_by_routing`, `hot_prefix`."""
    return [*_losses(tables), *_hot(tables)]


def _losses(tables: Tables) -> list[Finding]:
    whole = next((row for row in tables.get("prefix", ()) if row["node"] is None), None)
    if whole is None or whole["requests"] < FEWEST_REQUESTS or not whole["ceiling_tokens"]:
        return []
    lost = {row["cause"]: row["tokens"] for row in tables["prefix_loss"]}
    kinds = (
        (
            "thrashing_prefix_cache", "eviction", EVICTED_OF_CEILING, EVICTED_OF_PROMPT,
            "were computed again because the P that had them evicted them first",
        ),
        (
            "prefix_missed_by_routing", "routing", MISROUTED_OF_CEILING, MISROUTED_OF_PROMPT,
            "were computed again on one P while another P held them",
        ),
    )  # fmt: skip
    found = []
    for name, cause, of_ceiling, of_prompt, text in kinds:
        tokens = lost.get(cause, 0)
        # Requests, not tokens, are what was drawn: the interval is that of a share of so many requests.
        share = wilson(min(1.0, tokens / whole["ceiling_tokens"]) * whole["requests"], whole["requests"])
        part = tokens / whole["prompt_tokens"]
        if share is None or share.low < of_ceiling or part < of_prompt:
            continue
        low, high = bounds(share)
        found.append(
            Finding(
                name=name,
                severity="severe" if share.value >= 2 * of_ceiling else "warning",
                subject="pool",
                value=share.value,
                unit="share of the tokens that could have been hits",
                compared_to=of_ceiling,
                comparison="the threshold",
                low=low,
                high=high,
                n=whole["requests"],
                counted="requests",
                text=f"{percent(share.value)} of the prompt tokens that could have been prefix hits "
                f"[{percent(share.low)}, {percent(share.high)}; {whole['requests']} requests] {text}: "
                f"{percent(part)} of all prompt tokens.",
            )
        )
    return found


def _hot(tables: Tables) -> list[Finding]:
    waits = {row["node"]: row for row in tables.get("prefill_nodes", ())}
    found = []
    for row in tables.get("hot_prefix", ()):
        mine = waits.get(row["node"], {}).get("queue_mean_ms")
        others = [
            w["queue_mean_ms"] for node, w in waits.items() if node != row["node"] and w["queue_mean_ms"] is not None
        ]
        if mine is None or not others or row["requests"] < FEWEST_REQUESTS:
            continue
        usual = sum(others) / len(others)
        if row["request_frac"] < HOT_SHARE or row["node_frac"] < HOT_ON_NODE or len(waits) < 2:
            continue
        if mine < HOT_WAIT_MS or mine < HOT_WAIT * usual:
            continue
        found.append(
            Finding(
                name="hot_prefix",
                severity="warning",
                subject=row["node"],
                value=mine,
                unit="ms of P queue",
                compared_to=usual,
                comparison="the mean of the other Ps",
                low=None,
                high=None,
                n=row["requests"],
                counted="requests with the prefix",
                text=f"{percent(row['node_frac'])} of the {row['requests']} requests that share prefix "
                f"{row['prefix']} went to "
                f"{row['node']}, where prompts wait {mine:.0f} ms against {usual:.0f} ms elsewhere.",
            )
        )
    return found
