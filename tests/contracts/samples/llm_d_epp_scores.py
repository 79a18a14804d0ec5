from __future__ import annotations

from typing import Any

from tests.contracts.sample import SECRET, Sample
from tests.features.epp import log, message, score


def record(i: int, **more: Any) -> dict[str, Any]:
    endpoint = {"name": f"decode-{i % 3}-rank-{i % 2}", "namespace": "ns"}
    return score(f"r{i}", endpoint, i % 5 / 4, i) | more


def secret() -> bytes:
    text = SECRET.decode()
    return log(
        message("Incoming body chunk", "r7", 7, body=text, user=text),
        record(7, prompt=text, headers={"authorization": text}),
        record(8, endpoint={"name": "d0", "labels": {"owner": text}}, prompt=[text]),
    )


SAMPLE = Sample(
    name="llm-d-epp-scores",
    make=lambda n: log(*(record(i) for i in range(n))),
    broken=log(record(99, ts="1999-01-05T00:00:00Z")),
    wrong_type=(log(record(98, score="high")), "score|type"),
    secret=secret(),
)
