"""Gates, explanation and searches of a night as metrics: keys that are the same on every night, None = unknown.

Differences keep the evidence's sign and unit: goodput as a fraction, below 0 = it loses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.report.keys import clean

ROLES = ("winner", "incumbent", "default")
SEARCH = ("trials", "given_up", "default_soft_frac", "best_soft_frac", "chosen_soft_frac", "distance_from_default")
FLOW = (
    "requests", "crossed_frac", "prefill_autocorrelation", "decode_autocorrelation", "above_high_water_frac",
    "flips_frac", "reused_tokens", "transferred_bytes",
)  # fmt: skip
SWITCHBACK = ("blocks", "paired_blocks", "hours", "block_s", "wash_in_s", "relaxation_s", "effect")

Metrics = dict[str, float | None]


def gate_metrics(details: Mapping[str, Any]) -> Metrics:
    """`gate/<name>/` value, threshold, low, high, passed (1 or 0, unknown where it was not run), numbers/<number>."""
    found: Metrics = {}
    for gate in details.get("gates", ()):
        low, high = gate.get("interval") or (None, None)
        passed = {"pass": 1.0, "fail": 0.0}.get(gate["status"])
        judged = {"value": gate["value"], "threshold": gate["threshold"], "low": low, "high": high, "passed": passed}
        found |= {f"gate/{gate['name']}/{key}": value for key, value in judged.items()}
        numbers = gate.get("numbers") or {}
        found |= {f"gate/{gate['name']}/numbers/{clean(key)}": value for key, value in numbers.items()}
    return found


def search_metrics(details: Mapping[str, Any]) -> Metrics:
    """`search/<name>/` trials, how many were given up, and softened goodput of the default, the best, the chosen."""
    searches = details.get("search", {}).get("searches", {})
    return {f"search/{clean(name)}/{key}": report.get(key) for name, report in searches.items() for key in SEARCH}


def explanation_metrics(details: Mapping[str, Any]) -> Metrics:
    """Ladder, ablation, sensitivity, loads, regret, slices, flows, the live test; nothing for older evidence."""
    found = details.get("explanation")
    if not found:
        return {}
    made: Metrics = {}
    for rung in found.get("ladder") or ():
        made[f"ladder/{clean(rung['name'])}/goodput"] = rung["goodput_frac"]
        made |= _difference(f"ladder/{clean(rung['name'])}/gain", rung["gain"])
    for part in ("ablation", "sensitivity"):
        for effect in found.get(part) or ():
            made |= _difference(f"{part}/{clean(effect['name'])}/{effect['kind']}", effect["difference"])
    for role in ROLES:
        made |= dict(_of_arm(found, role, details[role]))
    slices = found.get("slices")
    if slices:
        made["slices/looked_at"] = slices["looked_at"]
        for name, key in (("largest_loss", "losses"), ("largest_gain", "gains")):
            made[f"slices/{name}"] = slices[key][0]["difference"] if slices[key] else None
    plan = found.get("switchback")
    return made | ({f"switchback/{key}": plan[key] for key in SWITCHBACK} if plan else {})


def _of_arm(found: Mapping[str, Any], role: str, arm: str) -> Iterator[tuple[str, float | None]]:
    """What is told of one arm, under its role: names of arms differ from night to night."""
    for points in found.get("loads") or ():
        if points["arm"] == arm:
            yield from ((f"loads/{role}/{load:g}", goodput) for load, goodput in points["goodput_frac"])
    for row in found.get("regret") or ():
        if row["arm"] == arm:
            key = f"regret/{role}/{clean(row['slo_class'])}"
            yield from ((f"{key}/{name}", row[name]) for name in ("decisions", "ttft_s", "missed_frac"))
    for flow in found.get("flows") or ():
        if flow["arm"] == arm:
            yield from ((f"flow/{role}/{name}", flow[name]) for name in FLOW)
            for crossing in flow["crossings"]:
                yield f"flow/{role}/crossed_frac/{_size(crossing['prompt_tokens'])}", crossing["crossed_frac"]
            for node in ("prefill", "decode"):
                shares = flow[f"{node}_share"].values()
                yield f"flow/{role}/{node}_share_least", min(shares, default=None)
                yield f"flow/{role}/{node}_share_most", max(shares, default=None)


def _difference(key: str, difference: Mapping[str, Any] | None) -> Metrics:
    ends = (("", "value"), (".low", "low"), (".high", "high"))
    return {f"{key}{end}": None if difference is None else difference[name] for end, name in ends}


def _size(prompt_tokens: str) -> str:
    """A bin of prompt sizes in characters that a key may have: `under 512`, `512-2047`, `from 32768`."""
    plain = prompt_tokens.replace(",", "").replace("<", "under").replace("≥", "from").replace(" – ", "-")
    return clean(plain)
