"""Compiled choice among scored pairs: unknown terms, score, jitter, ties. `policies.scoring` is its plain form."""

from __future__ import annotations

import math

import numpy as np

from policies.compiled import kernel
from policies.families.parts_kernel import decode_draw, node_tie, pair_tie, prefill_draw
from policies.kernel_types import Float64

BENEFIT = 6
TERM_COUNT = 9
DECODE = 1
ROOM = 0.0  # marks in `scores` until the scores are there
FULL = 1.0


@kernel
def choose_best(
    weights: Float64,
    class_index: int,
    exclude: bool,
    queue: bool,
    temperature_p: float,
    temperature_d: float,
    tie_seed: np.uint64,
    unknown: bool,
    decode_first: bool,
    scores: Float64,
    terms: Float64,
    ttft_s: Float64,
    tpot_s: Float64,
    own: Float64,
) -> int:
    """p · D + d of the lowest score, or -1. Writes the candidates' scores; the rest gets inf and NaN."""
    n_prefill, n_decode = scores.shape
    mark = _highest_mark(weights, class_index, exclude and unknown, queue, scores, terms)
    drawn = temperature_p != 0.0 or temperature_d != 0.0
    for i in range(n_prefill):
        for j in range(n_decode):
            if scores[i, j] > mark:
                scores[i, j] = math.inf
                ttft_s[i, j] = math.nan
                tpot_s[i, j] = math.nan
                for term in range(TERM_COUNT):
                    terms[i, j, term] = math.nan
            else:
                scores[i, j] = 0.0 if unknown else _known_score(weights, class_index, terms, i, j)
    if unknown:
        _sum_unknown(weights, class_index, scores, terms)
    only = _best_decode(weights, class_index, temperature_d, tie_seed, scores, terms, own) if decode_first else -1
    best = math.inf
    chosen = -1
    for i in range(n_prefill):
        jitter = temperature_p * prefill_draw(tie_seed, i) if drawn else 0.0
        for j in range(n_decode):
            if drawn:
                scores[i, j] += jitter + temperature_d * decode_draw(tie_seed, j)
            score = math.inf if decode_first and j != only else scores[i, j]
            tied = score == best and chosen >= 0
            if tied:
                tied = pair_tie(tie_seed, i, j) < pair_tie(tie_seed, chosen // n_decode, chosen % n_decode)
            if score < best or tied:
                best = score
                chosen = i * int(n_decode) + j
    return chosen


@kernel
def _known_score(weights: Float64, class_index: int, terms: Float64, i: int, j: int) -> float:
    score = 0.0
    for term in range(TERM_COUNT):
        weight = weights[class_index, term]
        if weight != 0.0:
            part = weight * terms[i, j, term]
            score = score - part if term == BENEFIT else score + part
    return score


@kernel
def _sum_unknown(weights: Float64, class_index: int, scores: Float64, terms: Float64) -> None:
    """The scores, term by term, so that the worst value of one needs no place of its own."""
    for term in range(TERM_COUNT):
        weight = weights[class_index, term]
        if weight == 0.0:
            continue
        worst = _worst(term, scores, terms)
        for i in range(scores.shape[0]):
            for j in range(scores.shape[1]):
                value = terms[i, j, term]
                part = weight * (worst if math.isnan(value) else value)
                scores[i, j] = scores[i, j] - part if term == BENEFIT else scores[i, j] + part


@kernel
def _best_decode(
    weights: Float64,
    class_index: int,
    temperature: float,
    tie_seed: np.uint64,
    scores: Float64,
    terms: Float64,
    own: Float64,
) -> int:
    """The D of the lowest own part of the score among those of candidates, -1 = none."""
    best = math.inf
    chosen = -1
    for j in range(scores.shape[1]):
        total = math.inf
        for k in range(4):
            value = _own_part(k, j, scores, terms, own)
            if value == math.inf:
                break
            total = 0.0 if k == 0 else total
            weight = weights[class_index, 7 if k == 3 else 3 + k]
            if weight == 0.0:
                continue
            if math.isnan(value):
                worst = math.nan
                for other in range(scores.shape[1]):
                    part = _own_part(k, other, scores, terms, own)
                    if part != math.inf and not math.isnan(part) and not part <= worst:
                        worst = part
                value = 0.0 if math.isnan(worst) else worst
            total += weight * value
        if total == math.inf:
            continue
        if temperature != 0.0:
            total += temperature * decode_draw(tie_seed, j)
        tied = total == best and node_tie(tie_seed, j, DECODE) < node_tie(tie_seed, chosen, DECODE)
        if total < best or tied:
            best = total
            chosen = j
    return chosen


@kernel
def _own_part(k: int, j: int, scores: Float64, terms: Float64, own: Float64) -> float:
    """Part k of D j's own: DecodeWait, pressure, risk, harm; inf if D j is in no candidate."""
    for i in range(scores.shape[0]):
        if scores[i, j] != math.inf:
            if k == 0:
                return float(terms[i, j, 3])
            return float(terms[i, j, 7] if k == 3 else own[j, k - 1])
    return math.inf


@kernel
def _highest_mark(
    weights: Float64, class_index: int, exclude: bool, queue: bool, scores: Float64, terms: Float64
) -> float:
    """Mark that a candidate may have at most: ROOM, or FULL if nothing has room and requests may queue."""
    room = 0
    for i in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            if scores[i, j] == math.inf:
                continue
            if exclude:
                for term in range(TERM_COUNT):
                    if weights[class_index, term] != 0.0 and math.isnan(terms[i, j, term]):
                        scores[i, j] = math.inf
            if scores[i, j] == ROOM:
                room += 1
    return FULL if room == 0 and queue else ROOM


@kernel
def _worst(term: int, scores: Float64, terms: Float64) -> float:
    """Worst known value of a term among the candidates; 0 if nobody knows it."""
    worst = math.nan
    for i in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            value = terms[i, j, term]
            if scores[i, j] == math.inf or math.isnan(value):
                continue
            if math.isnan(worst) or (value < worst if term == BENEFIT else value > worst):
                worst = value
    return 0.0 if math.isnan(worst) else worst
