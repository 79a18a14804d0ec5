"""Messages of llm-d's endpoint picker and lines of Envoy's access log, for tests."""

from __future__ import annotations

import json
from typing import Any

_HEAD = {
    "level": "Level(-4)",
    "caller": "scheduling/scheduler_profile.go:166",
    "objectiveKey": "",
    "incomingModelName": "m",
    "targetModelName": "m",
    "priority": 0,
}


def clock(second: float) -> str:
    """A time on the first day, with milliseconds where they matter."""
    whole, part = divmod(round(second * 1_000), 1_000)
    fraction = f".{part:03}" if part else ""
    return f"2026-01-05T{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{fraction}Z"


def message(msg: str, request_id: str | None = "r0", second: float = 0, **more: Any) -> dict[str, Any]:
    named = {} if request_id is None else {"x-request-id": request_id}
    return {**_HEAD, "ts": clock(second), "msg": msg, **named, **more}


def score(request_id: str, endpoint: Any, value: float | None, second: float = 0, **more: Any) -> dict[str, Any]:
    told = {"plugin": "queue-scorer/queue-scorer", "endpoint": endpoint, "score": value, **more}
    return message("Calculated score", request_id, second, **told)


def profile(request_id: str, name: str, second: float = 0) -> dict[str, Any]:
    return message("Running scheduler profile", request_id, second, profile=name)


def scored(name: str, total: float) -> dict[str, Any]:
    """As zap writes a scored endpoint, with what nobody needs of it."""
    metadata = {"PodName": name, "Address": "10.0.0.1", "Port": "8000", "Labels": {"llm-d.ai/role": "decode"}}
    metrics = {"WaitingQueueSize": 0, "KVCacheUsagePercent": 0.25, "ActiveModels": {}}
    return {"Endpoint": {"NamespacedName": {"Namespace": "ns", "Name": name}, **metadata, **metrics}, "Score": total}


def totals(request_id: str, second: float = 0, **by_name: float) -> dict[str, Any]:
    listed = [scored(name.replace("_", "-"), total) for name, total in by_name.items()]
    return message("Candidate pods for picking", request_id, second, **{"endpoints-weighted-score": listed})


def pick(request_id: str, *names: str, second: float = 0) -> dict[str, Any]:
    targets = {"TargetEndpoints": [scored(name, 1.0) for name in names]}
    told = {"plugin": "max-score-picker/max-score-picker", "result": targets}
    return message("Completed running picker plugin successfully", request_id, second, **told)


def access(request_id: str, second: float = 0, **more: Any) -> dict[str, Any]:
    """`more`: fields as Envoy writes them, `_` for `-`."""
    fields = {
        "method": "POST",
        "path": "/v1/chat/completions",
        "response_code": 200,
        "x-request-id": request_id,
        "x-gateway-destination-endpoint": "10.0.0.1:8000,10.0.0.2:8000",
        "x-gateway-destination-endpoint-scores": {"10.0.0.1:8000": 1.5, "10.0.0.2:8000": 0.5},
        "x-prefiller-host-port": "-",
    }
    return {"start_time": clock(second), **fields, **{name.replace("_", "-"): value for name, value in more.items()}}


def log(*lines: dict[str, Any]) -> bytes:
    """zap and Envoy put no blanks between keys and values."""
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
