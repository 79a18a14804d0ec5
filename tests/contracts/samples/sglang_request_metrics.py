from __future__ import annotations

import json
from typing import Any

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import START_US, lines

START_S = START_US // 1_000_000


def answer(i: int, *, parameters: Any = None, **changes: Any) -> dict[str, Any]:
    """One line of the exporter; `parameters` are added to those of the request."""
    asked = {
        "rid": f"r{i}",
        "sampling_params": {"max_new_tokens": 64, "temperature": 0.5},
        "stream": True,
        "priority": 2,
        "session_params": {"id": f"s{i // 3}", "rid": None},
        **(parameters or {}),
    }
    received = START_S + i
    return {
        "request_parameters": json.dumps(asked),
        "id": f"r{i}",
        "finish_reason": {"type": "stop", "matched": 2},
        "prompt_tokens": 1_000 + i,
        "completion_tokens": 10,
        "cached_tokens": 256,
        "weight_version": "default",
        "num_retractions": 0,
        "dp_rank": 0,
        "e2e_latency": 0.75,
        "queue_time": 0.0625,
        "forward_entry_time": received + 0.125,
        "prefill_finished_time": received + 0.25,
        "request_received_ts": received,
        "response_sent_to_client_ts": received + 0.3125,
        "request_finished_ts": received + 0.75,
        "first_token_latency": 0.28125,
        **changes,
    }


SAMPLE = Sample(
    name="sglang-request-metrics",
    make=lambda n: lines(*(answer(i) for i in range(n))),
    broken=lines(answer(99, prompt_tokens=-5)),
    wrong_type=(lines(answer(9, parameters={"sampling_params": "many"})), "request_parameters.sampling_params|type"),
    secret=lines(
        answer(
            7, parameters={"text": SECRET.decode(), "user": SECRET.decode(), "session_params": {"x": SECRET.decode()}}
        )
        | {"text": SECRET.decode()}
    ),
)
