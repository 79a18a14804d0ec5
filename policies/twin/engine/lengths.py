"""What routers expect of answers while they run: `models.portable.length_online`, operation by operation. Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.twin.engine.columns import ENDED, Q_ESTIMATED, Q_EXPECTED, Q_OUTPUT, Q_SLO_CLASS, R_OBSERVED
from policies.twin.engine.parts import Int32, Int64, Lengths


@kernel
def estimate(lengths: Lengths, ended: Int32, rs: Int64, q: Int64, counters: Int64, router: int, r: int) -> None:
    """Request r arrives at its router, which first learns of its answers that have ended."""
    for k in range(rs[router, R_OBSERVED], counters[ENDED]):
        if ended[k] % len(lengths.offset) == router and lengths.learned[ended[k]] == 1:
            _observe(lengths, q, router, ended[k])
    rs[router, R_OBSERVED] = counters[ENDED]
    base, offset = lengths.base[r], lengths.offset[router, lengths.group[r]]
    booked = lengths.booked[q[r, Q_SLO_CLASS]]
    least = 0.0
    for k in range(len(base)):
        raised = base[k] * offset[k]
        least = raised if raised > least else least
        tokens = np.int64(np.ceil(least if least < lengths.cap[r] else lengths.cap[r]))
        tokens = tokens if tokens > 1 else np.int64(1)
        if k == booked:
            q[r, Q_ESTIMATED] = tokens
        if k == lengths.median:
            q[r, Q_EXPECTED] = tokens


@kernel
def _observe(lengths: Lengths, q: Int64, router: int, r: int) -> None:
    """Request r's answer has ended: the offsets of its group move."""
    group = lengths.group[r]
    base, offset, pace = lengths.base[r], lengths.offset[router, group], lengths.pace[group]
    output = np.float64(q[r, Q_OUTPUT])
    least = 0.0
    for k in range(len(base)):
        raised = base[k] * offset[k]
        least = raised if raised > least else least
        expected = least if least < lengths.cap[r] else lengths.cap[r]
        missed = 1.0 if output > expected else 0.0
        offset[k] *= 1.0 + pace[k] * (missed - (1.0 - lengths.level[k]))
