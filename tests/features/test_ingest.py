from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.errors import SourceError
from features.ingest import ingest
from features.ingest_report import IngestReport
from features.lake import Lake
from features.naming import Alias, ClassRule
from features.prefix import dense_ids, ideal_reuse
from features.quality import Checked, check
from tests.features.logs import NAME_KEY, START_US, decision, dynamo, lines, mooncake, poll, request
from tests.features.shared import real_data

DAY = date(2026, 1, 5)


def write(path: Path, *objects: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(*objects))
    return path


def load(path: Path | list[Path], lake: Path, **options: Any) -> IngestReport:
    given = {
        "format": "auto",
        "pool": "a",
        "lake": Lake(lake),
        "starts_at_us": START_US,
        "name_key": NAME_KEY,
        **options,
    }
    report = ingest(path, **given)
    assert report.read == report.accepted + report.quarantined + report.skipped + report.duplicates
    return report


def stored(lake: Path, table: str = "requests") -> pl.DataFrame:
    return Lake(lake).read(table, DAY, "a")


def test_report_has_the_keys_that_scripts_rely_on(tmp_path: Path) -> None:
    report = load(write(tmp_path / "x.jsonl", request(0), request(1, prompt_tokens=-1)), tmp_path / "lake")
    held = json.loads(json.dumps(report.to_dict()))
    wanted = ["format", "files", "read", "accepted", "quarantined", "skipped", "duplicates", "rules", "partitions"]
    assert {name: held[name] for name in wanted} == {
        "format": "routecal-requests",
        "files": 1,
        "read": 2,
        "accepted": 1,
        "quarantined": 1,
        "skipped": 0,
        "duplicates": 0,
        "rules": {"prompt_tokens|min": 1},
        "partitions": ["requests/pool=a/day=2026-01-05"],
    }
    assert not report.nothing_read
    assert report.recognised == {"routecal-requests": "lines have request_id, arrived_at_us and prompt_tokens"}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"arrived_at_us": 1_400_000_000_000_000}, "arrived_at_us|min"),
        ({"arrived_at_us": 4_200_000_000_000_000}, "arrived_at_us|max_exclusive"),
        ({"output_tokens": -1}, "output_tokens|min"),
        ({"prompt_tokens": None}, "prompt_tokens|nullability"),
        ({"request_id": None}, "request_id|nullability"),
        ({"request_id": ""}, "request_id|min_length"),
        ({"finish_reason": "gone"}, "finish_reason_known"),
        ({"prefill_cached_tokens": 5_000}, "cached_within_prompt"),
        ({"block_tokens": None}, "hashes_have_block_size"),
        ({"first_token_at_us": START_US + 950}, "router_times_in_order"),
        ({"prefill_finished_at_us": START_US + 50}, "prefill_times_in_order"),
        ({"transfer_finished_at_us": START_US + 100}, "transfer_times_in_order"),
        ({"prefill_started_at_us": START_US - 200_000}, "stages_in_order"),
        ({"block_hashes": [2**64]}, "block_hashes[]|type"),
        ({"prompt_tokens": 1.5}, "prompt_tokens|type"),
    ],
)
def test_a_broken_rule_is_named_and_the_row_kept(changes: dict[str, Any], rule: str, tmp_path: Path) -> None:
    log = write(tmp_path / "x.jsonl", request(1), request(0, **changes), request(2))
    report = load(log, tmp_path / "lake")
    assert report.rules == {rule: 1}
    assert report.accepted == 2
    held = pl.concat(pl.read_parquet(path) for path in (tmp_path / "lake" / "quarantine").rglob("*.parquet"))
    assert held.select("rule", "source", "source_file", "source_row").rows() == [
        (rule, "routecal-requests", "x.jsonl", 2)
    ]
    if not rule.endswith("|type"):
        assert json.loads(held["values"][0])["decode_node"] == "d0/dp0"


def test_clocks_of_two_hosts_may_differ_a_little(tmp_path: Path) -> None:
    report = load(write(tmp_path / "x.jsonl", request(0, prefill_started_at_us=START_US - 50_000)), tmp_path / "lake")
    assert report.accepted == 1


