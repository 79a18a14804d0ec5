"""Workload to requests, requests to a replay: the ways into the plain reference and out of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.lengths import arrival_of
from policies.policy import Policy
from policies.twin.outcomes import Counters, Replay
from policies.twin.reference.request import Request
from policies.twin.workload import Workload

Int32 = npt.NDArray[np.int32]


def requests_of(
    workload: Workload, policy: Policy, estimated_output: Int32 | None, expected_output: Int32 | None
) -> list[Request]:
    """The workload's rows as requests. Estimates that are given are fixed, of shape (requests,)."""
    result = []
    names = [c.name for c in policy.classes]
    learned = None if workload.arrivals is None else workload.arrivals.learned
    for i in range(workload.requests):
        first, last = int(workload.block_offset[i]), int(workload.block_offset[i + 1])
        pair = (int(workload.forced_prefill[i]), int(workload.forced_decode[i]))
        cancel_ns = -1 if workload.cancel_ns is None else int(workload.cancel_ns[i])
        result.append(
            Request(
                index=i,
                arrival_ns=int(workload.arrival_ns[i]),
                prompt_tokens=int(workload.prompt_tokens[i]),
                output_tokens=max(1, int(workload.output_tokens[i])),
                hashes=[int(block) for block in workload.block_ids[first:last]],
                class_index=int(workload.class_index[i]),
                priority=0 if workload.priority is None else int(workload.priority[i]),
                patience_ns=None if cancel_ns < 0 else cancel_ns - int(workload.arrival_ns[i]),
                parent=-1 if workload.parent is None else int(workload.parent[i]),
                think_ns=0 if workload.think_ns is None else int(workload.think_ns[i]),
                arrival=None if estimated_output is not None else arrival_of(names, workload, i),
                learned=learned is None or bool(learned[i]),
                forced=pair if min(pair) >= 0 else None,
                estimated_output=-1 if estimated_output is None else int(estimated_output[i]),
                expected_output=-1 if expected_output is None else int(expected_output[i]),
            )
        )
    return result


def as_replay(requests: list[Request], counters: Counters, itl_counts: npt.NDArray[np.int64]) -> Replay:
    """Requests as arrays, in workload order."""

    def column(name: str, dtype: type[np.generic]) -> npt.NDArray[np.generic]:
        return np.array([getattr(r, name) for r in requests], dtype=dtype)

    int32 = (
        "status",
        "prefill_node",
        "decode_node",
        "cached_tokens",
        "sent_tokens",
        "preemptions",
        "estimated_output",
        "expected_output",
    )
    int64 = (
        "prefill_started_ns",
        "prefill_finished_ns",
        "transfer_started_ns",
        "transfer_drained_ns",
        "transfer_finished_ns",
        "activated_ns",
        "released_ns",
        "arrived_ns",
        "first_token_ns",
        "finished_ns",
    )
    float64 = ("predicted_ttft_s", "predicted_tpot_s")
    columns = {name: column(name, np.int32) for name in int32}
    columns |= {name: column(name, np.int64) for name in int64}
    columns |= {name: column(name, np.float64) for name in float64}
    return Replay(**columns, counters=counters, itl_counts=itl_counts)  # type: ignore[arg-type]
