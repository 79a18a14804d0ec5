"""What a router knows of its own requests without any sample: it hands them on and sees their answers end. Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.kernel_types import ViewArrays
from policies.twin.engine.columns import (
    FOLLOWED,
    GONE,
    Q_BOOKED,
    Q_DECODE_NODE,
    Q_EXPECTED_NEW,
    Q_OFFSET,
    Q_OFFSET_END,
    Q_PREFILL_FINISHED,
    Q_PREFILL_NODE,
    Q_PROMPT,
)
from policies.twin.engine.parts import Int32, Int64, Routers
from policies.view import DECODE_COLUMNS, PREFILL_COLUMNS

TOKENS, PROMPTS, REQUESTS = 0, 1, 2  # columns of own_p
ON_D, BLOCKS = 0, 1  # columns of own_d

OWN_TOKENS = PREFILL_COLUMNS.index("own_tokens")
OWN_PROMPTS = PREFILL_COLUMNS.index("own_prompts")
OWN_ON_P = PREFILL_COLUMNS.index("own_requests")
OWN_ON_D = DECODE_COLUMNS.index("own_requests")
OWN_BLOCKS = DECODE_COLUMNS.index("own_blocks")
NEW_BLOCKS = DECODE_COLUMNS.index("new_blocks")


@kernel
def own_on_p(rt: Routers, q: Int64, r: int) -> None:
    """Request r has been given to its P."""
    row = rt.own_p[r % rt.replicas, q[r, Q_PREFILL_NODE]]
    row[TOKENS] += q[r, Q_EXPECTED_NEW]
    row[PROMPTS] += 1
    row[REQUESTS] += 1


@kernel
def own_computed(rt: Routers, q: Int64, r: int) -> None:
    """P has computed the prompt of request r, or will not."""
    row = rt.own_p[r % rt.replicas, q[r, Q_PREFILL_NODE]]
    row[TOKENS] -= q[r, Q_EXPECTED_NEW]
    row[PROMPTS] -= 1


@kernel
def own_on_d(rt: Routers, ids: Int32, q: Int64, block: int, r: int, step: int) -> None:
    """Request r has been given to its D (step 1), or is over there (step -1)."""
    router, d = r % rt.replicas, q[r, Q_DECODE_NODE]
    row = rt.own_d[router, d]
    row[ON_D] += step
    full = q[r, Q_PROMPT] // block
    listed = min(full, q[r, Q_OFFSET_END] - q[r, Q_OFFSET]) if rt.active.shape[2] > 0 else 0
    row[BLOCKS] += step * (full - listed)
    for k in range(q[r, Q_OFFSET], q[r, Q_OFFSET] + listed):
        held = rt.active[router, d, ids[k]]
        if held == (0 if step > 0 else 1):
            row[BLOCKS] += step
        rt.active[router, d, ids[k]] = held + step


@kernel
def settle_gone(rt: Routers, gone: Int32, ids: Int32, q: Int64, counters: Int64, block: int) -> None:
    """Requests that have ended since the last decision leave their routers' counts."""
    for k in range(counters[GONE]):
        r = gone[k]
        rt.own_p[r % rt.replicas, q[r, Q_PREFILL_NODE], REQUESTS] -= 1
        if q[r, Q_PREFILL_FINISHED] < 0:
            own_computed(rt, q, r)
        if q[r, Q_BOOKED] >= 0:
            own_on_d(rt, ids, q, block, r, -1)
    counters[GONE] = 0
    counters[FOLLOWED] = 0


@kernel
def fill_own(rt: Routers, view: ViewArrays, ids: Int32, q: Int64, block: int, router: int, r: int) -> None:
    """The view's columns of the router's own requests, before request r."""
    for p in range(len(view.prefill)):
        row, own = view.prefill[p], rt.own_p[router, p]
        row[OWN_TOKENS] = np.float64(own[TOKENS])
        row[OWN_PROMPTS] = np.float64(own[PROMPTS])
        row[OWN_ON_P] = np.float64(own[REQUESTS])
    full = q[r, Q_PROMPT] // block
    listed = min(full, q[r, Q_OFFSET_END] - q[r, Q_OFFSET]) if rt.active.shape[2] > 0 else 0
    for d in range(len(view.decode)):
        out, held = view.decode[d], rt.own_d[router, d]
        out[OWN_ON_D] = np.float64(held[ON_D])
        fresh = full
        for k in range(q[r, Q_OFFSET], q[r, Q_OFFSET] + listed):
            if rt.active[router, d, ids[k]] > 0:
                fresh -= 1
        out[OWN_BLOCKS] = np.float64(held[BLOCKS])
        out[NEW_BLOCKS] = np.float64(fresh)
