"""Where TTFT is lost, by part of the pool."""

from __future__ import annotations

from features.diagnosis.finding import Tables, stage
from features.diagnosis.rules_routing import avoidable


def lost_shares(tables: Tables) -> dict[str, float]:
    """Area -> part of TTFT that is lost there, as far as the logs say; the parts may overlap."""
    routed = avoidable(tables)
    missed, evicted = recomputed(tables, "routing"), recomputed(tables, "eviction")
    whole = sum(row["sampled_ttft_ms"] for row in tables["sums"]) or 1.0
    saved = {key: sum(row[f"{key}_saved_ms"] for row in tables["sums"]) / whole for key in ("queue", "reservation")}
    return {
        "routing": (routed.value if routed else 0.0) + missed,
        "P compute": max(0.0, _share(tables, "queue") - saved["queue"]),
        "D memory": max(0.0, _share(tables, "reservation") - saved["reservation"]),
        "D compute": _share(tables, "admission") + _share(tables, "first_step"),
        "links": _share(tables, "transfer"),
        "cache": evicted,
    }


def decisions(tables: Tables) -> int:
    """Decisions of which it is known what another node would have spared."""
    return int(sum(row["sampled"] for row in tables["sums"]))


def _share(tables: Tables, name: str) -> float:
    row = stage(tables, name)
    return float(row["share_frac"]) if row else 0.0


def recomputed(tables: Tables, cause: str) -> float:
    """Part of TTFT in which P computes tokens again that were lost to `cause`."""
    whole = next((row for row in tables["prefix"] if row["node"] is None), None)
    if whole is None:
        return 0.0
    new = whole["prompt_tokens"] - whole["cached_tokens"]
    tokens = sum(row["tokens"] for row in tables["prefix_loss"] if row["cause"] == cause)
    return _share(tables, "compute") * min(1.0, tokens / new) if new > 0 else 0.0
