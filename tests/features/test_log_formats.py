from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from features.log_formats import LOGS, DecisionLogLine, RequestLogLine, json_schema
from features.readers.base import ReadContext
from features.readers.published import decision_lines, request_lines, schema_text, write_schemas
from features.readers.registry import READERS
from features.readers.request_log import log_columns
from features.readers.sglang_polls import poll_lines
from features.schemas import TABLES, TERM_COLUMNS, with_all_columns
from tests.features.logs import START_US, decision, lines, poll, request

SCHEMAS = Path(__file__).parents[2] / "data" / "schemas"


@pytest.mark.parametrize("log", list(LOGS))
def test_published_schemas_are_current(log: str, tmp_path: Path) -> None:
    assert (SCHEMAS / f"{log}.json").read_text("utf-8") == schema_text(log), (
        "run: python -m features.readers.published data/schemas"
    )
    Draft202012Validator.check_schema(json_schema(log))
    assert {path.name for path in write_schemas(tmp_path)} == {f"{name}.json" for name in LOGS}


def test_the_request_log_has_the_columns_of_the_table() -> None:
    assert list(RequestLogLine.model_fields) == [*log_columns(), "headers"]


def test_the_decision_log_names_every_term() -> None:
    terms = json_schema("decision-log")["$defs"]["Terms"]["properties"]
    assert list(terms) == list(TERM_COLUMNS)


@pytest.mark.parametrize(
    ("log", "good", "bad"),
    [
        ("request-log", request(0), request(0, prompt_tokens=-1)),
        ("request-log", request(0, pool=None), request(0, block_hashes=[2**64])),
        ("decision-log", decision(0), decision(0, telemetry_age_us=-1)),
        ("decision-log", decision(0, pairs=5), decision(0, candidates=None)),
    ],
)
def test_model_and_schema_judge_alike(log: str, good: dict[str, Any], bad: dict[str, Any]) -> None:
    validator = Draft202012Validator(json_schema(log))
    line = LOGS[log].model_validate(good)
    assert validator.is_valid(good)
    assert validator.is_valid(json.loads(line.to_line()))
    assert not validator.is_valid(bad)
    with pytest.raises(ValidationError):
        LOGS[log].model_validate(bad)


def read(name: str, content: bytes, folder: Path) -> pl.DataFrame:
    path = folder / "x.jsonl"
    path.write_bytes(content)
    reader = READERS[name]
    frames = [batch.frame for batch in reader.read(path, ReadContext("a", "x.jsonl"))]
    return with_all_columns(reader.table, pl.concat(frames))


def test_frames_written_as_lines_come_back(tmp_path: Path) -> None:
    rows = read("routecal-requests", lines(*(request(i, pool="a") for i in range(5))), tmp_path)
    assert read("routecal-requests", request_lines(rows), tmp_path).drop("source_row").equals(rows.drop("source_row"))
    decisions = read("routecal-decisions", lines(*(decision(i, pairs=3) for i in range(4))), tmp_path)
    again = decision_lines(decisions)
    assert again.count(b"\n") == 4
    assert read("routecal-decisions", again, tmp_path).equals(decisions)
    for line in again.splitlines():
        DecisionLogLine.model_validate_json(line)
    for line in request_lines(rows).splitlines():
        RequestLogLine.model_validate_json(line)


def test_samples_written_as_polls_come_back(tmp_path: Path) -> None:
    polls = [poll(i, ranks=2, target=f"http://d{i % 2}") for i in range(4)] + [poll(9, mode="prefill")]
    samples = read("sglang-loads", lines(*polls), tmp_path)
    again = poll_lines(samples)
    assert again.count(b"\n") == 5
    assert read("sglang-loads", again, tmp_path).equals(samples)


def test_polls_of_blocks_are_in_tokens(tmp_path: Path) -> None:
    rows = with_all_columns(
        "node_loads",
        pl.DataFrame(
            {
                "observed_at_us": [START_US, START_US],
                "node": ["d0/dp0", "p0/dp0"],
                "role": ["decode", "prefill"],
                "block_tokens": [16, 16],
                "usable_blocks": [100, 100],
                "active_blocks": [10, 20],
                "inflight_blocks": [5, None],
                "queued_blocks": [2, None],
                "running_tokens": [150, None],
            }
        ),
    )
    found = read("sglang-loads", poll_lines(rows), tmp_path)
    columns = ["usable_blocks", "active_blocks", "inflight_blocks", "queued_blocks", "running_tokens", "free_blocks"]
    assert found.select(columns).rows() == [
        (1_600, 150, 80, 32, 150, 1_370),
        (1_600, 320, None, None, None, 1_280),
    ]


printable = st.characters(exclude_categories=("C", "Z"))
known = st.none() | st.integers(0, 2**40)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "request_id": st.text(printable, min_size=1),
                "arrived_at_us": st.integers(START_US, START_US + 10**10),
                "prompt_tokens": st.integers(1, 10**6),
                "output_tokens": st.none() | st.integers(0, 2**31 - 1),
                "finish_reason": st.none() | st.sampled_from(["stop", "length"]),
                "tenant": st.none() | st.text(printable, min_size=1, max_size=5),
                "preemptions": known,
            }
        ),
        min_size=1,
        max_size=5,
    )
)
def test_what_the_model_takes_the_reader_takes(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    content = "".join(RequestLogLine.model_validate(row).to_line() for row in rows).encode()
    found = read("routecal-requests", content, tmp_path_factory.mktemp("log"))
    assert found.height == len(rows)
    good = TABLES["requests"].schema.filter(found.unique("request_id").with_columns(pool=pl.lit("a"))).result
    assert good.height == len({row["request_id"] for row in rows})
    for name in rows[0]:
        assert found[name].to_list() == [row[name] for row in rows]
