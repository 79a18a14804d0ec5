from __future__ import annotations

from typing import Any

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import START_US, lines


def forward_pass(i: int, *, prefills: int = 0, decodes: int = 3, **changes: Any) -> dict[str, Any]:
    """Pass i of a rank, in the envelope of Dynamo's trace."""
    fpm = {
        "version": 1,
        "worker_id": "4192",
        "dp_rank": 1,
        "counter_id": i,
        "wall_time": 0.025,
        "scheduled_requests": {
            "num_prefill_requests": prefills,
            "sum_prefill_tokens": 128 * prefills,
            "var_prefill_length": 0.0,
            "sum_prefill_kv_tokens": 32 * prefills,
            "num_decode_requests": decodes,
            "sum_decode_kv_tokens": 1_000 * decodes,
            "var_decode_kv_tokens": 0.0,
        },
        "queued_requests": {"num_prefill_requests": 1, "sum_prefill_tokens": 128},
        **changes,
    }
    event = {
        "schema": "dynamo.fpm.trace.v1",
        "source": {"namespace": "default", "component": "backend", "producer_id": "4192"},
        "capture_mode": "full",
        "observed_at_unix_ms": START_US // 1_000 + 30 * i,
        "fpm": fpm,
    }
    return {"timestamp": 30 * i, "event": event}


def passes(n: int) -> bytes:
    """Decode passes, every third one a prefill."""
    return lines(*(forward_pass(i, prefills=1 - i % 3, decodes=0) if i % 3 == 0 else forward_pass(i) for i in range(n)))


SAMPLE = Sample(
    name="dynamo-fpm",
    make=passes,
    broken=lines(forward_pass(99, wall_time=-1.0)),
    wrong_type=(lines(forward_pass(9, wall_time="long")), "event.fpm.wall_time|type"),
    secret=lines({**forward_pass(9), "prompt": SECRET.decode()}),
)
