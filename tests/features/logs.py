"""Small logs of every format, for tests of readers and ingest."""

from __future__ import annotations

import json
from typing import Any

NAME_KEY = b"a key of tests only"
START_US = 1_767_571_200_000_000
"""2026-01-05T00:00:00Z."""


def request(i: int, **changes: Any) -> dict[str, Any]:
    at = START_US + i * 1_000_000
    return {
        "request_id": f"r{i}",
        "arrived_at_us": at,
        "prompt_tokens": 1_000 + i,
        "output_tokens": 10,
        "finish_reason": "stop",
        "block_tokens": 256,
        "block_hashes": [2**64 - 1 - i, 2**63 + i, 5],
        "prefill_cached_tokens": 256,
        "decided_at_us": at + 10,
        "prefill_node": "p0/dp0",
        "decode_node": "d0/dp0",
        "prefill_started_at_us": at + 100,
        "prefill_finished_at_us": at + 200,
        "transfer_started_at_us": at + 200,
        "transfer_finished_at_us": at + 300,
        "decode_admitted_at_us": at + 310,
        "first_token_at_us": at + 400,
        "finished_at_us": at + 900,
        **changes,
    }


def decision(i: int, *, pairs: int = 2, **changes: Any) -> dict[str, Any]:
    candidates = [
        {
            "prefill_node": "p0/dp0",
            "decode_node": f"d{d}/dp0",
            "terms": {"PrefillWait": 0.5, "SloRisk": 0.1},
            "score": float(d),
            "drawn": True,
            "chosen": d == 0,
            "propensity": 1.0 / pairs,
        }
        for d in range(pairs)
    ]
    at = START_US + i * 1_000_000
    return {
        "request_id": f"r{i}",
        "decided_at_us": at,
        "router_id": "router-0",
        "telemetry_age_us": 250_000,
        "candidates": candidates,
        **changes,
    }


def poll(i: int, *, ranks: int = 1, mode: str | None = "decode", **changes: Any) -> dict[str, Any]:
    loads = [
        {
            "timestamp": 1.5,
            "dp_rank": rank,
            "num_running_reqs": 3,
            "num_waiting_reqs": 4,
            "num_waiting_uncached_tokens": 100,
            "num_used_tokens": 900,
            "num_total_tokens": 1_000,
            "num_active_tokens": 800,
            "max_total_num_tokens": 10_000,
            "token_usage": 0.09,
            "utilization": -1,
            "total_prefill_uncached_tokens": 5,
            "total_prefill_busy_us": 50,
            "decode_moments": [10.0 * (i + 1), 30, 1000, 90, 3000, 30],
            "disaggregation": {
                "mode": mode,
                "prefill_inflight_queue_reqs": 1,
                "decode_transfer_queue_reqs": 2,
                "kv_transfer_speed_gb_s": 1.0,
            },
        }
        for rank in range(ranks)
    ]
    return {
        "polled_at_us": START_US + i * 1_000_000,
        "target": "http://d0:30000",
        "status": 200,
        "body": {"timestamp": "2026-01-05T00:00:00Z", "version": "0.5.23", "loads": loads},
        **changes,
    }


def dynamo(i: int, *, wrapped: bool = True, **changes: Any) -> dict[str, Any]:
    event = {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": START_US // 1_000 + i * 1_000,
        "agent_context": {"session_id": "s"},
        "request": {
            "request_id": f"q{i}",
            "model": "m",
            "input_tokens": 600,
            "output_tokens": 7,
            "cached_tokens": 256,
            "request_received_ms": START_US // 1_000 + i * 1_000,
            "prefill_wait_time_ms": 2.5,
            "prefill_time_ms": 10.25,
            "ttft_ms": 13.0,
            "total_time_ms": 99.5,
            "worker": {
                "prefill_worker_id": 2**64 - 2,
                "prefill_dp_rank": 0,
                "decode_worker_id": 7,
                "decode_dp_rank": 1,
            },
            "replay": {"trace_block_size": 256, "input_sequence_hashes": [2**64 - 1, 2**63, 3]},
        },
        **changes,
    }
    return {"timestamp": i, "event": event} if wrapped else event


def mooncake(i: int, **changes: Any) -> dict[str, Any]:
    return {
        "timestamp": i * 3_000,
        "input_length": 1_100,
        "output_length": 9,
        "hash_ids": [0, 2 * i + 1, 2 * i + 2],
        **changes,
    }


LINE = {
    "routecal-requests": request,
    "routecal-decisions": decision,
    "sglang-loads": poll,
    "dynamo-request-trace": dynamo,
    "mooncake": mooncake,
}
BROKEN: dict[str, dict[str, Any]] = {
    "routecal-requests": request(99, prompt_tokens=-5),
    "routecal-decisions": decision(99, telemetry_age_us=-5),
    "sglang-loads": poll(99, polled_at_us=5),
    "dynamo-request-trace": dynamo(99, request={"request_id": "x", "input_tokens": -1, "request_received_ms": 5}),
    "mooncake": mooncake(99, input_length=-5),
}
"""A line of each format that parses and breaks a rule."""


def lines(*objects: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in objects)
