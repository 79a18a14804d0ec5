"""Scrapes go through the lake: what follows from them, again and again, and what cannot follow."""

from __future__ import annotations

from pathlib import Path

from features.ingest import ingest
from features.lake import Lake
from features.views import query
from tests.contracts.samples.prometheus_polls import scrape
from tests.features.logs import START_US

DAY_S = 86_400
CONFIG = 'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="101"} 1\n'


def polls(path: Path, times: list[int], *, target: str = "http://d0:8000", more: str = CONFIG) -> Path:
    """Scrapes of one engine that generates 10 tokens a second and receives a transfer of 1 MB in 0.1 s each second."""
    lines = [
        scrape(
            0,
            target=target,
            polled_at_us=START_US + at_s * 1_000_000,
            body=more
            + f'vllm:kv_cache_usage_perc{{engine="0"}} 0.5\nvllm:generation_tokens_total{{engine="0"}} {at_s * 10}\n'
            f'vllm:nixl_xfer_time_seconds_count{{engine="0"}} {at_s}\n'
            f'vllm:nixl_xfer_time_seconds_sum{{engine="0"}} {at_s / 10}\n'
            f'vllm:nixl_bytes_transferred_sum{{engine="0"}} {at_s * 1_000_000}\n',
        )
        for at_s in times
    ]
    path.write_bytes(b"".join(lines))
    return path


def transfers(lake: Path) -> list[tuple[int, int, int, float]]:
    sql = (
        "SELECT (observed_at_us - {0}) // 1000000, interval_us // 1000000, transfers, bytes "
        "FROM transfer_totals ORDER BY observed_at_us"
    )
    return query(lake, sql.format(START_US)).rows()


def test_what_follows_is_rebuilt_and_spans_midnight(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    first = ingest(polls(tmp_path / "a.jsonl", [0, 20, DAY_S + 5]), format="auto", pool="a", lake=Lake(lake))
    assert first.derived == {"node_loads": 3, "transfer_totals": 2}
    assert transfers(lake) == [(20, 20, 20, 2e7), (DAY_S + 5, DAY_S - 15, DAY_S - 15, (DAY_S - 15) * 1e6)]
    # A scrape that comes late takes its place: intervals on both sides of it are made anew, on both days.
    ingest(polls(tmp_path / "b.jsonl", [DAY_S - 5]), format="auto", pool="a", lake=Lake(lake))
    assert [row[:3] for row in transfers(lake)] == [
        (20, 20, 20), (DAY_S - 5, DAY_S - 25, DAY_S - 25), (DAY_S + 5, 10, 10),
    ]  # fmt: skip
    loads = query(lake, "SELECT block_tokens, usable_blocks, active_blocks, source FROM node_loads").rows()
    assert loads == [(16, 100, 50, "prometheus")] * 4


def test_loads_without_a_unit_are_named(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    smg = 'smg_engine_running_requests{worker="http://d7:1",dp_rank="0"} 5\n'
    known = polls(tmp_path / "a.jsonl", [0, 5])
    silent = polls(tmp_path / "b.jsonl", [0, 5], target="http://d1:8000", more=smg)
    report = ingest([known, silent], format="auto", pool="a", lake=Lake(lake))
    assert report.derived["node_loads"] == 2
    found = query(lake, "SELECT node, scrapes, reason FROM loads_without_unit").rows()
    assert [(node, scrapes) for node, scrapes, _ in found] == [("d1:8000/dp0", 2), ("d7:1/dp0", 2)]
    assert "cache_config_info" in found[0][2]
    assert "router" in found[1][2]
