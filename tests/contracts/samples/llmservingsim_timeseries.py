from __future__ import annotations

from tests.contracts.sample import Sample

HEADER = b"t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct\n"


def second(i: int, *, running: object = 5) -> bytes:
    return f"{i + 1}.0,{3_392 + i * 7_919 % 997}.0,2.0,{running},{i % 3},13.22\n".encode()


SAMPLE = Sample(
    name="llmservingsim-timeseries",
    make=lambda n: HEADER + b"".join(second(i) for i in range(n)),
    header=HEADER,
    broken=second(99_999, running=-5),
    wrong_type=(second(99_999, running="many"), "running|type"),
)
