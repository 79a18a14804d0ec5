"""The compiled decision of every family: what the twin's routers call once a request."""

from __future__ import annotations

import numpy as np

from policies.compiled import KeysFunction, kernel
from policies.families.apart_kernel import choose_apart
from policies.families.narrow_kernel import draw_decode, draw_prefill, keep_computed
from policies.families.pair_kernel import choose_pair
from policies.kernel_types import LawArrays, PolicyArrays, PoolArrays, Scratch, ViewArrays

ROUTECAL = 0
"""Its number: the first of `policies.families.registry.FAMILIES`."""


@kernel
def choose(
    keys: KeysFunction,
    policy: PolicyArrays,
    laws: LawArrays,
    pool: PoolArrays,
    view: ViewArrays,
    prompt_tokens: int,
    estimated_output: int,
    expected_output: int,
    class_index: int,
    waited_s: float,
    tie_seed: np.uint64,
    turn: int,
    scratch: Scratch,
) -> int:
    """p · D + d, or -1 = refused. `keys`: of the policy's family (`policies.families.kernels`), unused by `routecal`.
    `tie_seed` is uint64; D = number of decode nodes.

    Closes in `view` the nodes that this decision does not look at: fill it anew for the next one.
    Leaves in `scratch`: scores (inf = no candidate, NaN = candidate of a family without pair scores), terms and
    predictions (NaN = unknown or none).
    """
    seed = np.uint64(tie_seed)
    computed_on, block = view.placed[0], pool.block_tokens
    if computed_on >= 0:
        keep_computed(view.prefill, view.prefill_open, view.hit_tokens, pool.prefill_blocks, computed_on)
    elif policy.draws_p > 0:
        need = -(-prompt_tokens // block)
        draw_prefill(view.prefill_open, pool.prefill_blocks, need, policy.draws_p, seed)
    if policy.draws_d > 0:
        tokens = prompt_tokens + estimated_output
        draw_decode(view.decode_open, view.decode, view.resident_tokens, tokens, block, policy.draws_d, seed)
    if policy.family == ROUTECAL:
        return choose_pair(
            policy,
            laws,
            pool,
            view,
            prompt_tokens,
            estimated_output,
            expected_output,
            class_index,
            waited_s,
            seed,
            scratch,
        )
    return choose_apart(keys, policy, pool, view, prompt_tokens, estimated_output, class_index, seed, turn, scratch)