def test_every_row_quarantined_is_nothing_read(tmp_path: Path) -> None:
    assert load(write(tmp_path / "x.jsonl", request(0, prompt_tokens=-1)), tmp_path / "lake").nothing_read


def test_a_repeated_request_is_a_duplicate_and_the_first_stays(tmp_path: Path) -> None:
    log = write(tmp_path / "x.jsonl", request(0), request(0), request(0, output_tokens=99), request(1))
    report = load(log, tmp_path / "lake")
    assert (report.accepted, report.duplicates) == (2, 2)
    assert stored(tmp_path / "lake")["output_tokens"].to_list() == [10, 10]


def test_a_good_row_survives_a_bad_one_of_its_id(tmp_path: Path) -> None:
    report = load(write(tmp_path / "x.jsonl", request(0, output_tokens=-1), request(0)), tmp_path / "lake")
    assert (report.accepted, report.quarantined, report.duplicates) == (1, 1, 0)


def test_late_rows_join_their_day(tmp_path: Path) -> None:
    load(write(tmp_path / "x.jsonl", request(0), request(100_000)), tmp_path / "lake")
    report = load(write(tmp_path / "y.jsonl", request(1)), tmp_path / "lake")
    assert report.partitions == ["requests/pool=a/day=2026-01-05"]
    assert stored(tmp_path / "lake")["request_id"].to_list() == ["r0", "r1"]
    assert Lake(tmp_path / "lake").days("requests", "a") == [DAY, date(2026, 1, 6)]


def test_two_lakes_from_the_same_logs_are_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a" / "x.jsonl", *(request(i) for i in range(50)))
    write(tmp_path / "logs" / "b" / "x.jsonl", *(poll(i) for i in range(50)), poll(9, polled_at_us=1))
    held = []
    for name in ("one", "two"):
        load(tmp_path / "logs", tmp_path / name)
        files = sorted((tmp_path / name).rglob("*.parquet"))
        held.append({path.relative_to(tmp_path / name): path.read_bytes() for path in files})
    assert held[0] == held[1]
    assert len(held[0]) == 3


def test_folders_patterns_and_single_files(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "one.jsonl", request(0))
    write(tmp_path / "logs" / "deep" / "two.jsonl", request(1))
    write(tmp_path / "logs" / ".hidden.jsonl", request(2))
    write(tmp_path / "logs" / "notes.md", request(3))
    write(tmp_path / "logs" / "polls.jsonl", poll(0))
    report = load(tmp_path / "logs", tmp_path / "lake")
    assert report.files == 3
    assert report.format == "routecal-requests,sglang-loads"
    assert stored(tmp_path / "lake")["source_file"].to_list() == ["one.jsonl", "deep/two.jsonl"]
    again = load([tmp_path / "logs" / "*.jsonl", tmp_path / "logs" / "one.jsonl"], tmp_path / "lake")
    assert (again.files, again.duplicates) == (2, 2)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="must hold a log"):
        load(tmp_path / "empty", tmp_path / "lake")
    with pytest.raises(SourceError, match="must exist"):
        load(tmp_path / "logs" / "*.csv", tmp_path / "lake")


def test_one_unreadable_file_among_several_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "good.jsonl", request(0))
    (tmp_path / "logs" / "bad.jsonl").write_bytes(b"\x00\x01")
    report = load(tmp_path / "logs", tmp_path / "lake")
    assert report.rules == {"file_unreadable": 1}
    assert list(report.unreadable) == ["bad.jsonl"]


def test_other_pools_are_skipped_by_kind(tmp_path: Path) -> None:
    log = write(tmp_path / "x.jsonl", request(0, pool="a"), request(1, pool="b"), request(2))
    assert load(log, tmp_path / "lake").skipped_kinds == {"other_pool": 1}
    assert stored(tmp_path / "lake")["pool"].to_list() == ["a", "a"]
    decisions = write(tmp_path / "y.jsonl", decision(0, pool="b", pairs=3), decision(1))
    assert load(decisions, tmp_path / "lake").skipped_kinds == {"other_pool": 3}


