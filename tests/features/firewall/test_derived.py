"""Requests that are put together from the spans of several hosts meet the firewall as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from features.firewall.facts import PoolFacts
from features.ingest import ingest
from features.ingest_report import IngestReport
from features.lake import Lake
from features.schemas import TABLES
from tests.features.derived.test_requests_from_parts import ROUTER, D, P, on_d, on_p, router
from tests.features.logs import START_US
from tests.features.spans import Span, export_line

NODE = "10.0.0.7:8000/dp0"


def moved(spans: list[Span], i: int, by_us: int) -> list[Span]:
    """Spans of request i, `by_us` later, with ids of their own."""
    named = json.loads(json.dumps(spans).replace("req-1", f"req-{i}"))
    times = ("startTimeUnixNano", "endTimeUnixNano")
    return [
        {
            **span,
            **{time: str(int(span[time]) + by_us * 1_000) for time in times},
            "traceId": f"{i:032x}",
            "spanId": f"{span['spanId']}{i:x}",
        }
        for span in named
    ]


def traced(i: int, p_off_us: int) -> bytes:
    at = i * 2_000_000
    return export_line(
        (ROUTER, moved(router(), i, at)),
        (P, moved([on_p(ident=f"chatcmpl-{i}")], i, at + p_off_us)),
        (D, moved([on_d(ident=f"chatcmpl-{i}")], i, at)),
    )


def load(folder: Path, *lines: bytes) -> tuple[IngestReport, pl.DataFrame]:
    (folder / "x.jsonl").write_bytes(b"".join(lines))
    lake = Lake(folder / "lake")
    report = ingest(folder / "x.jsonl", format="auto", pool="a", lake=lake, facts=PoolFacts())
    return report, lake.scan("requests", lake.days("requests", "a"), "a").collect()


def test_the_clock_of_a_node_is_set_right_in_requests_made_of_spans(tmp_path: Path) -> None:
    # P is told 4 ms after arrival and starts at 40 ms: 36 ms are the smallest wait.
    report, rows = load(tmp_path, *(traced(i, -300_000) for i in range(30)))
    assert report.clock_offsets_us == {NODE: 300_000 - 36_000}
    assert (report.corrected, report.derived, report.derived_rules) == ({"clock_skew": 30}, {"requests": 30}, {})
    assert (rows["prefill_started_at_us"] - rows["decided_at_us"]).unique().to_list() == [0]
    assert (rows["decode_admitted_at_us"] - rows["arrived_at_us"]).unique().to_list() == [165_000]
    assert rows["arrived_at_us"].to_list() == [START_US + i * 2_000_000 for i in range(30)]


def test_spans_out_of_order_are_quarantined_with_their_reason_and_counted_once(tmp_path: Path) -> None:
    report, rows = load(tmp_path, *(traced(i, 0 if i else -5_000_000) for i in range(30)))
    assert (report.clock_offsets_us, report.derived) == ({}, {"requests": 29})
    assert report.derived_rules == {"stages_in_order": 1}
    assert rows.height == 29
    (path,) = (tmp_path / "lake" / "quarantine" / "requests").rglob("*.parquet")
    (bad,) = pl.read_parquet(path).rows(named=True)
    assert bad["rule"] == "stages_in_order"
    assert json.loads(bad["values"])["request_id"] == "req-0"


def test_a_day_of_which_nothing_holds_is_counted_and_not_written(tmp_path: Path) -> None:
    report, rows = load(tmp_path, traced(0, -5_000_000))
    assert (report.derived, report.derived_rules) == ({}, {"stages_in_order": 1})
    assert rows.is_empty()
    assert not list((tmp_path / "lake" / "requests").rglob("*.parquet"))


def test_the_same_spans_give_the_same_bytes(tmp_path: Path) -> None:
    held: list[dict[str, Any]] = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        load(tmp_path / name, *(traced(i, -300_000) for i in range(25)))
        lake = tmp_path / name / "lake"
        held.append({path.relative_to(lake).as_posix(): path.read_bytes() for path in lake.rglob("*.parquet")})
    assert held[0] == held[1]
    assert {path.split("/")[0] for path in held[0]} == {"requests", "request_parts"} <= set(TABLES)
