"""Compiled choice among scored pairs: unknown terms, score, jitter, ties. `policies.scoring` is its plain form."""

from __future__ import annotations

import math

import numpy as np

from policies.compiled import kernel
from policies.families.parts_kernel import decode_draw, pair_tie, prefill_draw
from policies.kernel_types import Float64

BENEFIT = 6
ROOM = 0.0  # marks in `scores` until the scores are there
FULL = 1.0


@kernel
def choose_best(
    weights: Float64,
    class_index: int,
    exclude: bool,
    queue: bool,
    temperatures: tuple[float, float],
    tie_seed: np.uint64,
    unknown: bool,
    scores: Float64,
    terms: Float64,
    ttft_s: Float64,
    tpot_s: Float64,
) -> int:
    """p · D + d of the lowest score, or -1. Writes the candidates' scores; the rest gets inf and NaN."""
    n_prefill, n_decode = scores.shape
    mark = _highest_mark(weights, class_index, exclude and unknown, queue, scores, terms)
    drawn = temperatures[0] != 0.0 or temperatures[1] != 0.0
    # Term by term, so that the worst value of one needs no place of its own.
    for i in range(n_prefill):
        for j in range(n_decode):
            if scores[i, j] > mark:
                scores[i, j] = math.inf
                ttft_s[i, j] = math.nan
                tpot_s[i, j] = math.nan
                for term in range(BENEFIT + 1):
                    terms[i, j, term] = math.nan
            else:
                scores[i, j] = 0.0
    for term in range(BENEFIT + 1):
        weight = weights[class_index, term]
        if weight == 0.0:
            continue
        worst = _worst(term, scores, terms) if unknown else 0.0
        for i in range(n_prefill):
            for j in range(n_decode):
                value = terms[i, j, term]
                part = weight * (worst if math.isnan(value) else value)
                scores[i, j] = scores[i, j] - part if term == BENEFIT else scores[i, j] + part
    best = math.inf
    chosen = -1
    for i in range(n_prefill):
        jitter = temperatures[0] * prefill_draw(tie_seed, i) if drawn else 0.0
        for j in range(n_decode):
            if drawn:
                scores[i, j] += jitter + temperatures[1] * decode_draw(tie_seed, j)
            score = scores[i, j]
            tied = score == best and chosen >= 0
            if tied:
                tied = pair_tie(tie_seed, i, j) < pair_tie(tie_seed, chosen // n_decode, chosen % n_decode)
            if score < best or tied:
                best = score
                chosen = i * int(n_decode) + j
    return chosen


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
                for term in range(BENEFIT + 1):
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
