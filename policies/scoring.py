"""From terms to a choice: filters, the rule for unknown terms, score, jitter, ties. Plain form of docs/decision.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

from policies.mixing import decode_draw, node_tie, pair_tie, prefill_draw
from policies.policy import Policy, Weights
from policies.terms import DecodeParts, PairTerms, blocks_of, known
from policies.view import DecodeView, PrefillView, RequestView, RouterView

BENEFIT = 6
"""Index of PrefixBenefit, the one term where more is better."""

OWN = (3, 4, 5, 7)
"""Terms that D has a part of its own in: DecodeWait, ProjectedKVPressure, SloRisk, NeighbourHarm."""

PREFILL_RULES = ("prefill_not_accepting", "prefill_incompatible", "prefill_too_small")
DECODE_RULES = ("decode_not_accepting", "decode_incompatible", "decode_too_small", "decode_full")
UNKNOWN_RULE = "unknown"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One scored pair. `terms` in the order of TERMS as they came, None = unknown; `score` with jitter."""

    prefill: int
    decode: int
    terms: tuple[float | None, ...]
    score: float
    ttft_s: float | None
    tpot_s: float | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The chosen node indices, None = refused.

    `candidates`: every scored pair (families that score pairs). `prefill_keys`, `decode_keys`: what the others compare,
    one value a node, None = unknown or no candidate. `excluded`: pairs or nodes (index -1 = any) with the rule that
    removed them. `capacity_dropped`: no D had room, and the choice was made among those that will.
    """

    prefill: int | None
    decode: int | None
    candidates: tuple[Candidate, ...] = ()
    prefill_keys: tuple[float | None, ...] = ()
    decode_keys: tuple[float | None, ...] = ()
    excluded: tuple[tuple[int, int, str], ...] = ()
    capacity_dropped: bool = False


def prefill_rule(view: RouterView, node: PrefillView) -> str | None:
    """The filter that P fails, if any."""
    if not node.accepting:
        return "prefill_not_accepting"
    if not node.compatible:
        return "prefill_incompatible"
    if blocks_of(view.request.prompt_tokens, view.block_tokens) > node.total_blocks:
        return "prefill_too_small"
    return None


def decode_rule(node: DecodeView, estimated: float) -> str | None:
    """The filter that D fails, if any; room is `lacks_room`."""
    if not node.accepting:
        return "decode_not_accepting"
    if not node.compatible:
        return "decode_incompatible"
    if estimated > node.usable_blocks:
        return "decode_too_small"
    return None


def lacks_room(
    node: DecodeView, room: float, estimated: float, delta: float, policy: Policy, request: RequestView
) -> bool:
    """The capacity rule. `delta` NaN (unknown arrival) = the horizon; unknown room fails under `exclude` only."""
    growth, release = known(node.growth_blocks_per_s), known(node.release_blocks_per_s)
    net = (0.0 if math.isnan(growth) else growth) - (0.0 if math.isnan(release) else release)
    ahead = policy.horizon_s if math.isnan(delta) else delta
    needed = estimated + (0.0 if net < 0.0 else net) * ahead + policy.classes[request.class_index].reserve_blocks
    if math.isnan(room):
        return policy.unknown == "exclude"
    return room < needed


def may_queue(policy: Policy, view: RouterView) -> bool:
    """Whether a D without room may be chosen where none has any. A computed prompt is never refused."""
    return policy.when_full == "queue" or view.request.prefilled_on is not None


def pair_lacks_room(view: RouterView, decode: int, parts: DecodeParts, terms: PairTerms, policy: Policy) -> bool:
    """The capacity rule with the pair's own arrival."""
    delta = policy.horizon_s if policy.horizon_s < terms.arrival_s else terms.arrival_s
    node = view.decode[decode]
    return lacks_room(node, parts.room_blocks, parts.estimated_blocks, delta, policy, view.request)


def choose_pair(
    policy: Policy, view: RouterView, pairs: dict[tuple[int, int], PairTerms], parts: dict[int, DecodeParts]
) -> tuple[tuple[int, int] | None, dict[tuple[int, int], float]]:
    """The best of the candidate pairs and every score; no pair is left if `exclude` takes the last one.

    `parts` of every D that a pair has.
    """
    weights = policy.classes[view.request.class_index].weights
    if policy.unknown == "exclude":
        pairs = {at: terms for at, terms in pairs.items() if not lacks_a_term(terms, weights)}
    worst = tuple(_worst([terms.values[k] for terms in pairs.values()], k) for k in range(len(weights)))
    seed = view.request.tie_seed
    scores = {}
    for (i, j), terms in pairs.items():
        jitter = policy.temperature_p_s * prefill_draw(seed, i) + policy.temperature_d_s * decode_draw(seed, j)
        scores[i, j] = score(terms.values, weights, worst) + jitter
    if not scores:
        return None, scores
    among = list(scores)
    if policy.decode_moment == "decode_first" and view.request.prefilled_on is None:
        decode = _best_decode(policy, view, {j: parts[j] for _, j in scores})
        among = [at for at in among if at[1] == decode]
    best = min(among, key=lambda at: (scores[at], pair_tie(seed, *at)))
    last = view.last_pair
    if policy.hysteresis_s > 0.0 and last in scores and scores[last] - scores[best] <= policy.hysteresis_s:
        return last, scores
    return best, scores


def _best_decode(policy: Policy, view: RouterView, parts: dict[int, DecodeParts]) -> int:
    """The D of the lowest own part of the score."""
    weights, seed = policy.classes[view.request.class_index].weights, view.request.tie_seed
    own = {
        j: (d.reservation_s + d.boundary_s + d.first_step_s, d.own_pressure, d.own_risk, d.harm)
        for j, d in parts.items()
    }
    worst = [_worst([values[k] for values in own.values()], term) for k, term in enumerate(OWN)]
    sums = {}
    for j, values in own.items():
        total = 0.0
        for k, term in enumerate(OWN):
            if weights[term] != 0.0:
                total += weights[term] * (worst[k] if math.isnan(values[k]) else values[k])
        sums[j] = total + policy.temperature_d_s * decode_draw(seed, j)
    return min(sums, key=lambda j: (sums[j], node_tie(seed, j, decode=True)))


def score(values: tuple[float, ...], weights: Weights, worst: tuple[float, ...]) -> float:
    """Weighted sum in the order of TERMS, the benefit subtracted; terms of weight 0 take no part, unknown or not."""
    total = 0.0
    for k, (value, weight) in enumerate(zip(values, weights, strict=True)):
        if weight == 0.0:
            continue
        part = weight * (worst[k] if math.isnan(value) else value)
        total = total - part if k == BENEFIT else total + part
    return total


def lacks_a_term(terms: PairTerms, weights: Weights) -> bool:
    """A term that the score needs is unknown."""
    return any(weight != 0.0 and math.isnan(value) for value, weight in zip(terms.values, weights, strict=True))


def _worst(values: list[float], term: int) -> float:
    found = [value for value in values if not math.isnan(value)]
    if not found:
        return 0.0  # nobody knows it: left out for all
    return min(found) if term == BENEFIT else max(found)
