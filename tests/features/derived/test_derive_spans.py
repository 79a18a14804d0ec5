"""Spans and scores that come in pieces, through the whole ingest."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import polars as pl
import pytest

from features.ingest import ingest
from features.lake import Lake
from features.naming import ClassRule
from tests.features.derived.test_decisions_from_parts import PAIR
from tests.features.derived.test_requests_from_parts import ROUTER, WHOLE, D, P, on_d, on_p, router
from tests.features.epp import log
from tests.features.logs import START_US
from tests.features.spans import Span, export_line, span

DAY_US = 86_400_000_000


def held(lake: Lake, table: str) -> pl.DataFrame:
    return lake.scan(table, lake.days(table, "a"), "a").collect()


@pytest.mark.parametrize("order", list(permutations(["router", "p", "d"])), ids="-".join)
def test_router_p_and_d_in_separate_ingests_in_any_order(order: tuple[str, ...], tmp_path: Path) -> None:
    spans: dict[str, bytes] = {
        "router": export_line((ROUTER, router())),
        "p": export_line((P, [on_p()])),
        "d": export_line((D, [on_d()])),
    }
    lake = Lake(tmp_path / "lake")
    for name in order:
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(spans[name])
        ingest(path, format="auto", pool="a", lake=lake)
    (row,) = held(lake, "requests").rows(named=True)
    known = {name: value for name, value in row.items() if value is not None}
    told = {name: (value - START_US) / 1_000 if name.endswith("_us") else value for name, value in known.items()}
    assert {name: told[name] for name in WHOLE} == WHOLE
    assert row["source"] == "spans"
    kept = {path: path.read_bytes() for path in lake.root.rglob("*.parquet")}
    again = ingest([tmp_path / f"{name}.jsonl" for name in order], format="auto", pool="a", lake=lake)
    assert (again.accepted, again.duplicates) == (0, 6)
    assert {path: path.read_bytes() for path in lake.root.rglob("*.parquet")} == kept


def moved(one: Span, by_us: int) -> Span:
    times = ("startTimeUnixNano", "endTimeUnixNano")
    return {**one, **{name: str(int(one[name]) + by_us * 1_000) for name in times}}


@pytest.mark.parametrize("turned", [False, True])
def test_a_request_over_midnight_is_whole_and_stands_on_the_day_of_its_arrival(turned: bool, tmp_path: Path) -> None:
    before = DAY_US - 60_000  # the router sees it 60 ms before midnight; D's span begins 70 ms after
    files = [
        export_line((ROUTER, [moved(one, before) for one in router()]), (P, [moved(on_p(), before)])),
        export_line((D, [moved(on_d(), before)])),
    ]
    lake = Lake(tmp_path / "lake")
    for at in (1, 0) if turned else (0, 1):
        path = tmp_path / f"{at}.jsonl"
        path.write_bytes(files[at])
        ingest(path, format="otlp-spans", pool="a", lake=lake)
    (row,) = held(lake, "requests").rows(named=True)
    assert row["arrived_at_us"] == START_US + before
    assert row["finished_at_us"] == START_US + before + 930_000
    assert row["prefill_cached_tokens"] == 256


def test_one_damaged_span_costs_the_request_what_it_said(tmp_path: Path) -> None:
    broken = span("decode_forward", START_US, START_US + 1, "a" * 32) | {"endTimeUnixNano": "soon"}
    path = tmp_path / "x.jsonl"
    path.write_bytes(export_line((P, [on_p()]), (D, [on_d(), broken])))
    report = ingest(path, format="auto", pool="a", lake=Lake(tmp_path / "lake"))
    assert (report.read, report.accepted, report.rules) == (3, 2, {"endTimeUnixNano|type": 1})
    assert report.derived == {"requests": 1}


def test_scores_of_a_request_in_two_ingests(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for at, lines in enumerate((PAIR[3:], PAIR[:3])):
        path = tmp_path / f"{at}.log"
        path.write_bytes(log(*lines))
        ingest(path, format="auto", pool="a", lake=lake)
    decisions = held(lake, "decisions")
    assert decisions.height == 4
    chosen = decisions.filter("chosen").select("prefill_node", "decode_node").rows()
    assert chosen == [("p1/dp0", "d0/dp0")]


def test_derived_requests_get_their_class_from_the_rules(tmp_path: Path) -> None:
    spans = [(ROUTER, router()), (P, [on_p()]), (D, [on_d()])]
    (tmp_path / "x.jsonl").write_bytes(b"".join(export_line(one) for one in spans))
    rules = [ClassRule("huge", min_prompt_tokens=100_000), ClassRule("chat", max_prompt_tokens=2_000)]
    lake = Lake(tmp_path / "lake")
    ingest(tmp_path / "x.jsonl", format="auto", pool="a", lake=lake, class_rules=rules)
    assert held(lake, "requests")["slo_class"].to_list() == ["chat"]
