from __future__ import annotations

import json
from typing import Any

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import START_US

VALUES = 4


def answer(i: int, *, at_s: float | None = None, **labels: str) -> dict[str, Any]:
    """Answer i: a series of two instances each, VALUES times from minute i on."""
    start_s = START_US // 1_000_000 + i * 60 if at_s is None else at_s
    values = [[start_s + 2 * k, str(i + k / 2)] for k in range(VALUES)]
    result = [
        {"metric": {"__name__": "vllm:num_requests_running", "instance": f"d{d}:8000", **labels}, "values": values}
        for d in range(2)
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


SAMPLE = Sample(
    name="prometheus-range",
    make=lambda n: b"".join(line(answer(i)) for i in range(n)),
    rows=2 * VALUES,
    broken=line(answer(0, at_s=5)),
    wrong_type=(line({"status": "success", "data": 5}), "data|type"),
    secret=line(answer(9, user=SECRET.decode())),
)
