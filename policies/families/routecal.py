"""`routecal`: every pair is scored by its terms. Plain decision."""

from __future__ import annotations

import math

from models.portable.estimators import Estimators
from policies.policy import Policy
from policies.scoring import (
    UNKNOWN_RULE,
    Candidate,
    Decision,
    choose_pair,
    decode_rule,
    may_queue,
    pair_lacks_room,
    prefill_rule,
)
from policies.terms import DecodeParts, PairTerms, decode_parts, estimated_blocks, pair_terms, prefill_parts
from policies.view import RouterView

Pairs = dict[tuple[int, int], PairTerms]


def decide_pair(policy: Policy, estimators: Estimators, view: RouterView) -> Decision:
    """The pair of the lowest score."""
    excluded: list[tuple[int, int, str]] = []
    parts = _decode_parts(policy, estimators, view, excluded)
    roomy, full = _terms(policy, estimators, view, parts, excluded)
    chosen, scores = choose_pair(policy, view, roomy, parts)
    pairs, dropped = roomy, False
    if chosen is None and may_queue(policy, view) and full:
        pairs, dropped = roomy | full, True
        chosen, scores = choose_pair(policy, view, pairs, parts)
    else:
        excluded += [(i, j, "decode_full") for i, j in full]
    excluded += [(i, j, UNKNOWN_RULE) for i, j in pairs if (i, j) not in scores]
    candidates = tuple(
        Candidate(
            prefill=i,
            decode=j,
            terms=tuple(_shown(value) for value in pairs[i, j].values),
            score=scores[i, j],
            ttft_s=_shown(pairs[i, j].ttft_s),
            tpot_s=_shown(pairs[i, j].tpot_s),
        )
        for i, j in sorted(scores)
    )
    prefill, decode = chosen if chosen is not None else (None, None)
    return Decision(prefill, decode, candidates, excluded=tuple(sorted(excluded)), capacity_dropped=dropped)


def _decode_parts(
    policy: Policy, estimators: Estimators, view: RouterView, excluded: list[tuple[int, int, str]]
) -> dict[int, DecodeParts]:
    """Parts of the Ds that pass the filters of their own."""
    parts = {}
    for j, decode in enumerate(view.decode):
        rule = decode_rule(decode, estimated_blocks(view, decode))
        if rule is None:
            parts[j] = decode_parts(view, decode, estimators, policy)
        else:
            excluded.append((-1, j, rule))
    return parts


def _terms(
    policy: Policy,
    estimators: Estimators,
    view: RouterView,
    parts: dict[int, DecodeParts],
    excluded: list[tuple[int, int, str]],
) -> tuple[Pairs, Pairs]:
    """Terms of the pairs that pass the filters of their nodes: those with room on D, and those without."""
    roomy: Pairs = {}
    full: Pairs = {}
    for i, prefill in enumerate(view.prefill):
        rule = prefill_rule(view, prefill)
        if rule is not None:
            excluded.append((i, -1, rule))
            continue
        p = prefill_parts(view, prefill, estimators)
        for j, d in parts.items():
            terms = pair_terms(view, (i, j), (p, d), estimators, policy)
            (full if pair_lacks_room(view, j, d, terms, policy) else roomy)[i, j] = terms
    return roomy, full


def _shown(value: float) -> float | None:
    return None if math.isnan(value) else value
