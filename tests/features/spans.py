"""Spans as the OpenTelemetry collector writes them, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Span = dict[str, Any]


def value(given: Any) -> dict[str, Any]:
    if isinstance(given, bool):
        return {"boolValue": given}
    if isinstance(given, int):
        return {"intValue": str(given)}  # int64 in OTLP/JSON
    if isinstance(given, float):
        return {"doubleValue": given}
    if isinstance(given, list):
        return {"arrayValue": {"values": [value(item) for item in given]}}
    return {"stringValue": given}


def attributes(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": value(item)} for name, item in given.items()]


def span(name: str, start_us: int, end_us: int, trace: str = "", ident: str = "", **more: Any) -> Span:
    """`more`: attributes as `given`, a dict, and any further field of the span."""
    given = more.pop("given", {})
    return {
        "traceId": trace,
        "spanId": ident or f"{start_us % 16**12:012x}{len(name):04x}",
        "parentSpanId": "",
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(start_us * 1_000),
        "endTimeUnixNano": str(end_us * 1_000),
        "attributes": attributes(given),
        "status": {},
        **more,
    }


def export(*batches: tuple[Mapping[str, Any], Sequence[Span]]) -> dict[str, Any]:
    """One export: (resource attributes, spans) of each sender."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": attributes(resource)},
                "scopeSpans": [{"scope": {"name": "s"}, "spans": list(spans)}],
            }
            for resource, spans in batches
        ]
    }


def export_line(*batches: tuple[Mapping[str, Any], Sequence[Span]]) -> bytes:
    return json.dumps(export(*batches)).encode() + b"\n"
