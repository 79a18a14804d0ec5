from __future__ import annotations

from typing import Any

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import lines


def turn(i: int, **changes: Any) -> dict[str, Any]:
    """Turns of session i // 2: the first has a time, the second a delay."""
    when = {"delay": 500} if i % 2 else {"timestamp": i * 1_000}
    return {
        "request_id": f"r{i}",
        "session_id": f"s{i // 2}",
        **when,
        "input_length": 100 if i % 2 else 600,
        "output_length": 9,
        "hash_ids": [10_000 + i] if i % 2 else [0, i],
        **changes,
    }


SAMPLE = Sample(
    name="mooncake-delta",
    make=lambda n: lines(*(turn(i) for i in range(n))),
    broken=lines(turn(98, input_length=-5)),
    wrong_type=(lines(turn(98, hash_ids={"text": 5})), "hash_ids|type"),
    secret=lines(turn(98) | {"prompt": SECRET.decode(), "messages": [{"content": SECRET.decode()}]}),
)
