"""Rules across the keys of a pool."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import combinations

from features.errors import SettingsError
from features.naming import DEFAULT_CLASS
from features.readers.registry import AUTO, READERS
from pipelines.settings import Span
from pipelines.settings_file import ClassRuleFile, PoolFile, as_us
from pipelines.settings_pool_file import NodesFile, UplinkFile
from policies.evidence.gates import GATES
from policies.families.registry import SIMPLE

_RANK = re.compile(r"/dp\d+$")


def check_pool(name: str, pool: PoolFile, place: str) -> None:
    """Raises SettingsError for the first rule that the pool breaks."""
    root = f"{place}: pools.{name}"
    _check_spans(pool, root)
    _check_nodes(pool, root)
    _check_links(pool, root)
    _check_classes(pool, root)
    families = pool.router.families or SIMPLE
    _known(
        pool.incumbent.family,
        families,
        "the incumbent must be a family that the router can run",
        f"{root}.incumbent.family",
    )
    for at, source in enumerate(pool.sources):
        rule = "a source must be of a format that has a reader"
        _known(source.format, {*READERS, AUTO}, rule, f"{root}.sources[{at}].format")
    for at, gate in enumerate(pool.gates.waive):
        _known(gate, GATES, "a waiver must name a gate", f"{root}.gates.waive[{at}]")


def covers_every_prompt(rules: Sequence[ClassRuleFile]) -> bool:
    """Whether every request meets some rule by the length of its prompt alone."""
    conditions = {"priority", "tenant", "app", "model", "header"}
    by_length = [rule for rule in rules if all(getattr(rule, key) is None for key in conditions)]
    reached: int = 0
    for rule in sorted(by_length, key=lambda r: r.min_prompt_tokens or 0):
        if (rule.min_prompt_tokens or 0) > reached:
            return False
        if rule.max_prompt_tokens is None:
            return True
        reached = max(reached, rule.max_prompt_tokens)
    return False


def _check_spans(pool: PoolFile, root: str) -> None:
    for key in ("nodes", "uplinks", "aliases"):
        for at, entry in enumerate(getattr(pool, key)):
            start, end = as_us(entry.valid_from), as_us(entry.valid_to)
            if start is not None and end is not None and start >= end:
                raise SettingsError(
                    "`valid_from < valid_to` must hold",
                    value=(str(entry.valid_from), str(entry.valid_to)),
                    place=f"{root}.{key}[{at}]",
                )


def _span(entry: NodesFile | UplinkFile) -> Span:
    return Span(as_us(entry.valid_from), as_us(entry.valid_to))


def _check_nodes(pool: PoolFile, root: str) -> None:
    for role in ("prefill", "decode"):
        if not any(entry.role == role for entry in pool.nodes):
            raise SettingsError("a pool must have P and D nodes", place=f"{root}.nodes", hint=f"none has role {role!r}")
    for at, entry in enumerate(pool.nodes):
        for label in entry.classes:
            rule = "a node must serve classes of the pool"
            _known(label, {*pool.classes, DEFAULT_CLASS}, rule, f"{root}.nodes[{at}].classes")
    named = [(name, _span(entry)) for entry in pool.nodes for name in entry.names]
    for (one, first), (other, second) in combinations(named, 2):
        if one == other and first.meets(second):
            raise SettingsError("a node must be described once at a time", value=one, place=f"{root}.nodes")
    nodes = {name for name, _ in named}
    workers = nodes | {_RANK.sub("", name) for name in nodes}
    for at, alias in enumerate(pool.aliases):
        _known(alias.node, workers, "an alias must mean a node or a worker of the pool", f"{root}.aliases[{at}].node")


def _check_links(pool: PoolFile, root: str) -> None:
    racks = {entry.rack for entry in pool.nodes}
    for at, link in enumerate(pool.uplinks):
        for key in ("from_rack", "to_rack"):
            _known(
                getattr(link, key), racks, "an uplink must join racks that have nodes", f"{root}.uplinks[{at}].{key}"
            )
        if link.from_rack == link.to_rack:
            raise SettingsError("an uplink must join two racks", value=link.from_rack, place=f"{root}.uplinks[{at}]")
    for (at, one), (_, other) in combinations(enumerate(pool.uplinks), 2):
        same = (one.from_rack, one.to_rack) == (other.from_rack, other.to_rack)
        if same and _span(one).meets(_span(other)):
            raise SettingsError(
                "a direction must have one uplink at a time",
                value=(one.from_rack, one.to_rack),
                place=f"{root}.uplinks[{at}]",
                hint="the other direction has its own entry",
            )


def _check_classes(pool: PoolFile, root: str) -> None:
    for at, rule in enumerate(pool.class_rules):
        place = f"{root}.class_rules[{at}]"
        _known(rule.name, {*pool.classes, DEFAULT_CLASS}, "a class rule must give a class of the pool", f"{place}.name")
        low, high = rule.min_prompt_tokens, rule.max_prompt_tokens
        earlier = next((k for k, first in enumerate(pool.class_rules[:at]) if _takes_all(first, rule)), None)
        if earlier is not None:
            raise SettingsError(
                "a class rule must be able to hold",
                value=rule.name,
                place=place,
                hint=f"class_rules[{earlier}] comes first and takes every request that it would; change their order",
            )
        if low is not None and high is not None and low >= high:
            raise SettingsError("`min_prompt_tokens < max_prompt_tokens` must hold", value=(low, high), place=place)
    for name, each in pool.classes.items():
        wanted, others = _TARGETS[each.objective], {t for targets in _TARGETS.values() for t in targets}
        if not any(getattr(each, target) is not None for target in wanted):
            raise SettingsError(
                f"a class with the objective {each.objective} must have a target",
                place=f"{root}.classes.{name}",
                hint=f"set {' or '.join(wanted)}",
            )
        for target in sorted(others - set(wanted) - {"ttft_target_ms", "tpot_target_ms"}):
            if getattr(each, target) is not None:
                raise SettingsError(
                    f"`{target}` is of another objective than {each.objective}",
                    value=getattr(each, target),
                    place=f"{root}.classes.{name}.{target}",
                    hint="a class has one objective; TTFT and TPOT targets may stand beside any",
                )


_TARGETS = {
    "slo_goodput": ("ttft_target_ms", "tpot_target_ms"),
    "deadline": ("deadline_ms",),
    "token_throughput": ("tokens_per_s",),
}
"""Objective of a class -> what it is made of, of which it must have one."""


def _takes_all(first: ClassRuleFile, later: ClassRuleFile) -> bool:
    """Whether every request that meets `later` meets `first` too."""
    same = ("priority", "tenant", "app", "model", "header")
    if any(getattr(first, key) not in (None, getattr(later, key)) for key in same):
        return False
    low = (first.min_prompt_tokens or 0) <= (later.min_prompt_tokens or 0)
    high = first.max_prompt_tokens
    return low and (high is None or (later.max_prompt_tokens is not None and later.max_prompt_tokens <= high))


def _known(value: str, known: Sequence[str] | set[str], rule: str, place: str) -> None:
    if value not in known:
        close = get_close_matches(value, sorted(known), n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"one of {', '.join(sorted(known))}"
        raise SettingsError(rule, value=value, place=place, hint=hint)
