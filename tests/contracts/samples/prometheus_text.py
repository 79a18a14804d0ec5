from __future__ import annotations

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import START_US

NAMES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "generation_tokens_total")


def sample(i: int) -> bytes:
    """Sample i: a metric of an engine, and the next one's a millisecond later."""
    name, at_ms = NAMES[i % len(NAMES)], START_US // 1_000 + i
    return f'vllm:{name}{{engine="{i % 2}",model_name="m"}} {i % 7}.5 {at_ms}\n'.encode()


SAMPLE = Sample(
    name="prometheus-text",
    make=lambda n: b"".join(sample(i) for i in range(n)),
    broken=b'vllm:num_requests_running{engine="0"} 1.0 5\n',
    wrong_type=(b'vllm:num_requests_running{engine="0"} many\n', "exposition"),
    secret=f'# HELP vllm:x {SECRET.decode()}\nvllm:num_requests_running{{user="{SECRET.decode()}"}} 1\n'.encode(),
)
