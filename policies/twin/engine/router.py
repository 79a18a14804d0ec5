"""Routers: bookings, the view of a decision, the decision (docs/twin.md, "What a router sees"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import KeysFunction, kernel
from policies.families.choose_kernel import choose
from policies.kernel_types import LawArrays, PolicyArrays, PoolArrays, Scratch, ViewArrays
from policies.twin.engine.cancel import CANCELLED
from policies.twin.engine.columns import (
    EXPIRED,
    Q_ARRIVAL,
    Q_BOOKED,
    Q_BOOKING_OVER,
    Q_DECODE_NODE,
    Q_ESTIMATED,
    Q_EXPECTED,
    Q_EXPECTED_NEW,
    Q_LISTED,
    Q_PREFILL_NODE,
    Q_PROMPT,
    Q_RECORD,
    Q_SLO_CLASS,
    Q_STATUS,
    Q_TRANSFER_STARTED,
    R_N_BOOKED,
    R_TAKEN,
    R_TURN,
    R_TURN_D,
    STALE,
)
from policies.twin.engine.faults import close_nodes
from policies.twin.engine.links import draw
from policies.twin.engine.own import fill_own, settle_gone
from policies.twin.engine.parts import Float64, Int32, Int64, Recorder, Routers
from policies.twin.engine.samples import fill_samples, newest, take_sample


@kernel
def book(rt: Routers, rs: Int64, q: Int64, r: int, on_d: bool, now: int) -> None:
    """r's router books it: on P at its arrival, on D as soon as that is chosen."""
    if on_d:
        q[r, Q_BOOKED] = now
        q[r, Q_BOOKING_OVER] = 0
    if q[r, Q_LISTED] == 0:
        router = r % rt.replicas
        q[r, Q_LISTED] = 1
        rt.booked[router, rs[router, R_N_BOOKED]] = r
        rs[router, R_N_BOOKED] += 1


