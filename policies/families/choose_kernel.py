"""The compiled decision of every family: what the twin's routers call once a request."""

from __future__ import annotations

import numpy as np

from policies.compiled import entry_kernel
from policies.families.apart_kernel import choose_apart
from policies.families.pair_kernel import choose_pair
from policies.families.registry import FAMILIES
from policies.kernel_types import LawArrays, PolicyArrays, PoolArrays, Scratch, ViewArrays

ROUTECAL = FAMILIES.index("routecal")


@entry_kernel
def choose(
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
    """p · D + d, or -1 = refused. `tie_seed` is uint64; D = number of decode nodes.

    Leaves in `scratch`: scores (inf = no candidate, NaN = candidate of a family without pair scores), terms and
    predictions (NaN = unknown or none).
    """
    seed = np.uint64(tie_seed)
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
    return choose_apart(policy, pool, view, prompt_tokens, estimated_output, class_index, seed, turn, scratch)
