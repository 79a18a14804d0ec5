"""All formats by name, and which of them a file is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from features.errors import SourceError
from features.readers import (
    azure_csv,
    decision_log,
    dynamo_fpm,
    dynamo_replay,
    dynamo_replay_loads,
    dynamo_trace,
    envoy_access,
    epp_scores,
    kv_cache_tester,
    llmservingsim_bench,
    llmservingsim_timeseries,
    llmservingsim_workload,
    mooncake,
    mooncake_delta,
    multi_round_qa,
    otlp_spans,
    prometheus_polls,
    prometheus_range,
    prometheus_text,
    request_log,
    sglang_loads,
    sglang_requests,
    tair_events,
)
from features.readers.base import Reader
from features.readers.head import read_head

AUTO = "auto"
READERS: Mapping[str, Reader] = {
    module.READER.name: module.READER
    for module in (  # one a line: people add theirs
        request_log,
        decision_log,
        sglang_loads,
        dynamo_trace,
        mooncake,
        otlp_spans,
        epp_scores,
        envoy_access,
        azure_csv,
        kv_cache_tester,
        llmservingsim_bench,
        llmservingsim_timeseries,
        llmservingsim_workload,
        mooncake_delta,
        multi_round_qa,
        sglang_requests,
        dynamo_fpm,
        dynamo_replay,
        dynamo_replay_loads,
        prometheus_polls,
        prometheus_range,
        prometheus_text,
        tair_events,
    )
}
"""A new format is one import and one line here."""


@dataclass(frozen=True, slots=True)
class Sniffed:
    """The reader that a file fits, and why."""

    reader: Reader
    reason: str


def reader_named(name: str) -> Reader:
    """The reader of a format.

    Raises SourceError if there is none of that name.
    """
    if name not in READERS:
        raise SourceError("a format must be known", value=name, hint=f"one of {', '.join((*READERS, AUTO))}")
    return READERS[name]


def sniff(path: Path) -> Sniffed:
    """Recognises a file by its content.

    Raises SourceError if it fits no format or more than one, or cannot be read.
    """
    head = read_head(path)
    found = [Sniffed(reader, reason) for reader in READERS.values() if (reason := reader.sniff(head))]
    if len(found) == 1:
        return found[0]
    if not found:
        keys = sorted({key for value in head.objects for key in value})[:12]
        raise SourceError(
            "a log must be of a known format",
            value=keys or "no JSON object at its start",
            place=str(path),
            hint=f"one of {', '.join(READERS)}; is the file whole?",
        )
    names = ", ".join(f"{sniffed.reader.name} ({sniffed.reason})" for sniffed in found)
    raise SourceError("a log must fit one format", value=names, place=str(path), hint="name it with --format")
