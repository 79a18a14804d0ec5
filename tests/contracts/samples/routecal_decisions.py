from __future__ import annotations

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import decision, lines

SAMPLE = Sample(
    name="routecal-decisions",
    make=lambda n: lines(*(decision(i) for i in range(n))),
    rows=2,
    broken=lines(decision(99, telemetry_age_us=-5)),
    wrong_type=(lines(decision(9, request_id={"text": 5})), "request_id|type"),
    secret=lines(decision(7) | {"prompt": SECRET.decode(), "messages": [{"content": SECRET.decode()}]}),
)
