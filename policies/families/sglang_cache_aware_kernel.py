"""Compiled keys of `policies.families.sglang_cache_aware`."""

from __future__ import annotations

import math

from policies.compiled import keys_kernel
from policies.families.draws_kernel import span
from policies.families.parts_kernel import BACKLOG_TOKENS, BOOKED_TOKENS
from policies.families.power_of_two_kernel import kv_usage, own_requests, two_keys
from policies.families.sglang_cache_aware import FULL, MATCH
from policies.kernel_types import Side

CACHE_AWARE, POWER_OF_TWO, RANDOM, ROUND_ROBIN = 0, 1, 2, 3
THRESHOLD, ABSOLUTE, RELATIVE, PRESSURE, MEAN_PREFILL, THROUGHPUT = 2, 3, 4, 5, 6, 7


@keys_kernel
def keys(side: Side) -> None:
    """Keys of the candidates among P or D."""
    nodes, params, out = side.nodes, side.params, side.out
    policy = params[side.decode]
    if policy == POWER_OF_TWO:
        two_keys(side)
        return
    count = len(out)
    first = side.turn + side.shift
    longest = 0
    for i in range(count):
        if out[i] == math.inf:
            continue
        if policy == CACHE_AWARE:
            out[i] = own_requests(nodes, i, side.decode)
            longest = max(longest, side.cached[i])
        elif policy == ROUND_ROBIN:
            out[i] = float((i - first % count) % count)
        elif policy != RANDOM:
            tokens = nodes[i, BOOKED_TOKENS] if side.decode == 1 else nodes[i, BACKLOG_TOKENS]
            used = kv_usage(nodes, i, side.decode)
            if math.isnan(tokens) or math.isnan(used):
                out[i] = own_requests(nodes, i, side.decode) * params[MEAN_PREFILL] / params[THROUGHPUT]
                continue
            used = FULL if used > FULL else 0.0 if used < 0.0 else used
            work = tokens / params[THROUGHPUT]
            out[i] = work + params[PRESSURE] * used / (1.0 - used)
    if policy != CACHE_AWARE:
        return
    least, most = span(out)
    if most - least > params[ABSOLUTE] and most > params[RELATIVE] * least:
        return
    if float(longest) / float(side.prompt) > params[THRESHOLD]:
        for i in range(count):
            if out[i] != math.inf:
                out[i] = out[i] - MATCH * float(side.cached[i])