def test_classes_come_from_the_log_then_from_the_rules_then_by_default(tmp_path: Path) -> None:
    rules = [
        ClassRule("vip", header=("x-tier", "gold")),
        ClassRule("short", max_prompt_tokens=1_001),
        ClassRule("batch", min_prompt_tokens=1_001, priority=-1),
        ClassRule("team", tenant="t", model="m", app="p"),
    ]
    log = write(
        tmp_path / "x.jsonl",
        request(0),
        request(1),
        request(2, slo_class="own"),
        request(3, priority=-1),
        request(4, tenant="t", model="m", app="p"),
        request(5, headers={"x-tier": "gold", "authorization": "secret"}),
    )
    load(log, tmp_path / "lake", class_rules=rules)
    found = dict(stored(tmp_path / "lake").select("request_id", "slo_class").rows())
    assert found == {"r0": "short", "r1": "default", "r2": "own", "r3": "batch", "r4": "team", "r5": "vip"}


def test_a_header_rule_does_not_hold_for_a_format_without_headers(tmp_path: Path) -> None:
    rules = [ClassRule("vip", header=("x-tier", "gold"))]
    load(write(tmp_path / "x.jsonl", mooncake(0)), tmp_path / "lake", class_rules=rules)
    assert stored(tmp_path / "lake")["slo_class"].to_list() == ["default"]


def test_hashes_are_thinned_and_keep_their_64_bits(tmp_path: Path) -> None:
    hashes = [2**64 - 1 - i for i in range(63)]
    load(
        write(tmp_path / "x.jsonl", request(0, prompt_tokens=1_010, block_tokens=16, block_hashes=hashes)),
        tmp_path / "l",
    )
    assert stored(tmp_path / "l").select("block_tokens", "block_hashes").rows() == [(256, hashes[15::16])]


def test_polls_become_samples_in_tokens(tmp_path: Path) -> None:
    log = write(
        tmp_path / "polls.jsonl",
        poll(0, ranks=2),
        poll(1, mode="prefill"),
        poll(2, status=503, body="upstream is gone"),
        poll(3, status=None, body=None),
        poll(4, body={"loads": []}),
        poll(5, body={"loads": [{"dp_rank": 0, "num_used_tokens": -1}]}),
    )
    report = load(log, tmp_path / "lake", aliases=[Alias("http://d0:30000", "d0")])
    assert (report.accepted, report.skipped_kinds) == (4, {"failed_poll": 2, "no_loads": 1})
    first, second, prefill, silent = stored(tmp_path / "lake", "node_loads").rows(named=True)
    assert (first["node"], second["node"], first["role"], first["block_tokens"]) == ("d0/dp0", "d0/dp1", "decode", 1)
    assert (first["usable_blocks"], first["active_blocks"], first["inflight_blocks"]) == (10_000, 800, 100)
    assert (first["free_blocks"], first["queued_blocks"], first["running_tokens"]) == (9_100, 100, 800)
    assert (first["waiting_requests"], first["receiving_requests"], first["transferring_requests"]) == (2, 2, None)
    assert (first["generated_tokens"], first["reclaimable_blocks"], first["state"]) == (30, None, None)
    assert (prefill["active_blocks"], prefill["inflight_blocks"], prefill["running_tokens"]) == (900, None, None)
    assert (prefill["waiting_requests"], prefill["transferring_requests"]) == (3, 1)
    assert {k for k, v in silent.items() if v is not None} == {"observed_at_us", "node", "block_tokens", "source"}


def test_a_failed_poll_does_not_cost_its_neighbours(tmp_path: Path) -> None:
    log = write(tmp_path / "x.jsonl", poll(0), poll(1, status=500, body={"loads": "nonsense"}), poll(2))
    assert load(log, tmp_path / "lake").accepted == 2


