from __future__ import annotations

from typing import Any

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import lines


def sent(i: int, **changes: Any) -> dict[str, Any]:
    return {
        "input_toks": 2_358 + i,
        "output_toks": 531,
        "arrival_time_ns": 46_926_808 + i * 1_000_000_000,
        "input_tok_ids": [5_971, 2_927, i],
        "output_tok_ids": [220],
        **changes,
    }


SAMPLE = Sample(
    name="llmservingsim-workload",
    make=lambda n: lines(*(sent(i) for i in range(n))),
    broken=lines(sent(99, input_toks=-5)),
    wrong_type=(lines(sent(9, input_toks="many")), "input_toks|type"),
    secret=lines(sent(7, input_tok_ids=[SECRET.decode()]) | {"prompt": SECRET.decode()}),
)
