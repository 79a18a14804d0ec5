from __future__ import annotations

from typing import Any

from tests.contracts.sample import SECRET, Sample
from tests.features.logs import START_US
from tests.features.spans import Span, attributes, export_line, span

P, D = {"service.name": "vllm", "k8s.pod.name": "p0"}, {"service.name": "vllm", "k8s.pod.name": "d0"}


def llm_request(i: int, start_us: int | None = None, **more: Any) -> Span:
    at = START_US + i * 1_000_000 if start_us is None else start_us
    given = {
        "gen_ai.request.id": f"chatcmpl-r{i}",
        "gen_ai.usage.prompt_tokens": 600 + i,
        "gen_ai.usage.completion_tokens": 8,
        "gen_ai.request.max_tokens": 64,
        "gen_ai.latency.time_to_first_token": 0.25,
        "gen_ai.latency.time_in_queue": 0.05,
        "gen_ai.latency.time_in_model_prefill": 0.2,
        "gen_ai.latency.e2e": 0.5,
        **more.pop("given", {}),
    }
    return span("llm_request", at, at + 600_000, f"{i:032x}", f"{i:016x}", given=given, **more)


def record(i: int) -> bytes:
    """A request on P (one token, so that it only prefills) and on D."""
    one = {"gen_ai.request.max_tokens": 1, "gen_ai.usage.completion_tokens": 1}
    return export_line((P, [llm_request(i, given=one) | {"spanId": f"{i:015x}a"}]), (D, [llm_request(i)]))


def secret() -> bytes:
    text = SECRET.decode()
    told = {"gen_ai.prompt": text, "gen_ai.completion": text, "enduser.id": text, "gen_ai.input.messages": [text]}
    event = {"name": text, "timeUnixNano": "1", "attributes": attributes({"gen_ai.event.content": text})}
    status = {"message": text}
    spoken = llm_request(77, given=told, events=[event], status=status, traceState=text, links=[{"traceId": text}])
    other = span(text, START_US, START_US + 1, given={"gen_ai.prompt": text})
    return export_line((D | {"user.name": text, "process.command_line": text}, [spoken, other]))


SAMPLE = Sample(
    name="otlp-spans",
    make=lambda n: b"".join(record(i) for i in range(n)),
    rows=2,
    broken=export_line((D, [llm_request(99, start_us=5_000)])),
    wrong_type=(
        export_line((D, [llm_request(98, given={"gen_ai.usage.prompt_tokens": "many"})])),
        "gen_ai.usage.prompt_tokens|type",
    ),
    secret=secret(),
)
