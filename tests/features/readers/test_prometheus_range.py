"""Answers of Prometheus' query API."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.readers.head import Head
from features.readers.prometheus_range import READER
from tests.contracts.samples.prometheus_range import answer, line
from tests.features.logs import START_US
from tests.features.readers.reading import bad, batches

START_S = START_US // 1_000_000


def series(values: Any, kind: str = "values", **metric: Any) -> dict[str, Any]:
    return {"metric": {"__name__": "vllm:kv_cache_usage_perc", "instance": "d0:8000", **metric}, kind: values}


def document(*result: Any, kind: str = "matrix") -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": list(result)}}


def read(path: Path, content: bytes) -> tuple[pl.DataFrame, dict[str, int], list[tuple[int, str]]]:
    path.write_bytes(content)
    (batch,) = batches(READER, path)
    return batch.frame, {kind: count for kind, count in batch.skipped.items() if count}, bad([batch])


MATRIX = document(
    series([[START_S, "0.25"], [START_S + 15, "NaN"], [START_S + 30.781, "1e-3"], [START_S + 45, "-1"]]),
    series(
        [[START_S, "5"], [START_S + 15, "+Inf"]],
        __name__="vllm:request_queue_time_seconds_bucket", le="+Inf", engine="2",
    ),
    series([[START_S, "5"]], __name__="node_load1"),
)  # fmt: skip


@pytest.mark.parametrize("form", ["compact", "spaced", "indented", "gzip", "document"])
def test_a_matrix_in_every_form_of_json(form: str, tmp_path: Path) -> None:
    compact = json.dumps(MATRIX, separators=(",", ":")).encode()
    content = {
        "compact": compact,
        "spaced": json.dumps(MATRIX).encode() + b"\n",
        "indented": json.dumps(MATRIX, indent=1).encode(),
        "gzip": gzip.compress(compact),
        "document": json.dumps(MATRIX, indent=None, separators=(" ,", " : ")).encode(),
    }
    frame, skipped, wrong = read(tmp_path / "usage.json", content[form])
    assert wrong == []
    assert skipped == {"unknown_value": 2, "unused_family": 1}
    assert frame["value"].to_list() == [0.25, 0.001, 5.0, float("inf")]
    assert [at - START_US for at in frame["observed_at_us"]] == [0, 30_781_000, 0, 15_000_000]
    assert frame["node"].to_list() == ["d0:8000/dp0"] * 2 + ["d0:8000/dp2"] * 2
    assert frame["labels"].to_list() == ["", "", 'le="+Inf"', 'le="+Inf"']
    # A document over several lines numbers its series, lines number themselves.
    assert frame["source_row"].to_list() == ([1, 1, 2, 2] if form == "indented" else [1, 1, 1, 1])


def test_a_vector_and_a_target_that_nothing_names(tmp_path: Path) -> None:
    vector = document({"metric": {"__name__": "sglang:num_running_reqs"}, "value": [START_S, "7"]}, kind="vector")
    frame, skipped, wrong = read(tmp_path / "d7.json", json.dumps(vector).encode())
    assert (skipped, wrong) == ({}, [])
    assert frame.select("node", "metric", "value").rows() == [("d7/dp0", "sglang:num_running_reqs", 7.0)]


def test_what_gives_no_row_is_counted_by_kind(tmp_path: Path) -> None:
    lines = [
        {"status": "error", "errorType": "bad_data", "error": "parse error"},
        document([START_S, "5"], kind="scalar"),
        document({"metric": {"instance": "d0:8000"}, "values": [[START_S, "1"], [START_S + 15, "2"]]}),
        document({"metric": {"__name__": "vllm:kv_cache_usage_perc"}, "histograms": []}),
    ]
    frame, skipped, wrong = read(tmp_path / "x.jsonl", b"".join(line(value) for value in lines))
    assert (frame.height, wrong) == (0, [])
    assert skipped == {"failed_query": 1, "other_result": 1, "unnamed_series": 2, "native_histogram": 1}


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ([START_S], "values"), ([START_S, "1", "2"], "values"), ([START_S, None], "values"), (["soon", "1"], "values"),
        ([True, "1"], "values"), ([START_S, "many"], "values"), ([1e300, "1"], "values"), (5, "values"),
        ([START_S, [1]], "values"), ([None, "1"], "values"),
    ],
)  # fmt: skip
def test_one_wrong_value_costs_no_other(value: Any, rule: str, tmp_path: Path) -> None:
    good = document(series([[START_S, "0.25"], [START_S + 15, "0.5"]]))
    broken = document(series([[START_S, "0.25"], value, [START_S + 15, "0.5"]]))
    frame, skipped, wrong = read(tmp_path / "x.jsonl", line(good) + line(broken) + line(good))
    assert wrong == [(2, f"data.result[].{rule}|type")]
    assert (frame.height, skipped) == (6, {})
    assert frame["source_row"].to_list() == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ({"status": "success", "data": []}, "data|type"),
        ({"status": "success", "data": {"resultType": "matrix"}}, "data.result|type"),
        (document(5), "data.result[].metric|type"),
        (document({"metric": {"__name__": 5}, "values": []}), "data.result[].metric|type"),
        (document(series("many")), "data.result[].values|type"),
        (document(series(7)), "data.result[].values|type"),
    ],
)
def test_answers_of_no_form_are_bad(value: dict[str, Any], rule: str, tmp_path: Path) -> None:
    frame, _, wrong = read(tmp_path / "x.jsonl", line(answer(0)) + line(value) + b'{"cut": [[\n')
    assert frame.height == 8
    assert wrong == [(2, rule), (3, "json")]


def test_recognised_by_content() -> None:
    assert READER.sniff(Head("", [answer(0)]))
    for other in ({"data": {}}, {"status": "success", "data": {"resourceSpans": []}}, {"resultType": "matrix"}):
        assert not READER.sniff(Head("", [other]))
