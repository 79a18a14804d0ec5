from __future__ import annotations

from typing import Any

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import lines


def replayed(i: int, **changes: Any) -> dict[str, Any]:
    at = i * 250.0
    history = [
        {"pool": pool, "outcome": "immediate", "logical_worker_id": i % 2, "dp_rank": 0}
        for pool in ("prefill", "decode")
    ]
    return {
        "session_id": None,
        "uuid": f"u-{i}",
        "arrival_time_ms": at,
        "first_token_ms": at + 295.216452,
        "last_token_ms": at + 3799.921975,
        "input_length": 7_000 + i,
        "requested_output_length": 490,
        "output_length": 490,
        "reused_input_tokens": 512 * (i % 3),
        "prefill_worker_idx": i % 2,
        "decode_worker_idx": i % 2,
        "prefill_admit_ms": at + 10.0,
        "source_held_ms": at + 169.136918,
        "destination_reserved_ms": at + 169.136918,
        "destination_activated_ms": at + 289.100566,
        "source_released_ms": at + 300.0,
        "routing_history": history,
        "readmission_count": 0,
        "terminal_status": "completed",
        **changes,
    }


SAMPLE = Sample(
    name="dynamo-replay",
    make=lambda n: lines(*(replayed(i) for i in range(n))),
    broken=lines(replayed(99, input_length=0)),
    wrong_type=(lines(replayed(98, output_length="many")), "output_length|type"),
    secret=lines(replayed(97, session_id=SECRET.decode(), prompt=SECRET.decode())),
)
