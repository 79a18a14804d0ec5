"""What routers expect of answers, as the engine reads it: fixed tokens, or the length law with offsets by router."""

from __future__ import annotations

import numpy as np

from features.errors import TwinError
from policies.lengths import MEDIAN, LengthRows
from policies.policy import Policy
from policies.twin.engine import parts
from policies.twin.workload import Int32


def fixed_estimates(n: int, estimated: Int32 | None, expected: Int32 | None) -> tuple[Int32, Int32] | None:
    """Tokens of n requests that stay as they are; None = there are none, and the law estimates.

    TwinError for one kind without the other, and for arrays that do not fit the requests.
    """
    if estimated is None and expected is None:
        return None
    if estimated is None or expected is None or len(estimated) != n or len(expected) != n:
        sizes = [None if tokens is None else len(tokens) for tokens in (estimated, expected)]
        raise TwinError("one estimate of both kinds a request must be given", value=(n, *sizes))
    return estimated, expected


def length_part(rows: LengthRows | None, policy: Policy, routers: int) -> parts.Lengths:
    """Every router starts with the file's offsets; None = estimates are fixed.

    ModelError if the law lacks the level of a class.
    """
    if rows is None:
        none, nothing = np.zeros((0, 0)), np.zeros(0, np.int64)
        return parts.Lengths(none, nothing, np.zeros(0), nothing, np.zeros((0, 0, 0)), none, np.zeros(0), nothing, 0)
    return parts.Lengths(
        base=rows.base,
        group=rows.group,
        cap=rows.cap,
        learned=rows.learned,
        offset=np.repeat(rows.offset[None], routers, axis=0),
        pace=rows.pace,
        level=np.array(rows.law.levels, np.float64),
        booked=np.array([rows.law.place(c.quantile) for c in policy.classes], np.int64),
        median=rows.law.place(MEDIAN),
    )
