from __future__ import annotations

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import dynamo, lines

SAMPLE = Sample(
    name="dynamo-request-trace",
    make=lambda n: lines(*(dynamo(i) for i in range(n))),
    rows=1,
    broken=lines(dynamo(99, request={"request_id": "x", "input_tokens": -1, "request_received_ms": 5})),
    wrong_type=(lines(dynamo(9) | {"event": 5}), "event|type"),
    secret=lines(dynamo(7) | {"prompt": SECRET.decode(), "messages": [{"content": SECRET.decode()}]}),
)
