"""Chains of block hashes: a hash stands for all that is before it, so it has one parent."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.firewall.chains import SAMPLED, ChainEvidence
from features.ingest import ingest
from features.lake import Lake
from features.schemas import with_all_columns
from tests.features.firewall.judging import in_chunks, judged, served
from tests.features.logs import NAME_KEY, START_US
from tests.features.shared import real_data

RULE = "chain_contradicts_parent"
ROOT, SYSTEM, OTHER = 16, 32, 48
"""Hashes that are followed."""


def chained(i: int, *hashes: int, scope: str | None = None, **changes: Any) -> dict[str, Any]:
    return served(
        i,
        prompt_tokens=256 * len(hashes) + 1,
        block_hashes=list(hashes),
        block_hash_scope=scope,
        prefill_cached_tokens=0,
        **changes,
    )


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    named = [{"pool": "a", **row} for row in rows]
    dtypes = {"block_hashes": pl.List(pl.UInt64)}
    return with_all_columns(
        "requests", pl.DataFrame(named, infer_schema_length=None, schema_overrides=dtypes, strict=False)
    )


def broken(*rows: dict[str, Any]) -> list[int]:
    frame = table(*rows)
    evidence = ChainEvidence()
    evidence.see(frame)
    rules = evidence.rules()
    return [i for i, holds in enumerate(rules[RULE](frame)) if not holds] if rules else []


def test_a_hash_behind_another_parent_is_quarantined(tmp_path: Path) -> None:
    rows = [chained(i, ROOT, SYSTEM, 1_000 + i) for i in range(5)]
    rows[3] = chained(3, OTHER, SYSTEM, 1_003)
    found = judged(tmp_path, rows)
    assert found.refused == [(RULE, 4)]
    assert found.report.accepted == 4
    assert "another parent" in found.report.samples[RULE]["reason"]


def test_most_requests_are_believed_wherever_the_damaged_one_stands() -> None:
    good = [chained(i, ROOT, SYSTEM) for i in range(4)]
    assert broken(chained(9, 17, SYSTEM), *good) == [0]
    assert broken(*good, chained(9, 17, SYSTEM)) == [4]
    assert broken(chained(0, ROOT, SYSTEM), chained(1, 17, SYSTEM)) == [1]  # of as many the first


def test_the_start_of_a_prompt_is_a_parent_too() -> None:
    assert broken(chained(0, ROOT), chained(1, ROOT, SYSTEM), chained(2, SYSTEM, ROOT)) == [2]
    assert broken(chained(0, ROOT, SYSTEM), chained(1, ROOT, SYSTEM), chained(2, SYSTEM)) == [2]


def test_what_chains_may_do() -> None:
    assert broken(chained(0, ROOT, SYSTEM), chained(1, ROOT, OTHER), chained(2, ROOT)) == []  # they branch
    assert broken(chained(0, ROOT, SYSTEM, scope="m1"), chained(1, OTHER, SYSTEM, scope="m2")) == []
    assert broken(chained(0, 17, 33), chained(1, 18, 33)) == []  # not followed
    assert broken(served(0, block_hashes=None), served(1, block_hashes=[])) == []


def test_a_contradiction_across_chunks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.readers.plain.CHUNK_BYTES", 900)
    rows = [chained(i, ROOT, SYSTEM, 1_000 + i) for i in range(30)]
    rows[29] = chained(29, OTHER, SYSTEM, 1_029)
    assert judged(tmp_path, rows).refused == [(RULE, 30)]


def grown(seed: int, requests: int) -> list[list[int]]:
    """Chains that share prefixes: children of random earlier prefixes, each hash drawn once for its place."""
    draw = random.Random(seed)
    known: dict[tuple[int, ...], int] = {}
    chains = []
    for _ in range(requests):
        path: tuple[int, ...] = ()
        hashes = []
        for _ in range(draw.randrange(1, 8)):
            path = (*path, draw.randrange(3))
            hashes.append(known.setdefault(path, draw.randrange(2**60) * SAMPLED))
        chains.append(hashes)
    return chains


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(0, 20), max_size=5), at=st.integers(0, 39))
def test_chained_hashes_are_never_accused_and_cuts_change_nothing(seed: int, sizes: list[int], at: int) -> None:
    chains = grown(seed, 40)
    good = [chained(i, *hashes) for i, hashes in enumerate(chains)]
    assert broken(*good) == []
    swapped = [*chains[at][:-1], chains[(at + 1) % 40][0]] if len(chains[at]) > 1 else chains[at]
    frame = table(*good[:at], chained(at, *swapped), *good[at + 1 :])
    whole, cut = ChainEvidence(), ChainEvidence()
    whole.see(frame)
    in_chunks(frame, sizes, cut.see)
    assert whole.rules().keys() == cut.rules().keys()
    for name, rule in whole.rules().items():
        assert rule(frame).equals(cut.rules()[name](frame))


def test_memory_of_the_evidence_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.firewall.chains.FOLLOWED_MAX", 100)
    evidence, whole = ChainEvidence(), ChainEvidence()
    frame = table(*(chained(i, *(16 * (i * 7 + k) for k in range(7))) for i in range(60)))
    in_chunks(frame, [10] * 5, evidence.see)
    assert evidence._rows <= 300
    whole.see(frame)
    assert evidence._pairs().equals(whole._pairs())
    assert evidence._pairs().height == 100


@pytest.mark.parametrize(
    ("folder", "name", "day", "rows"),
    [
        ("mooncake-fast25", "conversation_trace.jsonl", date(2026, 1, 5), 12_031),
        ("mooncake-fast25", "synthetic_trace.jsonl", date(2026, 1, 5), None),
        ("dynamo", "mooncake_trace_1000.jsonl", date(2026, 1, 5), None),
        ("dynamo", "pi_request_trace.jsonl.gz", date(2026, 5, 19), 17),
    ],
)
def test_public_traces_hold_no_such_request(
    folder: str, name: str, day: date, rows: int | None, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    log = real_data(folder, name)
    report = ingest(log, format="auto", pool="a", lake=lake, starts_at_us=START_US, name_key=NAME_KEY)
    assert report.rules == {}
    assert report.accepted == (rows or report.accepted) > 0
    held = lake.read("requests", day, "a")
    assert held["block_hashes"].null_count() == 0
    if folder != "dynamo":  # thinned to one hash in several: follow them as logged as well
        logged = pl.read_ndjson(log, schema={"hash_ids": pl.List(pl.UInt64)}).rename({"hash_ids": "block_hashes"})
        evidence = ChainEvidence()
        evidence.see(logged.with_columns(block_hash_scope=pl.lit(None, pl.String)))
        assert evidence.rules() == {}
