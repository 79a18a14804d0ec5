"""The engine's rows of requests: filled before their arrivals, copied out after their ends.

A long workload is replayed in chunks of arrivals, so that rows take memory only while their requests live. A row is
given back one chunk after its request was over, since routers and the length law still look at what has just ended.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from features.errors import TwinError
from policies.kernel_types import Float64, Int64
from policies.twin.cluster import Cluster
from policies.twin.engine import columns
from policies.twin.engine.arena import Arena
from policies.twin.engine.lower import kinds, ranks
from policies.twin.outcomes import Counters, Replay
from policies.twin.segments import segments_of
from policies.twin.workload import Int32, Workload

CHUNK = 1 << 15
"""Requests that arrive between two looks at what is over."""

_ROW_BYTES = 8 * columns.REQUEST_COLUMNS
_COPIED = {
    "status": columns.Q_STATUS,
    "prefill_node": columns.Q_PREFILL_NODE,
    "decode_node": columns.Q_DECODE_NODE,
    "prefill_started_ns": columns.Q_PREFILL_STARTED,
    "prefill_finished_ns": columns.Q_PREFILL_FINISHED,
    "transfer_started_ns": columns.Q_TRANSFER_STARTED,
    "transfer_drained_ns": columns.Q_TRANSFER_DRAINED,
    "transfer_finished_ns": columns.Q_TRANSFER_FINISHED,
    "activated_ns": columns.Q_ACTIVATED,
    "released_ns": columns.Q_RELEASED,
    "first_token_ns": columns.Q_FIRST_TOKEN,
    "finished_ns": columns.Q_FINISHED,
    "cached_tokens": columns.Q_CACHED_TOKENS,
    "sent_tokens": columns.Q_SENT,
    "preemptions": columns.Q_PREEMPTIONS,
    "estimated_output": columns.Q_ESTIMATED,
    "expected_output": columns.Q_EXPECTED,
    "arrived_ns": columns.Q_ARRIVAL,
}
"""Field of a `Replay` -> its column; times are int64, all else int32."""


class RequestRows:
    """Rows `q` of all requests of a workload, of which `fill` readies the next ones and `settle` keeps the results."""

    def __init__(
        self,
        memory: Arena,
        workload: Workload,
        cluster: Cluster,
        fixed: tuple[Int32, Int32] | None,
        recorded: Int64,
    ) -> None:
        """`fixed`: estimated and expected output tokens, None = by a law."""
        n = workload.requests
        self._memory, self._workload, self._cluster = memory, workload, cluster
        self._fixed, self._recorded = fixed, recorded
        self._ranks = ranks(workload, cluster)
        # A turn that follows another may arrive after any later row.
        self._chunk = n if workload.parent is not None else min(CHUNK, n)
        self._ready = self._over = self._kept = self._seen = self._segments = 0
        self.q = memory.empty("q", (n, columns.REQUEST_COLUMNS), np.int64)
        self._results: dict[str, Any] = {
            name: np.empty(n, np.int64 if name.endswith("_ns") else np.int32) for name in _COPIED
        }

    def fill(self) -> int:
        """Ready the rows of the next arrivals; how many rows are ready now."""
        first, last = self._ready, min(self._ready + self._chunk, len(self.q))
        self._ready = last
        w, rows, at = self._workload, self.q[first:last], slice(first, last)
        rows[...] = _EMPTY
        rows[:, columns.Q_ARRIVAL] = w.arrival_ns[at]
        rows[:, columns.Q_PROMPT] = w.prompt_tokens[at]
        rows[:, columns.Q_OUTPUT] = np.maximum(w.output_tokens[at], 1)
        rows[:, columns.Q_SLO_CLASS] = w.class_index[at]
        rows[:, columns.Q_OFFSET] = w.block_offset[first:last]
        rows[:, columns.Q_OFFSET_END] = w.block_offset[first + 1 : last + 1]
        rows[:, columns.Q_FORCED_P] = w.forced_prefill[at]
        rows[:, columns.Q_FORCED_D] = w.forced_decode[at]
        if len(self._ranks) > 1 and w.priority is not None:
            rows[:, columns.Q_PRIORITY] = np.searchsorted(self._ranks, w.priority[at])
        rows[:, columns.Q_KIND] = kinds(w, self._cluster, first, last)
        if self._fixed is not None:
            rows[:, columns.Q_ESTIMATED], rows[:, columns.Q_EXPECTED] = (tokens[at] for tokens in self._fixed)
        mine = np.flatnonzero((self._recorded >= first) & (self._recorded < last))
        rows[self._recorded[mine] - first, columns.Q_RECORD] = mine
        return last

    @property
    def kept(self) -> int:
        """Rows before this one are over."""
        return self._kept

    def settle(self) -> bool:
        """Keep the results of what is over; whether every row was ready already."""
        done = self._ready == len(self.q)
        self._keep(len(self.q) if done else self._over)
        if not done:
            rows = self.q[self._over : self._ready]
            held = (rows[:, columns.Q_PREFILL_STARTED] >= 0) & (rows[:, columns.Q_RELEASED] < 0)
            running = np.flatnonzero((rows[:, columns.Q_STATUS] < 0) | held)
            self._over = self._over + int(running[0]) if len(running) else self._ready
            self._thin_caches()
        return done

    def _thin_caches(self) -> None:
        """Prefix caches forget what they no longer hold."""
        offset, refs, start = segments_of(self._workload)
        new = refs[offset[self._seen] : offset[self._ready]]
        self._seen = self._ready
        self._segments = max(self._segments, int(new.max(initial=-1)) + 1)
        prefill = len(self._cluster.prefill)
        self._memory.give_back_zeros("segments", self._segments * prefill * 16)
        self._memory.give_back_zeros("seen", int(start[self._segments]) * ((prefill + 63) // 64) * 8)

    def _keep(self, last: int) -> None:
        first, self._kept = self._kept, last
        for at in range(first, last, CHUNK):
            to = min(at + CHUNK, last)
            kept = self.q[at:to].take(list(_COPIED.values()), axis=1)  # looks at every row once
            for k, name in enumerate(_COPIED):
                self._results[name][at:to] = kept[:, k]
        if last < len(self.q):
            self._memory.give_back("q", first * _ROW_BYTES, last * _ROW_BYTES)

    def replay(self, predicted: Float64, counters: Int64, itl: Int64) -> Replay:
        """The results, once all are kept. Raises TwinError if a request has not ended, which is a fault of the twin."""
        endless = np.flatnonzero(self._results["status"] < 0)
        if len(endless):
            raise TwinError("every accepted request must end", value=int(endless[0]), place="request")
        return Replay(
            **self._results,
            predicted_ttft_s=predicted[:, 0],
            predicted_tpot_s=predicted[:, 1],
            itl_counts=itl,
            counters=Counters(
                prefill_steps=int(counters[columns.PREFILL_STEPS]),
                decode_steps=int(counters[columns.DECODE_STEPS]),
                preemptions=int(counters[columns.PREEMPTIONS]),
                evictions=int(counters[columns.EVICTIONS]),
                hit_blocks=int(counters[columns.HITS]),
                blocked=int(counters[columns.BLOCKED]),
                shared=int(counters[columns.SHARED]),
                stale=int(counters[columns.STALE]),
                expired=int(counters[columns.EXPIRED]),
                timed_out=int(counters[columns.TIMED_OUT]),
                swapped_tokens=int(counters[columns.SWAPPED]),
            ),
        )


def _empty_row() -> Int64:
    row = np.full(columns.REQUEST_COLUMNS, -1, np.int64)
    row[columns.Q_BOOKING_OVER : columns.Q_PQ_NEXT] = 0
    row[columns.Q_MADE0 : columns.Q_STATUS] = 0
    row[[columns.Q_CACHED_TOKENS, columns.Q_PREEMPTIONS, columns.Q_PRIORITY, columns.Q_LISTED]] = 0
    row[columns.Q_WAITS : columns.Q_SENT + 1] = 0
    return row


_EMPTY = _empty_row()
