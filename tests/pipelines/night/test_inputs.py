"""Days, split, nodes and capability of a night."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.lake import Lake
from models.splits import SplitMode
from pipelines.night.contest import window_names
from pipelines.night.ingest import ingest_day, ingest_history
from pipelines.night.inputs import Capability, select_inputs
from pipelines.settings import Break, Pool
from tests.pipelines.night.emulated import SETTINGS, write_settings
from tests.pipelines.night.test_workloads import DAY_1, S, midnight, row

SIZED = SETTINGS.replace('names = ["d0/dp0", "d1/dp0"]', 'names = ["d0/dp0", "d1/dp0"]\nblocks = 2500')


def filled(folder: Path, days: int, **more: Any) -> tuple[Lake, Pool, date]:
    """Some days of two requests each, 100 s apart."""
    lake = Lake(folder / "lake")
    for k in range(days):
        day = DAY_1 + timedelta(days=k)
        rows = [row(day, at_s, f"{k}-{at_s}", **more) for at_s in (0, 100)]
        lake.write("requests", day, "small", pl.DataFrame(rows), sources={})
    return lake, write_settings(folder, text=SIZED).pool("small"), DAY_1 + timedelta(days=days - 1)


def sample(at_us: int, node: str, blocks: int, size: int) -> dict[str, Any]:
    return {
        "observed_at_us": at_us, "node": node, "role": "decode", "block_tokens": size, "usable_blocks": blocks,
        "active_blocks": 1,
    }  # fmt: skip


def test_days_are_split_with_the_longest_request_as_embargo(tmp_path: Path) -> None:
    lake, pool, last = filled(tmp_path, 5)
    found = select_inputs(lake, pool, last)
    assert found.embargo_us == 2_500_000
    assert found.split.mode is SplitMode.DAYS
    assert [w.day.day for w in found.split.train] == [2, 3, 4]
    assert found.days == tuple(DAY_1 + timedelta(days=k) for k in range(5))
    names = window_names(found)
    assert [name for name, _ in names["test"]] == ["2026-03-06"]
    assert set(found.digests) == {f"requests/2026-03-0{k}" for k in range(2, 7)}
    assert all(digest.startswith("sha256:") for digest in found.digests.values())


def test_few_days_are_cut_inside_and_a_break_ends_history(tmp_path: Path) -> None:
    lake, pool, last = filled(tmp_path, 5)
    broken = replace(pool, breaks=(Break(midnight(last) - 86_400 * S, "engine"),))
    found = select_inputs(lake, broken, last)
    assert found.split.mode is SplitMode.INSIDE_DAYS
    assert [name for name, _ in window_names(found)["test"]] == ["2026-03-05.test", "2026-03-06.test"]
    assert set(found.digests) == {"requests/2026-03-05", "requests/2026-03-06"}


def test_blocks_are_learned_from_the_last_sample(tmp_path: Path) -> None:
    lake, _, last = filled(tmp_path, 4)
    rows = [sample(midnight(last) + k * S, node, 64_000 + k, 1) for k in range(3) for node in ("d0/dp0", "d1/dp0")]
    lake.write("node_loads", last, "small", pl.DataFrame(rows), sources={})
    pool = write_settings(tmp_path).pool("small")
    found = select_inputs(lake, pool, last)
    assert [n.blocks for n in found.cluster.decode] == [250, 250]
    assert "node_loads/2026-03-05" in found.digests


def test_nodes_of_several_block_sizes_are_counted_in_blocks_of_the_pool(tmp_path: Path) -> None:
    lake, _, last = filled(tmp_path, 4)
    rows = [sample(midnight(last), "d0/dp0", 64_000, 1), sample(midnight(last), "d1/dp0", 300, 512)]
    lake.write("node_loads", last, "small", pl.DataFrame(rows), sources={})
    pool = write_settings(tmp_path).pool("small")
    assert pool.kv.block_tokens == 256
    found = select_inputs(lake, pool, last)
    assert {n.name: n.blocks for n in found.cluster.decode} == {"d0/dp0": 250, "d1/dp0": 600}


def test_capability_is_a_ladder(tmp_path: Path) -> None:
    lake, pool, last = filled(tmp_path, 4)
    assert select_inputs(lake, pool, last).capability.level == "pairs"
    lake.write("node_loads", DAY_1, "small", pl.DataFrame([sample(midnight(DAY_1), "d0/dp0", 9, 64)]), sources={})
    assert select_inputs(lake, pool, last).capability.level == "router family"
    decision = {
        "request_id": "r", "decided_at_us": midnight(DAY_1), "prefill_node": "p0/dp0", "decode_node": "d0/dp0",
        "chosen": True,
    }  # fmt: skip
    lake.write("decisions", DAY_1, "small", pl.DataFrame([decision]), sources={})
    found = select_inputs(lake, pool, last).capability
    assert found.level == "decision log"
    assert found.reaches("hashes")
    assert not Capability("telemetry", {}).reaches("hashes")


@pytest.mark.parametrize(
    ("missing", "level"),
    [({"decode_node": None}, "requests"), ({"block_hashes": None, "block_tokens": None}, "telemetry")],
)
def test_what_logs_do_not_tell_ends_the_ladder(tmp_path: Path, missing: dict[str, Any], level: str) -> None:
    lake, pool, last = filled(tmp_path, 4, **missing)
    lake.write("node_loads", DAY_1, "small", pl.DataFrame([sample(midnight(DAY_1), "d0/dp0", 9, 64)]), sources={})
    assert select_inputs(lake, pool, last).capability.level == level


def test_history_is_ingested_where_its_logs_are(tmp_path: Path) -> None:
    from features.readers.published import request_lines

    (tmp_path / "logs").mkdir()
    for k in (0, 2):
        day = DAY_1 + timedelta(days=k)
        lines = request_lines(pl.DataFrame([row(day, 1, f"r{k}")]))
        (tmp_path / "logs" / f"requests-{day}.jsonl").write_bytes(lines)
    settings = write_settings(tmp_path, text=SIZED)
    pool = settings.pool("small")
    pool = replace(pool, sources=pool.sources[:1])
    lake = Lake(settings.storage.lake)
    days = [DAY_1 + timedelta(days=k) for k in range(2)]
    assert [report.accepted for report in ingest_history(lake, pool, days, base=settings.base)] == [1]
    assert ingest_history(lake, pool, days, base=settings.base) == ()
    (report,) = ingest_day(lake, pool, DAY_1 + timedelta(days=2), base=settings.base)
    assert (report.accepted, report.duplicates) == (1, 0)
    (report,) = ingest_day(lake, pool, DAY_1 + timedelta(days=2), base=settings.base)
    assert (report.accepted, report.duplicates) == (0, 1)
    assert lake.days("requests", "small") == [DAY_1, DAY_1 + timedelta(days=2)]


def test_history_that_a_broken_night_left_half_is_finished(tmp_path: Path) -> None:
    from features.readers.published import request_lines
    from features.readers.sglang_polls import poll_lines

    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / f"requests-{DAY_1}.jsonl").write_bytes(request_lines(pl.DataFrame([row(DAY_1, 1, "r")])))
    polls = poll_lines(pl.DataFrame([sample(midnight(DAY_1), "d0/dp0", 9, 64)]))
    (logs / f"loads-{DAY_1}.jsonl").write_bytes(polls)
    settings = write_settings(tmp_path, text=SIZED)
    pool = settings.pool("small")
    lake = Lake(settings.storage.lake)
    broken_off = replace(pool, sources=pool.sources[:1])
    ingest_history(lake, broken_off, [DAY_1], base=settings.base)
    assert lake.days("node_loads", "small") == []
    assert [report.accepted for report in ingest_history(lake, pool, [DAY_1], base=settings.base)] == [1]
    assert lake.days("node_loads", "small") == [DAY_1]
    assert ingest_history(lake, pool, [DAY_1], base=settings.base) == ()


@pytest.mark.parametrize("content", [b"", b"\x00\x01", b"text\n"])
def test_a_damaged_log_of_the_history_costs_itself_only(tmp_path: Path, content: bytes) -> None:
    from features.readers.published import request_lines

    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / f"requests-{DAY_1}.jsonl").write_bytes(content)
    second = DAY_1 + timedelta(days=1)
    (logs / f"requests-{second}.jsonl").write_bytes(request_lines(pl.DataFrame([row(second, 1, "r")])))
    settings = write_settings(tmp_path, text=SIZED)
    pool = replace(settings.pool("small"), sources=settings.pool("small").sources[:1])
    damaged, good = ingest_history(Lake(settings.storage.lake), pool, [DAY_1, second], base=settings.base)
    assert (damaged.read, damaged.quarantined, damaged.rules) == (1, 1, {"file_unreadable": 1})
    assert str(logs / f"requests-{DAY_1}.jsonl") in damaged.unreadable
    assert (good.read, good.accepted) == (1, 1)
