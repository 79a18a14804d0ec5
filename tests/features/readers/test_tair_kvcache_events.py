from __future__ import annotations

from pathlib import Path

from features.ingest import ingest
from features.lake import Lake
from tests.contracts.samples.tair_kvcache_events import lookup
from tests.features.logs import NAME_KEY, START_US, lines
from tests.features.shared import real_data


def test_lookups_are_pieces_with_the_keys_as_unsigned_hashes(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(lines(lookup(0), lookup(1, type="StartWriteCache")))
    report = ingest(tmp_path / "x.jsonl", format="auto", pool="a", lake=Lake(tmp_path / "lake"), name_key=NAME_KEY)
    assert (report.accepted, report.skipped_kinds) == (1, {"StartWriteCache": 1})
    lake = Lake(tmp_path / "lake")
    (day,) = lake.days("request_parts", "a")
    row = lake.read("request_parts", day, "a").row(0, named=True)
    assert row["block_hashes"] == [1, 2**63, 2**64 - 1]
    assert (row["part"], row["part_at_us"], row["block_hash_scope"]) == ("cache.lookup/event0", START_US, "90")
    assert lake.days("requests", "a") == []


def test_the_public_event_log(tmp_path: Path) -> None:
    log = real_data("tair-kvcache-events", "event_publisher.log.jsonl")
    report = ingest(log, format="auto", pool="a", lake=Lake(tmp_path / "lake"), name_key=NAME_KEY)
    assert (report.read, report.accepted) == (300, 102)
    assert report.skipped_kinds == {"StartWriteCache": 102, "FinishWriteCache": 96}
