"""Families that choose P and D apart: one key a node, the smallest wins. Plain decision."""

from __future__ import annotations

import math
from collections.abc import Sequence

from policies.families.family import Family
from policies.mixing import node_tie
from policies.policy import Policy
from policies.scoring import UNKNOWN_RULE, Decision, decode_rule, lacks_room, may_queue, prefill_rule
from policies.terms import estimated_blocks, known
from policies.view import RouterView


def decide_apart(policy: Policy, view: RouterView, family: Family, params: object) -> Decision:
    """The P and the D of the smallest keys; with the family's `capacity`, D must have room."""
    decision = _decide(policy, view, family, params, capacity=family.capacity)
    if decision.prefill is None and family.capacity and may_queue(policy, view):
        return _decide(policy, view, family, params, capacity=False, dropped=True)
    return decision


def _decide(
    policy: Policy, view: RouterView, family: Family, params: object, *, capacity: bool, dropped: bool = False
) -> Decision:
    rules_p = [prefill_rule(view, node) for node in view.prefill]
    rules_d = [_decode_rule(policy, view, j, capacity=capacity) for j in range(len(view.decode))]
    keys = []
    for rules, on_d in ((rules_p, False), (rules_d, True)):
        candidates = [at for at, rule in enumerate(rules) if rule is None]
        values = dict(zip(candidates, family.keys(params, view, candidates, on_d), strict=True))
        for at, value in values.items():
            if policy.unknown == "exclude" and math.isnan(value):
                rules[at] = UNKNOWN_RULE
        keys.append([values.get(at, math.nan) for at in range(len(rules))])
    open_p = [i for i, rule in enumerate(rules_p) if rule is None]
    open_d = [j for j, rule in enumerate(rules_d) if rule is None]
    prefill, decode = _pick_both(policy, view, keys, open_p, open_d)
    excluded = [(i, -1, rule) for i, rule in enumerate(rules_p) if rule is not None]
    excluded += [(-1, j, rule) for j, rule in enumerate(rules_d) if rule is not None]
    return Decision(
        prefill,
        decode,
        prefill_keys=tuple(_shown(key, i in open_p) for i, key in enumerate(keys[0])),
        decode_keys=tuple(_shown(key, j in open_d) for j, key in enumerate(keys[1])),
        excluded=tuple(sorted(excluded)),
        capacity_dropped=dropped,
    )


def _decode_rule(policy: Policy, view: RouterView, at: int, *, capacity: bool) -> str | None:
    node = view.decode[at]
    estimated = estimated_blocks(view, node)
    rule = decode_rule(node, estimated)
    if rule is not None or not capacity:
        return rule
    free = node.usable_blocks - known(node.active_blocks) - known(node.reserved_blocks) - known(node.inflight_blocks)
    room = free + known(node.reclaimable_blocks) - node.booked_blocks
    full = lacks_room(node, room, estimated, policy.horizon_s, policy, view.request)
    return "decode_full" if full else None


def _pick_both(
    policy: Policy, view: RouterView, keys: Sequence[Sequence[float]], open_p: list[int], open_d: list[int]
) -> tuple[int | None, int | None]:
    if not open_p or not open_d:
        return None, None
    seed = view.request.tie_seed
    computed = view.request.prefilled_on is not None  # then its P stands first
    if policy.same_rack == "decode_first" and not computed:
        decode = _pick(keys[1], open_d, seed, decode=True)
        beside = [i for i in open_p if view.prefill[i].rack == view.decode[decode].rack]
        return _pick(keys[0], beside or open_p, seed, decode=False), decode
    prefill = _pick(keys[0], open_p, seed, decode=False)
    beside = open_d
    if policy.same_rack != "none":
        beside = [j for j in open_d if view.decode[j].rack == view.prefill[prefill].rack]
    return prefill, _pick(keys[1], beside or open_d, seed, decode=True)


def _pick(keys: Sequence[float], nodes: list[int], seed: int, *, decode: bool) -> int:
    """The node of the smallest key; an unknown key counts as the largest known one among `nodes`."""
    found = [keys[at] for at in nodes if not math.isnan(keys[at])]
    worst = max(found) if found else 0.0
    return min(nodes, key=lambda at: (worst if math.isnan(keys[at]) else keys[at], node_tie(seed, at, decode=decode)))


def _shown(key: float, candidate: bool) -> float | None:
    return key if candidate and not math.isnan(key) else None
