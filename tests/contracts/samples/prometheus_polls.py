from __future__ import annotations

import json
from typing import Any

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import START_US


def scrape(i: int, **changes: Any) -> bytes:
    """Poll i: three samples of a rank."""
    label = '{engine="0",model_name="m"}'
    body = f"vllm:num_requests_running{label} 3\nvllm:num_requests_waiting{label} {i}\n"
    line = {
        "polled_at_us": START_US + i * 5_000_000,
        "target": "http://d0:8000",
        "status": 200,
        "body": f"{body}vllm:generation_tokens_total{label} {i * 100}.0\n",
        **changes,
    }
    return json.dumps(line).encode() + b"\n"


SAMPLE = Sample(
    name="prometheus-polls",
    make=lambda n: b"".join(scrape(i) for i in range(n)),
    rows=3,
    broken=scrape(99, polled_at_us=5),
    wrong_type=(scrape(9, target={"text": 5}), "target|type"),
    secret=scrape(9, body=f'# {SECRET.decode()}\nvllm:num_requests_running{{user="{SECRET.decode()}"}} 1\n'),
)
