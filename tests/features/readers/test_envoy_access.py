from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from features.readers.envoy_access import READER
from features.readers.head import Head
from tests.features.epp import access, log
from tests.features.logs import START_US
from tests.features.readers.reading import batches

ONE, TWO = "10.0.0.1:8000/dp0", "10.0.0.2:8000/dp0"
SCORES = {"10.0.0.1:8000": 1.5, "10.0.0.2:8000": 0.5}


def read(tmp_path: Path, *lines: dict[str, Any]) -> list[tuple[Any, ...]]:
    """(profile, plugin, endpoint, score, chosen) of all rows."""
    path = tmp_path / "access.log"
    path.write_bytes(log(*lines))
    columns = ("profile", "plugin", "endpoint", "score", "chosen")
    return [row for batch in batches(READER, path) for row in batch.frame.select(columns).rows()]


COLOCATED = [("colocated", "total", ONE, 1.5, True), ("colocated", "total", TWO, 0.5, False)]


def test_candidates_of_a_pool_that_does_both_phases(tmp_path: Path) -> None:
    assert read(tmp_path, access("r")) == COLOCATED


def test_a_request_with_a_prefiller_is_a_pair(tmp_path: Path) -> None:
    assert read(tmp_path, access("r", x_prefiller_host_port="10.0.1.1:8000")) == [
        ("decode", "total", ONE, 1.5, True),
        ("decode", "total", TWO, 0.5, False),
        ("prefill", "pick", "10.0.1.1:8000/dp0", None, True),
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"x-gateway-destination-endpoint-scores": '{"10.0.0.1:8000":1.5,"10.0.0.2:8000":0.5}'},
        {"x_gateway_destination_endpoint_scores": SCORES, "x_gateway_destination_endpoint": "10.0.0.1:8000"},
        {
            "envoy.lb": {
                "x-gateway-destination-endpoint-scores": SCORES,
                "x-gateway-destination-endpoint": "10.0.0.1:8000",
            }
        },
        {
            "dynamic_metadata": {
                "other": {"x": {"y": 1}},
                "envoy.lb": {
                    "x-gateway-destination-endpoint": "10.0.0.1:8000",
                    "x-gateway-destination-endpoint-scores": SCORES,
                },
            }
        },
        {"x-gateway-destination-endpoint-scores": SCORES, "x-gateway-destination-endpoint-served": "10.0.0.1:8000"},
    ],
    ids=["json in text", "underscores", "namespace", "all metadata", "served"],
)
def test_where_the_metadata_may_stand(given: dict[str, Any], tmp_path: Path) -> None:
    bare = {name: value for name, value in access("r").items() if not name.startswith("x-gateway")}
    if "x-gateway-destination-endpoint-scores" in given and len(given) == 1:
        bare["x-gateway-destination-endpoint"] = "10.0.0.1:8000"
    assert read(tmp_path, {**bare, **given}) == COLOCATED


def test_numbers_and_names_of_scores(tmp_path: Path) -> None:
    scores = {"a": 1, "b": -2.5e-3, "[::1]:8000": 1e3}
    found = read(
        tmp_path, access("r", x_gateway_destination_endpoint_scores=scores, x_gateway_destination_endpoint="b")
    )
    assert [(row[2], row[3], row[4]) for row in found] == [
        ("a/dp0", 1.0, False),
        ("b/dp0", -0.0025, True),
        ("[::1]:8000/dp0", 1_000.0, False),
    ]


@pytest.mark.parametrize("key", ["start_time", "@timestamp", "time"])
def test_names_of_the_time(key: str, tmp_path: Path) -> None:
    line = {key if name == "start_time" else name: value for name, value in access("r", 1.25).items()}
    path = tmp_path / "access.log"
    path.write_bytes(log(line))
    (batch,) = batches(READER, path)
    assert batch.frame["decided_at_us"].unique().to_list() == [START_US + 1_250_000]


def test_lines_that_say_nothing_are_skipped_by_kind(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(
        log(
            access("r"),
            access("health", x_gateway_destination_endpoint_scores=None),
            access("health", x_gateway_destination_endpoint_scores="-"),
            access("empty", x_gateway_destination_endpoint_scores={}),
            access("-"),
        )
    )
    (batch,) = batches(READER, path)
    assert (batch.frame.height, batch.skipped) == (2, {"no_scores": 3, "no_request_id": 1})


def test_a_text_access_log_is_not_one_of_ours() -> None:
    line = '[2026-01-05T00:00:00.125Z] "POST /v1 HTTP/1.1" 200 - "x-gateway-destination-endpoint: 10.0.0.1:8000"\n'
    assert not READER.sniff(Head(line * 9, []))
    assert READER.sniff(Head(log(access("r")).decode(), [access("r")]))
    assert not READER.sniff(Head("{}", [{"method": "GET", "dynamic_metadata": {}}]))
