from __future__ import annotations

from typing import Any

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import START_US, lines


def run(i: int, **changes: Any) -> dict[str, Any]:
    engine = 500.0 + i
    return {
        "request_id": f"bench-{i}",
        "input_toks": 2_358,
        "output_toks": 531,
        "arrival_time": START_US / 1_000_000 + i,
        "queued_ts": engine,
        "scheduled_ts": engine + 0.125,
        "first_token_ts": engine + 0.5,
        "last_token_ts": engine + 8.25,
        **changes,
    }


SAMPLE = Sample(
    name="llmservingsim-bench",
    make=lambda n: lines(*(run(i) for i in range(n))),
    broken=lines(run(99, input_toks=-5)),
    wrong_type=(lines(run(9, input_toks="many")), "input_toks|type"),
    secret=lines(run(7) | {"prompt": SECRET.decode()}),
)
