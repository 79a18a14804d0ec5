from __future__ import annotations

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import lines, mooncake

SAMPLE = Sample(
    name="mooncake",
    make=lambda n: lines(*(mooncake(i) for i in range(n))),
    rows=1,
    broken=lines(mooncake(99, input_length=-5)),
    wrong_type=(lines(mooncake(9, hash_ids={"text": 5})), "hash_ids|type"),
    secret=lines(mooncake(7) | {"prompt": SECRET.decode(), "messages": [{"content": SECRET.decode()}]}),
)
