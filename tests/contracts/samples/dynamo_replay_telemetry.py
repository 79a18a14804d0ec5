from __future__ import annotations

from typing import Any

from tests.contracts.sample import Sample
from tests.features.logs import lines


def worker(at: int, active: object = 44) -> dict[str, Any]:
    return {
        "worker_id": at,
        "dp_rank": 0,
        "active_blocks": active,
        "inactive_blocks": 13,
        "total_blocks": 2_048,
        "running_requests": 2,
        "waiting_requests": 1,
    }


def sampled(i: int, *, active: object = 44) -> dict[str, Any]:
    return {
        "sample_ordinal": i,
        "kind": "periodic",
        "sampled_at_ms": i * 1_000.0,
        "prefill_scheduler_metrics": [worker(0, active), worker(1)],
        "decode_scheduler_metrics": [worker(0)],
        **{f"{state}_{phase}_ids": [] for state in ("starting", "draining") for phase in ("prefill", "decode")},
        "active_prefill_ids": [0, 1],
        "active_decode_ids": [0],
    }


SAMPLE = Sample(
    name="dynamo-replay-telemetry",
    make=lambda n: lines(*(sampled(i) for i in range(n))),
    rows=3,
    broken=lines(sampled(99) | {"sampled_at_ms": -1e14}),
    wrong_type=(lines(sampled(98, active="many")), "prefill_scheduler_metrics[].active_blocks|type"),
)
