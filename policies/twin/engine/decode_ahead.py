"""A D whose boundaries touch nothing else is run when somebody looks at it, not at their times. Kernels."""

from __future__ import annotations

from policies.compiled import inlined
from policies.twin.engine.columns import D_END
from policies.twin.engine.decode import decode_boundary
from policies.twin.engine.decode_steps import reaches_out, run_steps, waits
from policies.twin.engine.parts import Course, Decode, Int64, Links
from policies.twin.engine.sessions import follow_gone


@inlined
def catch_up(
    dec: Decode,
    x: Links,
    course: Course,
    ps: Int64,
    ds: Int64,
    q: Int64,
    counters: Int64,
    d: int,
    limit: int,
    due: bool,
) -> None:
    """D's next boundary if that is `due`, and those before `limit` that touch nothing but D."""
    while due or (ds[d, D_END] < limit and not reaches_out(ds, d)):
        if not due and not waits(ds, d):
            run_steps(dec, ds, counters, d, limit)
            if ds[d, D_END] >= limit:
                break
        now = ds[d, D_END]
        decode_boundary(dec, x, ps, ds, q, counters, d, now)
        due = False
        if len(course.child) > 0:
            follow_gone(course, dec.gone, q, counters, now)
