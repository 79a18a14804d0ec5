"""Both ways of decoding spans, a chunk at a time and line by line, say the same of whatever stands in a log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from features.readers.lines import Lines, lines_of
from features.readers.otlp_attributes import NUMBER, TEXT, TRUTH, WANTED, WHOLE
from features.readers.otlp_columns import decode
from features.readers.otlp_objects import SPANS
from features.readers.otlp_spans import READER
from features.readers.plain import Chunk
from tests.contracts.samples.otlp_spans import record
from tests.features.logs import START_US
from tests.features.readers.reading import bad, batches, chunks_of
from tests.features.spans import attributes, export_line, span

NAMES = (
    *("llm_request", "decode Req abc", "prefill Req abc", " Req abc", "Req abc", "prefillReq abc", "prefill", "decode"),
    *("gateway.request", "gateway.request_orchestration", "pick_endpoints", "llm_d.pd_proxy.request", "prerequest"),
    *("llm_d.pd_proxy.prefill", "llm_d.pd_proxy.decode", "prefill_waiting", "prefill_forward", "decode_waiting"),
    *("prefill_transfer_kv_cache", "decode_transferred", "decode_forward", "POST /v1", ""),
)
TEXTS = (
    *(
        "r1",
        "chatcmpl-r1",
        "cmpl-r1-0",
        "cmpl--0",
        "cmpl-",
        "chatcmpl-cmpl-r1-0",
        "",
        "7",
        "1.5",
        "true",
        "é",
        "\U0001f600",
    ),
    *(
        "10.0.0.7:8000",
        "localhost:80",
        "127.0.0.1",
        "[::1]:80",
        "sglang",
        "vllm-3",
        "vllm-decode",
        "PREFILL-0\n",
        "stop",
    ),
    *("length", 'a"b', "a\\b", "[1]", "{}", "\ud800", "\udc00\ud800x", "a,]", ":NaN"),
)
VALUES: dict[Any, Sequence[dict[str, Any]]] = {
    TEXT: [{"stringValue": text} for text in TEXTS],
    WHOLE: [{"intValue": n} for n in ("0", "1", 1, "-7", 640, str(2**63 - 1))],
    NUMBER: [{"doubleValue": n} for n in (0, 2, 0.25, -1.5, 5e-7, 1.0000005, 2.5e-6, 1e7, 1e10, 1e300, -1e300)],
    TRUTH: [{"boolValue": flag} for flag in (True, False)],
}
ODD_VALUES = (
    *(None, {}, "text", 5, [], {"bytesValue": "x"}, {"boolValue": "true"}, {"boolValue": True}, {"stringValue": 5}),
    *({"stringValue": None, "intValue": "5"}, {"intValue": "7.0"}, {"intValue": 8.5}, {"intValue": " 9"}),
    *(
        {"intValue": "9" * 20},
        {"doubleValue": 8.0},
        {"doubleValue": "0.5"},
        {"doubleValue": "nan"},
        {"doubleValue": "8"},
    ),
    *({"arrayValue": {}}, {"arrayValue": None}, {"arrayValue": {"values": []}}, {"arrayValue": {"values": [None]}}),
    {"arrayValue": {"values": [{"stringValue": "length"}]}},
    {"arrayValue": {"values": [{"intValue": 7}, {"stringValue": "stop"}]}},
    {"stringValue": "a", "arrayValue": {"values": [{"stringValue": "b"}]}},
)
ODD_PAIRS = (None, {}, 5, {"key": "rid"}, {"key": 5, "value": {}}, {"key": ["rid"], "value": {}}, {"value": {}})
ODD_FIELDS: dict[str, Sequence[Any]] = {
    "startTimeUnixNano": (
        None,
        0,
        "0",
        "999",
        START_US * 1_000,
        "now",
        1.5,
        "+5",
        "-5",
        2**63,
        str(2**63),
        "",
        "٣" * 9,
    ),
    "endTimeUnixNano": (None, 0, "0", "999", START_US * 1_000, "now", 1.5, -0.0, 2**63, str(2**63 - 1), ""),
    "name": (None, 5, "a\\b", "llm_request\n", ["llm_request"]),
    "traceId": (None, "", 5, 0, "0", False, 'a"b', {}, "\udfff"),
    "spanId": (None, "", 5, 0, [], "1e5"),
    "attributes": (None, [], {}, "", 0, 5, {"a": 1}, "rid"),
}
RARE = 0.06
ODD_LISTS = (None, [], {}, 0, "", 5, [None], [5], [{}], [[]])


def pairs(of: Random) -> list[Any]:
    names = of.choices(list(WANTED), k=of.randrange(9))
    listed: list[Any] = [{"key": name, "value": of.choice(VALUES[WANTED[name]])} for name in names]
    if of.random() < RARE:
        listed.append({"key": of.choice([*names, "rid", "gen_ai.prompt"]), "value": of.choice(ODD_VALUES)})
    if of.random() < RARE / 2:
        listed.insert(0, of.choice(ODD_PAIRS))
    return listed


def spans(of: Random) -> Iterator[dict[str, Any]]:
    for _ in range(of.randrange(4)):
        start_us = START_US + of.randrange(10**9)
        one = span(of.choice(NAMES), start_us, start_us + 9, of.choice(["", "7" * 32, "ab"]))
        one["attributes"] = pairs(of)
        if of.random() < RARE:
            name = of.choice(list(ODD_FIELDS))
            one[name] = of.choice(ODD_FIELDS[name])
        if of.random() < RARE / 4:
            del one[of.choice(list(ODD_FIELDS))]
        yield one


def export(of: Random) -> dict[str, Any]:
    resources: list[Any] = [
        {"resource": {"attributes": pairs(of)}, "scopeSpans": [{"spans": list(spans(of))}, {}]}
        for _ in range(of.randrange(4))
    ]
    if resources and of.random() < RARE:
        resources[-1]["resource"] = of.choice((*ODD_LISTS, {"attributes": 5}))
    if resources and of.random() < RARE:
        resources[-1]["scopeSpans"] = of.choice((*ODD_LISTS, [{"spans": 5}, {"spans": [None]}]))
    if of.random() < RARE:
        return {"resourceSpans": of.choice((*ODD_LISTS, [*resources, None])), "x": 1}
    return {"resourceSpans": resources}


DAMAGE: tuple[Callable[[bytes], bytes], ...] = (
    lambda line: line[: len(line) // 2],
    lambda line: line.replace(b"]", b", ]", 1),
    lambda line: line[:-1] + b', "x": NaN}',
    lambda line: line[:-1] + b', "x": [-Infinity\t]}',
    lambda line: line[:-1] + b', "x": [ inf, 1]}',
    lambda line: line[:-1] + b', "resourceSpans": []}',
    lambda line: line.replace(b'"key"', b'"key": "rid", "key"'),
    lambda line: line.replace(b'Value": ', b'Value": 7, "stringValue": '),
    lambda line: line.replace(b'"spans"', b'"sp\\u0061ns"'),
    lambda line: line.replace(b"r1", b"\xff"),
    lambda line: line.replace(b"r1", b"\\u0000"),
    lambda line: line.replace(b'"key"', b'"Key"', 1),
    lambda line: line.replace(b"640", b"1e400"),
    lambda line: line.replace(b"0.25", b"9" * 400),
    lambda line: b" " + line + b" \r",
    lambda line: line.replace(b" ", b""),
    lambda line: b"[" + line + b"]",
    lambda _: b"",
)


def line(of: Random) -> bytes:
    written = json.dumps(export(of), ensure_ascii=of.random() < 0.5).encode("utf-8", "surrogatepass")
    return of.choice(DAMAGE)(written) if of.random() < RARE else written


def none(lines: Lines) -> tuple[pl.DataFrame, Any]:
    """Leaves every line."""
    return pl.DataFrame(schema=SPANS), np.arange(len(lines.texts))


def told(log: Path) -> tuple[pl.DataFrame, list[tuple[int, str]], Counter[str]]:
    """Rows, bad lines and what was skipped."""
    read = batches(READER, log)
    frame = pl.concat([batch.frame for batch in read], how="diagonal")
    return frame, bad(read), sum((Counter(batch.skipped) for batch in read), Counter())


@pytest.mark.parametrize("seed", range(4))
def test_lines_say_the_same_together_and_one_by_one(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = Random(seed)
    log = tmp_path / "spans.jsonl"
    log.write_bytes(record(0) + b"".join(line(of) + b"\n" for _ in range(300)))
    if seed % 2:  # chunks of which some are tried before they are decoded
        chunks_of(monkeypatch, 100_000)
        monkeypatch.setattr("features.readers.otlp_spans._TRIED_BYTES", 10_000)
    together = told(log)
    with patch("features.readers.otlp_spans.decode", none):
        single = told(log)
    assert_frame_equal(together[0], single[0], check_column_order=False)
    assert together[1:] == single[1:]


def test_a_log_that_is_strange_throughout_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "spans.jsonl"
    log.write_bytes(b"".join(record(i).replace(b'"name"', b'"Name"') for i in range(100)))
    tried: list[int] = []

    def counted(lines: Lines) -> tuple[pl.DataFrame, Any]:
        tried.append(len(lines.texts))
        return decode(lines)

    chunks_of(monkeypatch, 100_000)
    monkeypatch.setattr("features.readers.otlp_spans._TRIED_BYTES", 10_000)
    monkeypatch.setattr("features.readers.otlp_spans.decode", counted)
    read = batches(READER, log)
    assert len(read) > 1
    assert sum(tried) < 30
    assert bad(read) == [(row, "name|type") for row in range(1, 101) for _ in range(2)]


def usual() -> bytes:
    """A line with a span of every name, with every attribute as exporters write it."""
    of_kind = {TEXT: "x", WHOLE: 7, NUMBER: 0.5, TRUTH: True}
    told = {name: of_kind[kind] for name, kind in WANTED.items()} | {
        "gen_ai.prompt": 'Well, I said "hi", not, in: NaNs',
        "n": [1, 2],
    }
    listed = attributes({"gen_ai.response.finish_reasons": ["length"]})
    every = [span(name, START_US, START_US + 9, "7" * 32, given=told) for name in NAMES]
    few = [{**span(name, START_US, START_US + 9, "7" * 32), "attributes": listed} for name in NAMES]
    return export_line((told, every), ({}, few), ({"service.name": "vllm"}, []))


def test_what_exporters_write_is_decoded_together() -> None:
    content = usual() + record(0) + usual().replace(b" ", b"").replace(b'Req"', b' Req"')
    spans_of, left = decode(lines_of(Chunk(1, content)))
    assert not len(left)
    assert spans_of.height == 4 * len(NAMES) + 2
