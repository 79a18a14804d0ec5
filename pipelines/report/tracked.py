"""What of a night goes to MLflow, by key: the same metric keys for every arm, so that arms and nights compare."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from models.honesty.alarms import alarms
from models.honesty.reading import ALL, ESTIMATORS, NEW_GROUP, Reading
from pipelines.report.keys import clean
from pipelines.report.tracked_why import explanation_metrics, gate_metrics, search_metrics
from policies.policy import Policy

COUNTS = ("requests", "rejected", "failed", "preemptions", "reused_tokens", "transferred_bytes", "output_tokens_per_s")
FRACTIONS = ("goodput_frac", "train_soft_frac", "train_goodput_frac", "test_goodput_frac", "p_holm")


@dataclass(frozen=True, slots=True)
class DatasetDigest:
    """One partition that a night was made from: `<table>/<day>` and `sha256:…`."""

    name: str
    digest: str
    source: str


def arm_metrics(arm: Mapping[str, Any]) -> dict[str, float | None]:
    """Metrics of one row of `details.arms`; None = unknown. Keys depend on the classes of the pool only."""
    carried = arm["load_carried"]
    found: dict[str, float | None] = {key: arm[key] for key in (*FRACTIONS, *COUNTS)}
    found["load_carried"] = None if carried is None else carried["load"]
    for name, value in arm["goodput_frac_by_class"].items():
        found[f"goodput_frac.{clean(name)}"] = value
    for which in ("ttft_ms", "tpot_ms"):
        found |= {f"{which}.{level}": value for level, value in arm[which].items()}
    for reference in ("incumbent", "default"):
        lead = arm[f"against_{reference}"]
        found |= {
            f"gain_to_{reference}{end}": lead[key] for end, key in (("", "value"), (".low", "low"), (".high", "high"))
        }
    return found


def arm_params(arm: Mapping[str, Any], policy: Policy) -> dict[str, str]:
    """Parameters of one arm: what it is and what decides."""
    return {
        "family": policy.family,
        "same_rack": policy.same_rack,
        "roles": ", ".join(arm["roles"]) or "arm",
        **{f"weights.{clean(c.name)}": json.dumps(list(c.weights)) for c in policy.classes},
        **{f"quantile.{clean(c.name)}": str(c.quantile) for c in policy.classes},
        **{f"reserve_blocks.{clean(c.name)}": str(c.reserve_blocks) for c in policy.classes},
        "temperature_p_s": str(policy.temperature_p_s),
        "temperature_d_s": str(policy.temperature_d_s),
    }


def night_params(evidence: Mapping[str, Any]) -> dict[str, str]:
    """Parameters of the night: its split, the search, the gates."""
    details = evidence["details"]
    found = {f"{part}_days": ", ".join(details.get(f"{part}_days", ())) for part in ("train", "validation", "test")}
    found |= {key: str(details.get(key)) for key in ("winner", "block_s", "alpha", "margin")}
    search = details.get("search", {})
    found |= {f"search.{key}": str(value)[:500] for key, value in search.items() if key != "searches"}
    for name, report in search.get("searches", {}).items():
        found[f"search.{clean(name)}.stopped"] = str(report["stopped"])
        found[f"search.{clean(name)}.point"] = json.dumps(report["chosen_point"])
    return found | {f"gate.{gate['name']}": gate["status"] for gate in details.get("gates", ())}


def night_metrics(evidence: Mapping[str, Any]) -> dict[str, float | None]:
    """Metrics of the night: the winner's, with its optimism, then gates, searches and what explains the winner."""
    details = evidence["details"]
    arms = {arm["name"]: arm for arm in details.get("arms", ())}
    if not arms:
        return gate_metrics(details)
    found = arm_metrics(arms[details["winner"]])
    found |= {f"optimism.{key}": value for key, value in details["optimism"].items()}
    return found | gate_metrics(details) | search_metrics(details) | explanation_metrics(details)


def error_metrics(fitted: Mapping[str, Any]) -> dict[str, float | None]:
    """Errors of the stored estimators: coverage of lengths by class and level, relative errors of steps and transfers.

    Held-out scores where there are any, else those of the train days.
    """
    report, holdout = fitted["report"], fitted["holdout"]
    found: dict[str, float | None] = {}
    for score in holdout["length"] or report["length"]["scores"]:
        name = "all" if score["slo_class"] == "*" else clean(score["slo_class"])
        found[f"length.coverage.{name}.q{score['level']:g}"] = score["coverage"]["covered_frac"]
    for law in ("prefill", "decode"):
        found[f"{law}.median_ape_frac"] = report[law]["error"]["median_ape_frac"]
        found[f"{law}.p90_ape_frac"] = report[law]["error"]["p90_ape_frac"]
    return found


def reading_metrics(readings: Iterable[Reading]) -> dict[str, float]:
    """`<estimator>/<measure>/<group>` -> value of every finite reading: the same keys on each night and on each model.

    Two nights side by side show what drifted. Counts of unknown names are no metric: they have other keys every night.
    """
    return {
        f"{r.estimator}/{r.measure}/{'all' if r.group == ALL else _group(r.group)}": r.value
        for r in readings
        if r.alarm != NEW_GROUP and math.isfinite(r.value)
    }


def alarm_metrics(readings: Iterable[Reading]) -> dict[str, float]:
    """Alarms of each estimator in force, 0 where there are none."""
    found = {f"{name}/alarms/all": 0.0 for name in ESTIMATORS}
    for reading in alarms(readings):
        found[f"{reading.estimator}/alarms/all"] += 1.0
    return found


def _group(name: str) -> str:
    return clean(name.replace("*@", "").replace("@", " "))