def test_a_decision_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    torn, doubled = decision(0), decision(1)
    torn["candidates"][1]["propensity"] = 1.5
    doubled["candidates"][1]["chosen"] = True
    log = write(tmp_path / "x.jsonl", torn, doubled, decision(2), decision(3, candidates=[]), decision(2))
    report = load(log, tmp_path / "lake")
    assert (report.accepted, report.duplicates, report.skipped_kinds) == (2, 2, {"no_candidates": 1})
    assert report.rules == {"propensity|max": 1, "decision_incomplete": 1, "at_most_one_chosen": 2}
    (chosen, other) = stored(tmp_path / "lake", "decisions").rows(named=True)
    assert (chosen["prefill_wait_s"], chosen["transfer_time_s"], chosen["chosen"]) == (0.5, None, True)
    assert (other["decode_node"], other["telemetry_age_us"]) == ("d1/dp0", 250_000)


def test_dynamo_bare_and_wrapped_give_the_same_rows(tmp_path: Path) -> None:
    load(write(tmp_path / "x.jsonl", *(dynamo(i) for i in range(3))), tmp_path / "one")
    load(write(tmp_path / "x.jsonl", *(dynamo(i, wrapped=False) for i in range(3))), tmp_path / "two")
    assert stored(tmp_path / "one").equals(stored(tmp_path / "two"))
    row = stored(tmp_path / "one").row(0, named=True)
    assert (row["prefill_node"], row["decode_node"]) == (f"{2**64 - 2}/dp0", "7/dp1")
    assert row["prefill_finished_at_us"] - row["arrived_at_us"] == 12_750
    assert row["block_hashes"] == [2**64 - 1, 2**63]


def test_dynamo_payloads_are_skipped_unread(tmp_path: Path) -> None:
    payload = dynamo(1, event_type="request_payload", request={"messages": "text"})
    report = load(write(tmp_path / "x.jsonl", dynamo(0), payload), tmp_path / "lake")
    assert report.skipped_kinds == {"request_payload": 1}


def test_the_public_dynamo_trace(tmp_path: Path) -> None:
    log = real_data("dynamo", "pi_request_trace.jsonl.gz")
    report = load(log, tmp_path / "lake")
    assert (report.read, report.accepted, report.skipped) == (61, 17, 44)
    assert report.skipped_kinds == {"tool_start": 22, "tool_end": 20, "tool_error": 2}
    events = [json.loads(line)["event"] for line in gzip.decompress(log.read_bytes()).splitlines()]
    logged = {e["request"]["request_id"]: e["request"]["replay"] for e in events if "request" in e}
    held = Lake(tmp_path / "lake").read("requests", date(2026, 5, 19), "a")
    for request_id, hashes in held.select("request_id", "block_hashes").rows():
        assert hashes == logged[request_id]["input_sequence_hashes"][15::16]
    assert held["block_hashes"].list.max().max() > 2**63


def test_the_public_mooncake_trace(tmp_path: Path) -> None:
    log = real_data("mooncake-fast25", "conversation_trace.jsonl")
    report = load(log, tmp_path / "lake")
    assert (report.read, report.accepted) == (12_031, 12_031)
    rows = stored(tmp_path / "lake")
    assert rows["source_row"].to_list() == list(range(1, 12_032))  # ties in arrival keep the file's order
    blocks = dense_ids(rows, 512)
    assert ideal_reuse(blocks).sum() / len(blocks.ids) == pytest.approx(0.37, abs=0.02)


def test_a_row_that_is_lost_on_its_way_shows_in_the_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def losing(*given: Any) -> Checked:
        checked = check(*given)
        return replace(checked, accepted=checked.accepted.head(-1))

    monkeypatch.setattr("features.ingest.check", losing)
    log = write(tmp_path / "x.jsonl", *(request(i) for i in range(5)))
    report = ingest(log, format="auto", pool="a", lake=Lake(tmp_path / "lake"), name_key=NAME_KEY)
    assert report.read == 5
    assert report.accepted + report.quarantined + report.skipped + report.duplicates == 4
