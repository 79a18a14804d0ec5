from __future__ import annotations

import json
from typing import Any

from tests.contracts.sample import SECRET, Sample


def request(i: int, **changes: Any) -> dict[str, Any]:
    return {
        "t": 6.0 * i,
        "type": "s",
        "model": "m",
        "in": 130 + 64 * i,
        "out": 9,
        "hash_ids": list(range(1, 3 + i)),
        "input_types": ["text"],
        "output_types": ["tool_use"],
        "stop": "tool_use",
        "api_time": 2.5,
        "ttft": 0.75,
        "think_time": 3.0,
        **changes,
    }


def conversation(*requests: dict[str, Any], **changes: Any) -> bytes:
    whole = {
        "id": "trace_7",
        "models": ["m"],
        "block_size": 64,
        "hash_id_scope": "local",
        "tool_tokens": 10,
        "system_tokens": 20,
        "requests": list(requests),
        "totals": {},
        **changes,
    }
    return json.dumps(whole).encode() + b"\n"


SAMPLE = Sample(
    name="kv-cache-tester",
    make=lambda n: conversation(*(request(i) for i in range(n))),
    secret=conversation(request(0, content=SECRET.decode()), request(1), user=SECRET.decode()),
    by_line=False,
)
