"""Compiled keys of `policies.families.dynamo_cost`."""

from __future__ import annotations

import math

import numpy as np

from policies import draws
from policies.compiled import keys_kernel
from policies.families.draws_kernel import node_draw, span
from policies.families.parts_kernel import NEW_BLOCKS, OWN_BLOCKS, OWN_ON_D, OWN_PROMPTS, OWN_TOKENS
from policies.kernel_types import Side

GUMBEL = np.array(draws.GUMBEL)
CREDIT, DECAY, SCALE, PER_REQUEST, TEMPERATURE, COUNT = 0, 1, 2, 3, 6, 7


@keys_kernel
def keys(side: Side) -> None:
    """Keys of the candidates among P or D."""
    nodes, params, out = side.nodes, side.params, side.out
    own = COUNT * side.decode
    block, prompt = float(side.block), float(side.prompt)
    prompt_blocks = float(-(-side.prompt // side.block))
    least = math.inf
    for i in range(len(out)):
        if side.decode == 0 and out[i] != math.inf and nodes[i, OWN_TOKENS] < least:
            least = nodes[i, OWN_TOKENS]
    for i in range(len(out)):
        if out[i] == math.inf:
            continue
        if side.decode == 1:
            blocks = nodes[i, OWN_BLOCKS] + nodes[i, NEW_BLOCKS]
            out[i] = blocks + params[own + PER_REQUEST] * nodes[i, OWN_ON_D]
            continue
        credit = params[own + CREDIT]
        if params[own + DECAY] > 0.0:
            excess = (nodes[i, OWN_TOKENS] - least) / block / prompt_blocks
            credit = credit * (1.0 / (1.0 + params[own + DECAY] * excess))
        left = (nodes[i, OWN_TOKENS] + prompt) / block - credit * (float(side.cached[i]) / block)
        left = 0.0 if left < 0.0 else left
        out[i] = params[own + SCALE] * left + params[own + PER_REQUEST] * nodes[i, OWN_PROMPTS]
    temperature = params[own + TEMPERATURE]
    if temperature == 0.0:
        return
    low, high = span(out)
    low = 0.0 if low == math.inf else low
    for i in range(len(out)):
        if out[i] == math.inf:
            continue
        share = (out[i] - low) / (high - low) if high > low else out[i] - low
        out[i] = share - temperature * GUMBEL[node_draw(side.seed, i, side.decode)]
