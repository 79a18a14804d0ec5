"""Bytes of one rank, times of the last chunk: logs that show a part as the whole."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.firewall.facts import PoolFacts
from features.firewall.shares import ShareEvidence
from features.schemas import with_all_columns
from tests.features.firewall.judging import in_chunks, judged, served

KV = 100_000.0
FACTS = PoolFacts(kv_bytes_per_token=KV, tensor_parallel=4)
BYTES, CHUNKS = "transfer_bytes_per_rank", "prefill_last_chunk_only"
CHUNK = 8_192
CHUNK_US, TOKEN_US = 20_000, 60
"""A step of the P below: 20 ms and 60 µs a token, 0.51 s for a full chunk."""


def sent(i: int, *, ranks: int = 4, page: int = 1, resident: int = 0) -> dict[str, Any]:
    """A request whose log says the bytes of one rank of `ranks`, in whole pages of `page` tokens."""
    tokens = 1_000 + i * 7
    moved = -(-(tokens - resident) // page) * page
    return served(
        i,
        prompt_tokens=tokens,
        decode_resident_tokens=resident or None,
        transferred_bytes=int(moved * KV / ranks),
    )


def prefilled(i: int, new: int, took_us: int, **changes: Any) -> dict[str, Any]:
    begun = served(i)["prefill_started_at_us"]
    far = begun + took_us
    return served(
        i,
        prompt_tokens=new,
        prefill_cached_tokens=0,
        prefill_finished_at_us=far,
        transfer_started_at_us=far,
        transfer_finished_at_us=far + 20_000,
        decode_admitted_at_us=far,
        first_token_at_us=far + 30_000,
        finished_at_us=far + 700_000,
        **changes,
    )


def whole_us(new: int) -> int:
    """Steps of whole chunks, then the rest."""
    return -(-new // CHUNK) * CHUNK_US + new * TOKEN_US


def last_us(new: int) -> int:
    """What a log says that starts its clock anew at every chunk."""
    rest = new % CHUNK or CHUNK
    return CHUNK_US + rest * TOKEN_US


def rules(*rows: dict[str, Any], facts: PoolFacts = FACTS) -> list[str]:
    evidence = ShareEvidence(facts)
    evidence.see(table(*rows))
    return sorted(evidence.rules())


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    named = [{"pool": "a", **row} for row in rows]
    return with_all_columns("requests", pl.DataFrame(named, infer_schema_length=None))


def mixed(count: int) -> list[int]:
    """New tokens: short prompts of 1 200..8 000, every third one of 5 to 12 chunks."""
    draw = random.Random(5)
    return [draw.randrange(5 * CHUNK, 12 * CHUNK) if i % 3 == 0 else draw.randrange(1_200, 8_000) for i in range(count)]


def test_bytes_of_one_rank_are_quarantined_and_whole_ones_stay(tmp_path: Path) -> None:
    rows = [sent(i) for i in range(40)] + [sent(40, ranks=1), {**sent(41), "transferred_bytes": 0}, sent(42)]
    found = judged(tmp_path, rows, facts=FACTS)
    assert found.refused == [(BYTES, i) for i in (*range(1, 41), 43)]
    assert found.report.accepted == 2
    assert "one tensor-parallel rank" in found.report.samples[BYTES]["reason"]


def test_pages_that_are_rounded_up_do_not_hide_it() -> None:
    assert rules(*(sent(i, page=64) for i in range(30))) == [BYTES]
    assert rules(*(sent(i, page=64, resident=256) for i in range(30))) == [BYTES]


@pytest.mark.parametrize(
    "rows",
    [
        [sent(i, ranks=1) for i in range(40)],
        [sent(i, ranks=1, page=64) for i in range(40)],
        [sent(i, ranks=2) for i in range(40)],  # half was on D already and D did not say so
        [sent(i) for i in range(19)],
        [sent(i, ranks=4 if i % 2 else 1) for i in range(40)],
        [{**sent(i), "prompt_tokens": 20, "transferred_bytes": int(5 * KV)} for i in range(40)],
    ],
    ids=["whole", "whole pages", "another part", "few", "half of them", "short"],
)
def test_bytes_that_prove_nothing_stay(rows: list[dict[str, Any]]) -> None:
    assert rules(*rows) == []


@pytest.mark.parametrize(
    "facts", [PoolFacts(), PoolFacts(kv_bytes_per_token=KV), PoolFacts(kv_bytes_per_token=KV, tensor_parallel=1)]
)
def test_without_facts_bytes_are_not_judged(facts: PoolFacts) -> None:
    assert rules(*(sent(i) for i in range(40)), facts=facts) == []


def test_times_of_the_last_chunk_quarantine_the_long_prompts_of_their_node(tmp_path: Path) -> None:
    news = mixed(120)
    rows = [prefilled(i, new, last_us(new)) for i, new in enumerate(news)]
    rows += [prefilled(200 + i, new, whole_us(new), prefill_node="p1/dp0") for i, new in enumerate(news)]
    found = judged(tmp_path, rows)
    assert found.refused == [(CHUNKS, i + 1) for i, new in enumerate(news) if new > CHUNK]
    assert "last chunk" in found.report.samples[CHUNKS]["reason"]


def test_times_of_whole_prompts_stay() -> None:
    assert rules(*(prefilled(i, new, whole_us(new)) for i, new in enumerate(mixed(120)))) == []


def test_short_prompts_that_share_full_steps_do_not_make_long_ones_look_too_fast() -> None:
    """A busy P: short prompts take a full step each, so most look four times slower than the node is."""
    rows = [prefilled(i, new, max(whole_us(new), whole_us(CHUNK))) for i, new in enumerate(mixed(240))]
    assert rules(*rows) == []


def test_a_p_without_chunks_or_with_hits_of_whole_prompts_is_honest() -> None:
    assert rules(*(prefilled(i, new, CHUNK_US + new * TOKEN_US) for i, new in enumerate(mixed(120)))) == []
    hits = [
        {**prefilled(i, new, 25_000), "prefill_cached_tokens": new - 64 if new > CHUNK else 0}
        for i, new in enumerate(mixed(120))
    ]
    assert rules(*hits) == []


def test_the_pools_own_chunk_is_used_where_it_is_known() -> None:
    rows = [prefilled(i, new, last_us(new)) for i, new in enumerate(mixed(120))]
    assert rules(*rows, facts=PoolFacts(chunk_tokens=CHUNK)) == [CHUNKS]
    assert rules(*rows, facts=PoolFacts(chunk_tokens=1 << 20)) == []  # no prompt of several chunks


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(0, 60), max_size=6), honest=st.booleans(), ranks=st.sampled_from([1, 4]))
def test_shares_do_not_depend_on_how_the_log_was_cut(sizes: list[int], honest: bool, ranks: int) -> None:
    took = whole_us if honest else last_us
    news = mixed(90)
    rows = table(*({**prefilled(i, n, took(n)), "transferred_bytes": int(n * KV / ranks)} for i, n in enumerate(news)))
    whole, cut = ShareEvidence(FACTS), ShareEvidence(FACTS)
    whole.see(rows)
    in_chunks(rows, sizes, cut.see)
    wanted = ([] if honest else [CHUNKS]) + ([BYTES] if ranks == 4 else [])
    assert sorted(cut.rules()) == sorted(whole.rules()) == sorted(wanted)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    base_us=st.integers(0, 100_000),
    token_us=st.floats(1.0, 500.0),
    noise=st.floats(0.0, 0.5),
)
def test_no_honest_node_is_accused(seed: int, base_us: int, token_us: float, noise: float) -> None:
    draw = random.Random(seed)
    rows = []
    for i, new in enumerate(mixed(150)):
        steps = -(-new // CHUNK)
        took = (steps * base_us + new * token_us) * (1 + noise * draw.random())
        rows.append(prefilled(i, new, max(1, round(took))))
    assert rules(*rows) == []
