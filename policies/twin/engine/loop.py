"""The event loop of the compiled twin: docs/twin.md, "Order at one instant". Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import KeysFunction, entry_kernel
from policies.kernel_types import LawArrays, PolicyArrays, PoolArrays, Scratch, ViewArrays
from policies.twin.engine.cancel import CANCELLED, await_cancel, cancel_next, drop
from policies.twin.engine.columns import (
    ARRIVED,
    CANCELS,
    D_END,
    FAULTED,
    FOLLOWERS,
    HANDED,
    NEVER,
    NEXT_FLOW,
    P_END,
    POLLED,
    Q_ARRIVAL,
    Q_BOOKED,
    Q_DECODE_NODE,
    Q_FORCED_D,
    Q_FORCED_P,
    Q_KIND,
    Q_PROMPT,
    Q_RECORD,
    Q_STATUS,
    R_NEXT_SAMPLE,
    READY,
    TO_COME,
)
from policies.twin.engine.decode import first_on_p
from policies.twin.engine.decode_ahead import catch_up
from policies.twin.engine.decode_blocks import find_held
from policies.twin.engine.decode_steps import reaches_out
from policies.twin.engine.faults import FAILED, fault_event, is_closed, refuses
from policies.twin.engine.hindsight import look_ahead
from policies.twin.engine.lengths import estimate
from policies.twin.engine.links import lands_on, transfer_event
from policies.twin.engine.own import own_computed, own_on_d, settle_gone
from policies.twin.engine.parts import (
    Course,
    Decode,
    FaultRows,
    Int64,
    Lengths,
    Links,
    Prefill,
    Recorder,
    Routers,
)
from policies.twin.engine.placing import hand_off, place
from policies.twin.engine.polls import write_poll
from policies.twin.engine.prefill import prefill_boundary
from policies.twin.engine.router import book, decide
from policies.twin.engine.samples import tick
from policies.twin.engine.sessions import follow, follow_gone, take_follower
from policies.twin.engine.signals import find_hits

REJECTED, TOO_LARGE = 1, 2
HANDOFF = 2  # place among policy.DECODE_MOMENTS; of recheck, too, D is chosen then


@entry_kernel
def run(
    keys: KeysFunction,
    pre: Prefill,
    dec: Decode,
    x: Links,
    rt: Routers,
    lengths: Lengths,
    course: Course,
    fx: FaultRows,
    rec: Recorder,
    view: ViewArrays,
    scratch: Scratch,
    policy: PolicyArrays,
    seen: LawArrays,
    true: LawArrays,
    pool: PoolArrays,
    ps: Int64,
    ds: Int64,
    rs: Int64,
    q: Int64,
    counters: Int64,
) -> None:
    """Replay until the rows that are ready have arrived, or to the end if all are.

    The parts carry the pool's `true` laws, `seen` is what the routers believe.
    """
    requests, prefill_nodes, decode_nodes, routers, polls = len(q), len(ps), len(ds), rt.replicas, len(rec.poll_time)
    ready, first, poll = counters[READY], counters[ARRIVED], counters[POLLED]
    sessions = len(course.child) > 0
    while True:
        while sessions and first < requests and course.think[first] >= 0:
            first += 1
        if first == ready and ready < requests:
            counters[ARRIVED] = first
            counters[POLLED] = poll
            return
        # The earliest event; strict comparisons in this order are the order at one instant.
        r = first
        t = q[r, Q_ARRIVAL] if r < requests else NEVER
        kind = 0
        if counters[FOLLOWERS] > 0:
            time, turn = course.followers[0, 0], course.followers[0, 1]
            if time < t or (time == t and turn < r):
                t, r = time, turn
        at = int(np.int64(0))
        if counters[FAULTED] < len(fx.events) and fx.events[counters[FAULTED], 0] <= t:
            t = fx.events[counters[FAULTED], 0]
            kind = 7
        if counters[CANCELS] > 0 and course.cancels[0, 0] < t:
            t = course.cancels[0, 0]
            kind = 6
        if counters[NEXT_FLOW] < t:
            t = counters[NEXT_FLOW]
            kind = 1
        for p in range(prefill_nodes):
            if ps[p, P_END] < t:
                t = ps[p, P_END]
                kind = 2
                at = p
        for d in range(decode_nodes):
            if ds[d, D_END] < t and reaches_out(ds, d):
                t = ds[d, D_END]
                kind = 3
                at = d
        for k in range(routers):
            if rs[k, R_NEXT_SAMPLE] < t:
                t = rs[k, R_NEXT_SAMPLE]
                kind = 4
                at = k
        if poll < polls and rec.poll_time[poll] < t:
            t = rec.poll_time[poll]
            kind = 5
        # Ds that this event looks at make their steps up to it; for a sample or poll what ends right then counts, too.
        limit = t + 1 if kind == 4 or kind == 5 else t
        comes_first = False
        from_d, to_d = 0, decode_nodes
        if counters[TO_COME] > 0:
            # A turn that ends on a D brings the next one, at the least think time later: maybe before the event.
            for d in range(decode_nodes):
                comes_first = comes_first or ds[d, D_END] + course.least_think <= limit
                limit = min(limit, ds[d, D_END] + course.least_think)
        elif kind == 1:
            from_d = lands_on(x, q)
            to_d = from_d + 1
        elif kind == 3:
            from_d, to_d = at, at + 1
        if kind == 2 and not comes_first:
            prefill_boundary(pre, ps, q, counters, at, t)
            if counters[HANDED] == 0 and counters[TO_COME] == 0:
                to_d = 0
        due = kind == 3 and not comes_first
        for d in range(max(from_d, 0), to_d):
            catch_up(dec, x, course, ps, ds, q, counters, d, limit, due and d == at)
        if comes_first:
            continue
        if t == NEVER:
            return
        if kind == 2:
            for k in range(counters[HANDED]):
                own_computed(rt, q, pre.handed[k])
            for k in range(counters[HANDED]):
                handed = pre.handed[k]
                if dec.first_on_p == 1 and first_on_p(dec, ps, q, counters, handed, t):
                    continue
                if policy.decode_moment >= HANDOFF and q[handed, Q_KIND] == 0:
                    if sessions:  # those that ended at this boundary: the decision settles them
                        follow_gone(course, dec.gone, q, counters, t)
                    if q[handed, Q_BOOKED] >= 0:
                        own_on_d(rt, pre.ids, q, pool.block_tokens, handed, -1)
                    if x.spare == 1:
                        find_held(dec, ds, q, handed, view.resident_tokens)
                    # fmt: off
                    pair = decide(
                        keys, rt, rec, view, scratch, policy, seen, pool, pre.cache.hits, pre.ids, dec.gone,
                        x.own_flows, ps, ds, rs, q, counters, handed, at, t,
                    )
                    # fmt: on
                    if pair >= 0:
                        q[handed, Q_DECODE_NODE] = pair % decode_nodes
                    book(rt, rs, q, handed, True, t)
                    own_on_d(rt, pre.ids, q, pool.block_tokens, handed, 1)
                hand_off(ds, q, pool.block_tokens, handed, t)
                if len(rt.closed) > 0 and is_closed(rt.closed, prefill_nodes + q[handed, Q_DECODE_NODE], 1, t):
                    drop(pre, dec, x, ps, ds, q, counters, handed, FAILED, t)
            counters[HANDED] = 0
        elif kind == 1:
            transfer_event(x, ps, ds, q, counters, t)
        elif kind == 0:
            if len(lengths.base) > 0 and q[r, Q_KIND] < 2:
                estimate(lengths, dec.ended, rs, q, counters, r % rt.replicas, r)
            if q[r, Q_KIND] < 2:
                find_hits(pre.cache, r, (q[r, Q_PROMPT] - 1) // pool.block_tokens, t)
            if q[r, Q_KIND] == 2:
                q[r, Q_STATUS] = TOO_LARGE
            elif q[r, Q_KIND] == 3:
                q[r, Q_STATUS] = CANCELLED
            elif q[r, Q_KIND] == 1 and refuses(
                rt.closed, rt.refusing, q[r, Q_FORCED_P], prefill_nodes + q[r, Q_FORCED_D], t
            ):
                rt.refusing[:] = 0
                q[r, Q_STATUS] = FAILED
            elif q[r, Q_KIND] == 1:
                settle_gone(rt, dec.gone, pre.ids, q, counters, pool.block_tokens)
                # fmt: off
                place(
                    rt, pre.cache.hits, pre.queues, pre.ids, ps, rs, q, pool.block_tokens, r, q[r, Q_FORCED_P],
                    q[r, Q_FORCED_D], True, t,
                )
                # fmt: on
            else:
                on_d = policy.decode_moment != HANDOFF
                if x.spare == 1:
                    find_held(dec, ds, q, r, view.resident_tokens)
                if q[r, Q_RECORD] >= 0:
                    # fmt: off
                    look_ahead(
                        rt, rec, view, scratch, policy, true, pool, pre.cache, x.on_uplink, ps, ds, rs, q, r, t
                    )
                    # fmt: on
                pair = -1
                for attempt in range(2):
                    # fmt: off
                    pair = decide(
                        keys, rt, rec, view, scratch, policy, seen, pool, pre.cache.hits, pre.ids, dec.gone,
                        x.own_flows, ps, ds, rs, q, counters, r, -1, t,
                    )
                    # fmt: on
                    if pair < 0 or len(rt.closed) == 0:
                        break
                    asked = prefill_nodes + pair % decode_nodes if on_d else -1
                    if not refuses(rt.closed, rt.refusing, pair // decode_nodes, asked, t):
                        break
                    if attempt == 1:
                        pair = -2
                if len(rt.closed) > 0:
                    rt.refusing[:] = 0
                if pair == -2:
                    q[r, Q_STATUS] = FAILED
                elif pair < 0:
                    q[r, Q_STATUS] = REJECTED
                else:
                    p = pair // decode_nodes
                    d = pair % decode_nodes
                    rt.predicted[r, 0] = scratch.predicted_ttft_s[p, d]
                    rt.predicted[r, 1] = scratch.predicted_tpot_s[p, d]
                    place(rt, pre.cache.hits, pre.queues, pre.ids, ps, rs, q, pool.block_tokens, r, p, d, on_d, t)
            await_cancel(course.patience, course.cancels, q, counters, r)
            if r == first:
                first += 1
            else:
                take_follower(course, counters)
            if sessions and q[r, Q_STATUS] >= 0:
                follow(course, q, counters, r, t)
        elif kind == 7:
            fault_event(fx, pre, dec, x, ps, ds, q, counters, t)
        elif kind == 6:
            cancel_next(course.cancels, pre, dec, x, ps, ds, q, counters, t)
        elif kind == 4:
            coming = q[r, Q_ARRIVAL] if r < requests else NEVER
            if counters[TO_COME] > 0:
                coming = min(coming, t + course.least_think)
            tick(rt, pool, ps, ds, rs, at, coming, t)
        elif kind == 5:
            write_poll(rec, dec.moments, ps, ds, poll)
            poll += 1
        if sessions:
            follow_gone(course, dec.gone, q, counters, t)
