from __future__ import annotations

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import lines, request

SAMPLE = Sample(
    name="routecal-requests",
    make=lambda n: lines(*(request(i) for i in range(n))),
    rows=1,
    broken=lines(request(99, prompt_tokens=-5)),
    wrong_type=(lines(request(9, request_id={"text": 5})), "request_id|type"),
    secret=lines(request(7) | {"prompt": SECRET.decode(), "messages": [{"content": SECRET.decode()}]}),
)
