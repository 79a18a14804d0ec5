"""Logged turns as closed loops: the next one waits for the answer, as its user did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from features.errors import TwinError
from policies.twin.workload import Int32, Int64, Workload


def closed_loop(
    workload: Workload,
    finished_ns: Int64,
    *,
    parent_request_id: Sequence[str | None] | None = None,
    session_id: Sequence[str | None] | None = None,
) -> Workload:
    """The workload with `parent` and `think_ns` from its log; all arguments have one value a request.

    A turn follows the request that `parent_request_id` names, without one the turn before in its session. It thinks as
    long as the log says: from the answer's end, `finished_ns` on the clock of `arrival_ns` (-1 = unknown), to its
    arrival; at least 1 ns, also where it did not wait. It arrives as logged (open loop) where that end is unknown or
    the parent is no earlier row. TwinError if a column has another length, or parents are named and requests lack ids.
    """
    n = workload.requests
    for name, column in (("finished_ns", finished_ns), ("parents", parent_request_id), ("sessions", session_id)):
        if column is not None and len(column) != n:
            raise TwinError(f"`{name}` must have one value a request", value=(len(column), n))
    parent = _parents(workload, parent_request_id, session_id)
    rows = np.arange(n)
    known = (parent >= 0) & (parent < rows)
    known[known] = finished_ns[parent[known]] >= 0
    think_ns = np.full(n, -1, np.int64)
    think_ns[known] = np.maximum(workload.arrival_ns[known] - finished_ns[parent[known]], 1)
    return replace(workload, parent=np.where(known, parent, -1).astype(np.int32), think_ns=think_ns)


def _parents(
    workload: Workload, parent_request_id: Sequence[str | None] | None, session_id: Sequence[str | None] | None
) -> Int32:
    parent = np.full(workload.requests, -1, np.int32)
    if session_id is not None:
        last: dict[str, int] = {}
        for row, session in enumerate(session_id):
            if session is not None:
                parent[row] = last.get(session, -1)
                last[session] = row
    if parent_request_id is not None:
        if len(workload.request_ids) != workload.requests:
            raise TwinError("parents are named by id, so requests must have ids", value=len(workload.request_ids))
        row_of = {name: row for row, name in enumerate(workload.request_ids)}
        for row, named in enumerate(parent_request_id):
            if named is not None:
                parent[row] = row_of.get(named, -1)
    return parent
