"""Rules over the tables of a diagnosis. Each file of rules names its thresholds and says why they are what they are."""

from __future__ import annotations

from features.diagnosis.finding import NAMES, Finding, Tables
from features.diagnosis.rules_cache import cache_findings
from features.diagnosis.rules_capacity import capacity_findings
from features.diagnosis.rules_links import congested_links
from features.diagnosis.rules_nodes import slow_nodes
from features.diagnosis.rules_routing import routing_findings

_ORDER = {"severe": 0, "warning": 1, "notice": 2}


def findings_of(tables: Tables) -> list[Finding]:
    """Every rule that holds, the severe ones first, then in the order of NAMES. An empty day has none."""
    if not tables["traffic"][0]["requests"]:
        return []
    rules = (slow_nodes, congested_links, cache_findings, routing_findings, capacity_findings)
    found = [finding for rule in rules for finding in rule(tables)]
    return sorted(found, key=lambda f: (_ORDER[f.severity], NAMES.index(f.name), f.subject))
