from __future__ import annotations

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import lines, poll

SAMPLE = Sample(
    name="sglang-loads",
    make=lambda n: lines(*(poll(i) for i in range(n))),
    rows=1,
    broken=lines(poll(99, polled_at_us=5)),
    wrong_type=(lines(poll(9, target={"text": 5})), "target|type"),
    secret=lines(poll(7) | {"prompt": SECRET.decode(), "messages": [{"content": SECRET.decode()}]}),
)
