"""What every pair would have given a request by the pool's true laws and true state (docs/evidence.md). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.families.pair_kernel import choose_pair
from policies.kernel_types import LawArrays, PolicyArrays, PoolArrays, Scratch, ViewArrays
from policies.twin.engine.cache import prefix
from policies.twin.engine.columns import (
    Q_BOOKED,
    Q_DECODE_NODE,
    Q_ESTIMATED,
    Q_OUTPUT,
    Q_PROMPT,
    Q_RECORD,
    Q_SLO_CLASS,
    Q_STATUS,
    Q_TRANSFER_STARTED,
    R_N_BOOKED,
    R_TAKEN,
)
from policies.twin.engine.parts import Cache, Int64, Recorder, Routers
from policies.twin.engine.samples import fill_samples, take_sample


@kernel
def look_ahead(
    rt: Routers,
    rec: Recorder,
    view: ViewArrays,
    scratch: Scratch,
    policy: PolicyArrays,
    laws: LawArrays,
    pool: PoolArrays,
    cache: Cache,
    on_uplink: Int64,
    ps: Int64,
    ds: Int64,
    rs: Int64,
    q: Int64,
    r: int,
    now: int,
) -> None:
    """Predictions of every pair for request r, which arrives now, into the recorder. `laws`: the pool's true ones."""
    witness, block, prompt = rt.replicas, pool.block_tokens, q[r, Q_PROMPT]  # a router more, that nobody asks
    rs[witness, R_TAKEN] = 0
    take_sample(rt, pool, ps, ds, rs, witness, now)
    slot = int(np.int64(0))
    fill_samples(rt, view, pool, witness, slot, 0.0)
    for router in range(rt.replicas):
        for k in range(rs[router, R_N_BOOKED]):
            j = rt.booked[router, k]
            if q[j, Q_BOOKED] < 0 or q[j, Q_TRANSFER_STARTED] >= 0 or q[j, Q_STATUS] >= 0:
                continue
            out = view.decode[q[j, Q_DECODE_NODE]]
            out[5] += np.float64((q[j, Q_PROMPT] + q[j, Q_ESTIMATED] + block - 1) // block)
            out[11] += 1.0
            out[12] += np.float64(q[j, Q_PROMPT])
    for p in range(len(ps)):
        view.hit_tokens[p] = prefix(cache, p, r, (prompt - 1) // block)[0] * block
        view.prefill_open[p] = rt.open_p[q[r, Q_SLO_CLASS], p]
    for d in range(len(ds)):
        view.decode_open[d] = rt.open_d[q[r, Q_SLO_CLASS], d]
        for c in (13, 14):
            view.decode[d, c] = 0.0 if np.isnan(view.decode[d, c]) else view.decode[d, c]
    for u in range(len(view.uplink_flows)):
        view.uplink_flows[u] = on_uplink[u]
    view.placed[:] = -1
    seed = np.uint64(0)
    # fmt: off
    choose_pair(
        policy, laws, pool, view, prompt, q[r, Q_ESTIMATED], q[r, Q_OUTPUT], q[r, Q_SLO_CLASS], 0.0, seed, scratch
    )
    # fmt: on
    for p in range(len(ps)):
        for d in range(len(ds)):
            rec.decision_true[q[r, Q_RECORD], p, d, 0] = scratch.predicted_ttft_s[p, d]
            rec.decision_true[q[r, Q_RECORD], p, d, 1] = scratch.predicted_tpot_s[p, d]
