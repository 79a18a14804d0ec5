"""`routecal`: every pair is scored by the seven terms. Plain decision."""

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
    pair_lacks_room,
    prefill_rule,
)
from policies.terms import PairTerms, decode_parts, estimated_blocks, pair_terms, prefill_parts
from policies.view import RouterView

Pairs = dict[tuple[int, int], PairTerms]


def decide_pair(policy: Policy, estimators: Estimators, view: RouterView) -> Decision:
    """The pair of the lowest score."""
    excluded: list[tuple[int, int, str]] = []
    roomy, full = _terms(policy, estimators, view, excluded)
    chosen, scores = choose_pair(policy, view, roomy)
    pairs, dropped = roomy, False
    if chosen is None and policy.when_full == "queue" and full:
        pairs, dropped = roomy | full, True
        chosen, scores = choose_pair(policy, view, pairs)
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


def _terms(
    policy: Policy, estimators: Estimators, view: RouterView, excluded: list[tuple[int, int, str]]
) -> tuple[Pairs, Pairs]:
    """Terms of the pairs that pass the filters of their nodes: those with room on D, and those without."""
    roomy: Pairs = {}
    full: Pairs = {}
    opened = []
    for j, decode in enumerate(view.decode):
        rule = decode_rule(decode, estimated_blocks(view, decode))
        if rule is None:
            opened.append((j, decode_parts(view, decode, estimators, policy)))
        else:
            excluded.append((-1, j, rule))
    for i, prefill in enumerate(view.prefill):
        rule = prefill_rule(view, prefill)
        if rule is not None:
            excluded.append((i, -1, rule))
            continue
        p = prefill_parts(view, prefill, estimators)
        for j, d in opened:
            terms = pair_terms(view, (i, j), (p, d), estimators, policy)
            (full if pair_lacks_room(view, j, d, terms, policy) else roomy)[i, j] = terms
    return roomy, full


def _shown(value: float) -> float | None:
    return None if math.isnan(value) else value
