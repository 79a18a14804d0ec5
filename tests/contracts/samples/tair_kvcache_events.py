from __future__ import annotations

from typing import Any

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import START_US, lines


def lookup(i: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"event{i}",
        "source": "90",
        "component": "cache_manager",
        "type": "GetCacheLocation",
        "trigger_time_us": START_US + i * 1_000,
        "keys": [16 * i + 1, -(2**63), -1],
        "tokens": [],
        **changes,
    }


SAMPLE = Sample(
    name="tair-kvcache-events",
    make=lambda n: lines(*(lookup(i) for i in range(n))),
    broken=lines(lookup(99, trigger_time_us=5)),
    wrong_type=(lines(lookup(9, keys=["one"])), "keys[]|type"),
    secret=lines(lookup(7, tokens=[SECRET.decode()], prompt=SECRET.decode())),
)
