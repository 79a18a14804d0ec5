from __future__ import annotations

from tests.contracts.sample import SECRET, Sample
from tests.features.epp import access, log


def secret() -> bytes:
    text = SECRET.decode()
    return log(
        access("r7", 7, user_agent=text, request_body=text, x_user=text) | {"dynamic_metadata": {"filter": text}}
    )


SAMPLE = Sample(
    name="envoy-endpoint-scores",
    make=lambda n: log(*(access(f"r{i}", i) for i in range(n))),
    rows=2,
    broken=log(access("r99") | {"start_time": "1999-01-05T00:00:00Z"}),
    wrong_type=(log(access("r98", x_request_id={"text": 5})), "x-request-id|type"),
    secret=secret(),
)
