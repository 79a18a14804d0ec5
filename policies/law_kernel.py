"""Compiled laws of steps: `models.portable.steps`, operation by operation. The twin and its routers both use them."""

from __future__ import annotations

import math

from policies.compiled import inlined
from policies.kernel_types import CAP, FACTOR, FIRST_BEND, Float64, StepArrays


@inlined
def prefill_s(laws: StepArrays, i: int, tokens: float, chunk_context: float, prompts: float) -> float:
    """Seconds of a prefill step on node i."""
    return float(prefill_of_type_s(laws, i, tokens, chunk_context, prompts) * laws.law[i, FACTOR])


@inlined
def prefill_of_type_s(laws: StepArrays, i: int, tokens: float, chunk_context: float, prompts: float) -> float:
    """Seconds of a prefill step on a node of factor 1 of node i's type."""
    c = laws.law[i]
    poly = c[0] + c[1] * tokens + c[2] * tokens * tokens + c[3] * chunk_context + c[4] * prompts
    residual = 1.0
    for tree in range(laws.roots.shape[1]):
        node = laws.roots[i, tree]
        if node < 0:
            break
        while laws.branch[node, 0] >= 0:
            feature = laws.branch[node, 0]
            x = tokens if feature == 0 else chunk_context if feature == 1 else prompts
            node = laws.branch[node, 1 if x < laws.value[node] else 2]
        residual *= laws.value[node]
    return float(bent(c, poly, tokens) * residual)


@inlined
def decode_s(laws: StepArrays, j: int, sequences: float, tokens: float) -> float:
    """Seconds of a decode step on node j; NaN if an input is."""
    residual, _ = decode_residual(laws, j, sequences, tokens)
    return decode_with(laws.law[j], residual, sequences, tokens)


@inlined
def decode_with(law: Float64, residual: float, sequences: float, tokens: float) -> float:
    """Seconds of a decode step by a row of `StepArrays.law` with the product of its trees; NaN if an input is."""
    if math.isnan(sequences) or math.isnan(tokens):
        return math.nan
    x = tokens if tokens < law[CAP] else law[CAP]
    poly = law[0] + law[1] * sequences + law[2] * x + law[3] * x * x
    return float(bent(law, poly, sequences) * residual * law[FACTOR])


@inlined
def decode_residual(laws: StepArrays, j: int, sequences: float, tokens: float) -> tuple[float, float]:
    """Product of the trees of node j, and the least tokens above which it may be another at the same sequences."""
    residual = 1.0
    until = math.inf
    for tree in range(laws.roots.shape[1]):
        node = laws.roots[j, tree]
        if node < 0:
            break
        while laws.branch[node, 0] >= 0:
            split = laws.value[node]
            of_tokens = laws.branch[node, 0] == 1
            if (tokens if of_tokens else sequences) < split:
                if of_tokens and split < until:
                    until = split
                node = laws.branch[node, 1]
            else:
                node = laws.branch[node, 2]
        residual *= laws.value[node]
    return residual, until


@inlined
def bent(law: Float64, value: float, size: float) -> float:
    """The polynomial's value with the law's bends at a size."""
    for k in range(FIRST_BEND, len(law), 2):
        if size > law[k]:
            value += law[k + 1] * (size - law[k])
    return value