@kernel
def _fill_bookings(
    rt: Routers,
    view: ViewArrays,
    rs: Int64,
    q: Int64,
    counters: Int64,
    block: int,
    router: int,
    sampled: np.int64,
    skip: int,
    now: int,
) -> None:
    """Add the router's own decisions that the used sample cannot show; forget those that none will need.

    `skip`: the request that a D is chosen for. Its own booking does not count against it.
    """
    booked = rt.booked[router]
    correct = rt.correct_age == 1 and sampled >= 0
    if correct:
        for p in range(len(view.prefill)):
            rt.drained[p] = sampled
    kept = 0
    for k in range(rs[router, R_N_BOOKED]):
        j = booked[k]
        on_p = sampled < q[j, Q_ARRIVAL] and q[j, Q_STATUS] != CANCELLED
        if q[j, Q_BOOKING_OVER] == 0 and q[j, Q_BOOKED] >= 0:
            reserved = q[j, Q_TRANSFER_STARTED]
            if (reserved >= 0 and sampled >= reserved) or q[j, Q_STATUS] >= 0:
                q[j, Q_BOOKING_OVER] = 1
            elif now >= q[j, Q_BOOKED] + rt.lease:
                q[j, Q_BOOKING_OVER] = 1
                if reserved < 0:
                    counters[EXPIRED] += 1
        on_d = q[j, Q_BOOKING_OVER] == 0 and q[j, Q_BOOKED] >= 0
        if on_p:
            row = view.prefill[q[j, Q_PREFILL_NODE]]
            if correct:
                _drain(rt, row, q[j, Q_PREFILL_NODE], q[j, Q_ARRIVAL])
            row[0] += np.float64(q[j, Q_EXPECTED_NEW])
            row[1] += 1.0
        if on_d and j != skip:
            out = view.decode[q[j, Q_DECODE_NODE]]
            out[5] += np.float64((q[j, Q_PROMPT] + q[j, Q_ESTIMATED] + block - 1) // block)
            out[11] += 1.0
            out[12] += np.float64(q[j, Q_PROMPT])
        if on_p or on_d:
            booked[kept] = j
            kept += 1
        else:
            q[j, Q_LISTED] = 0
    rs[router, R_N_BOOKED] = kept
    if correct:
        for p in range(len(view.prefill)):
            _drain(rt, view.prefill[p], p, now)
            view.prefill[p, 4] = 0.0


@kernel
def _drain(rt: Routers, row: Float64, p: int, until: int) -> None:
    """P's backlog as it is expected to be at a time, after what it computes until then."""
    left = row[0] - rt.pace[p] * (np.float64(until - rt.drained[p]) / 1e9)
    left = 0.0 if left < 0.0 else left
    if row[0] > 0.0:
        row[1] *= left / row[0]
    row[0] = left
    rt.drained[p] = until


@kernel
def fill_view(
    rt: Routers,
    view: ViewArrays,
    policy: PolicyArrays,
    pool: PoolArrays,
    hits: Int64,
    ids: Int32,
    gone: Int32,
    own_flows: Int64,
    ps: Int64,
    ds: Int64,
    rs: Int64,
    q: Int64,
    counters: Int64,
    r: int,
    computed_on: int,
    now: int,
) -> float:
    """What r's router knows; age of its sample. `computed_on`: the P that has computed r's prompt, -1 = none."""
    router = r % rt.replicas
    if rt.period == 0:
        take_sample(rt, pool, ps, ds, rs, router, now)
        slot = int(np.int64(0))
    else:
        slot = newest(rt.ring_time, rs[router, R_TAKEN], router, rt.delay, now)
    sampled = rt.ring_time[router, slot] if slot >= 0 else np.int64(-1)
    age = np.nan if slot < 0 else np.float64(now - sampled) / 1e9
    if slot >= 0 and now > sampled:
        counters[STALE] += 1
    fill_samples(rt, view, pool, router, slot, age)
    _fill_bookings(rt, view, rs, q, counters, pool.block_tokens, router, sampled, r, now)
    settle_gone(rt, gone, ids, q, counters, pool.block_tokens)
    fill_own(rt, view, ids, q, pool.block_tokens, router, r)
    slo_class = q[r, Q_SLO_CLASS]
    for p in range(len(ps)):
        view.hit_tokens[p] = hits[p] * pool.block_tokens
        view.prefill_open[p] = rt.open_p[slo_class, p]
    for d in range(len(ds)):
        view.decode_open[d] = rt.open_d[slo_class, d]
    if len(rt.closed) > 0:
        close_nodes(rt.closed, rt.refusing, view, int(now if rt.closed_at_once == 1 else sampled))
    for u in range(len(view.uplink_flows)):
        view.uplink_flows[u] = own_flows[router, u]
    view.placed[0] = computed_on
    view.placed[1] = -1
    last = rt.last_pair[router, slo_class]
    if policy.hysteresis_s > 0.0 and computed_on < 0 and last[0] >= 0 and now - last[2] <= rt.dwell:
        view.placed[1] = last[0]
        view.placed[2] = last[1]
    return age


@kernel
def decide(
    keys: KeysFunction,
    rt: Routers,
    rec: Recorder,
    view: ViewArrays,
    scratch: Scratch,
    policy: PolicyArrays,
    laws: LawArrays,
    pool: PoolArrays,
    hits: Int64,
    ids: Int32,
    gone: Int32,
    own_flows: Int64,
    ps: Int64,
    ds: Int64,
    rs: Int64,
    q: Int64,
    counters: Int64,
    r: int,
    computed_on: int,
    now: int,
) -> int:
    """Pair that request r's router chooses, p * D + d, or -1. `computed_on`: as in `fill_view`."""
    router = r % rt.replicas
    age = fill_view(rt, view, policy, pool, hits, ids, gone, own_flows, ps, ds, rs, q, counters, r, computed_on, now)
    turn = R_TURN if computed_on < 0 else R_TURN_D
    moment = 0 if computed_on < 0 else 1
    waited = np.float64(now - q[r, Q_ARRIVAL]) / 1e9
    # fmt: off
    pair = choose(
        keys, policy, laws, pool, view, q[r, Q_PROMPT], q[r, Q_ESTIMATED], q[r, Q_EXPECTED], q[r, Q_SLO_CLASS],
        waited, draw(rt.seed, 4, r, moment), rs[router, turn], scratch,
    )
    # fmt: on
    rs[router, turn] += 1
    if computed_on >= 0:
        return pair
    last = rt.last_pair[router, q[r, Q_SLO_CLASS]]
    if pair >= 0 and (last[0] != pair // len(ds) or last[1] != pair % len(ds)):
        last[0] = pair // len(ds)
        last[1] = pair % len(ds)
        last[2] = now
    row = q[r, Q_RECORD]
    if row >= 0:
        for p in range(len(ps)):
            for d in range(len(ds)):
                rec.decision_scores[row, p, d] = scratch.scores[p, d]
                for c in range(scratch.terms.shape[2]):
                    rec.decision_terms[row, p, d, c] = scratch.terms[p, d, c]
        rec.decision_age[row] = age
    return pair
