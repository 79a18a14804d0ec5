"""Prefix hits against the ceiling, and each cause of a loss, from prompts of few blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.diagnosis.answers import answers_of
from features.diagnosis.facts import Limits
from features.diagnosis.rules_cache import cache_findings
from features.diagnosis.tables import ttl_of
from tests.features.diagnosis.tiny import Row, only, request, sample, tables


def prompt(at: float, node: str, blocks: list[int], cached: int = 0, took: float = 10.0) -> Row:
    """A prompt of whole blocks of 100 tokens and 50 tokens more."""
    return request(
        at, decided=at, p_start=at, p_end=at + took, first=at + took + 10, prefill_node=node, decode_node="d0",
        prompt_tokens=100 * len(blocks) + 50, block_tokens=100, block_hashes=blocks, block_hash_scope="s",
        prefill_cached_tokens=cached,
    )  # fmt: skip


def room(tokens: int, *nodes: str) -> list[Row]:
    """Samples that say how large the nodes are; nothing is pinned."""
    return [
        sample(1000.0 * k, node, "prefill", usable_blocks=tokens, active_blocks=0) for node in nodes for k in range(20)
    ]


def test_ceiling_hits_and_what_was_never_seen(tmp_path: Path) -> None:
    rows = [
        prompt(0, "p0", [1, 2, 3]),
        prompt(1000, "p0", [1, 2, 4], cached=200),
        prompt(2000, "p0", [5], cached=0),
    ]
    whole = only(tables(tmp_path, requests=rows)["prefix"], node=None)
    assert (whole["prompt_tokens"], whole["cached_tokens"]) == (350 + 350 + 150, 200)
    assert (whole["ceiling_tokens"], whole["hit_tokens"], whole["beyond_tokens"]) == (200, 200, 0)


def test_a_trace_without_hits_has_a_ceiling_all_the_same(tmp_path: Path) -> None:
    rows = [prompt(0, "p0", [1, 2, 3]), prompt(1000, "p0", [1, 2, 4])]
    for row in rows:
        del row["prefill_cached_tokens"]
    found = tables(tmp_path, requests=rows)
    whole = only(found["prefix"], node=None)
    assert (whole["hashed_prompt_tokens"], whole["hashed_ceiling_tokens"]) == (700, 200)
    assert (whole["requests"], whole["ceiling_tokens"], whole["hit_tokens"]) == (0, 0, 0)
    assert found["prefix_loss"] == []
    cache = next(answer for answer in answers_of(found, []) if answer.question == "cache")
    assert cache.verdict == "unknown"
    assert "29 % of the prompt tokens" in cache.text


def test_requests_of_an_unknown_node_count_in_all_only(tmp_path: Path) -> None:
    rows = [prompt(0, "p0", [1, 2]), prompt(1000, "p0", [1, 2], cached=100), prompt(2000, "p0", [1, 2], cached=100)]
    rows[1]["prefill_node"] = None
    found = tables(tmp_path, requests=rows)["prefix"]
    assert [row["node"] for row in found] == [None, "p0"]
    assert [row["hashed_requests"] for row in found] == [3, 2]
    assert [row["hashed_ceiling_tokens"] for row in found] == [400, 200]


def test_the_last_token_is_never_a_hit(tmp_path: Path) -> None:
    rows = [prompt(0, "p0", [1]), prompt(1000, "p0", [1])]
    for row in rows:
        row["prompt_tokens"] = 100
    assert only(tables(tmp_path, requests=rows)["prefix"], node=None)["ceiling_tokens"] == 0


def test_hits_from_the_day_before_lie_beyond_the_ceiling(tmp_path: Path) -> None:
    whole = only(tables(tmp_path, requests=[prompt(0, "p0", [1, 2], cached=100)])["prefix"], node=None)
    assert (whole["ceiling_tokens"], whole["hit_tokens"], whole["beyond_tokens"]) == (0, 0, 100)


@pytest.mark.parametrize(
    ("rows", "size", "cause", "tokens"),
    [
        # p1 computes what p0 holds.
        ([prompt(0, "p0", [1, 2]), prompt(1000, "p1", [1, 2])], 10_000, "routing", 200),
        # p0 computed 1,050 tokens in between, its room is 1,000.
        (
            [prompt(0, "p0", [1, 2]), prompt(1000, "p0", [*range(10, 20)]), prompt(2000, "p0", [1, 2])],
            1_000, "eviction", 200,
        ),
        # p0 had it and evicted it as well: no other node would have helped.
        (
            [prompt(0, "p0", [1, 2]), prompt(1000, "p0", [*range(10, 20)]), prompt(2000, "p1", [1, 2])],
            1_000, "eviction", 200,
        ),
        # The first prompt was still computed when the second one began.
        ([prompt(0, "p0", [1, 2], took=500), prompt(100, "p1", [1, 2])], 10_000, "not_ready", 200),
        # p0 should hold it, and there is no sign of a TTL.
        ([prompt(0, "p0", [1, 2]), prompt(1000, "p0", [1, 2])], 10_000, "unexplained", 200),
        # Nobody says how large p0 is.
        ([prompt(0, "p0", [1, 2]), prompt(1000, "p0", [1, 2])], None, "eviction_or_ttl", 200),
    ],
)  # fmt: skip
def test_causes(tmp_path: Path, rows: list[Row], size: int | None, cause: str, tokens: int) -> None:
    loads = [] if size is None else room(size, "p0", "p1")
    found = tables(tmp_path, requests=rows, loads=loads)
    assert {row["cause"]: row["tokens"] for row in found["prefix_loss"]} == {cause: tokens}


def test_a_ttl_needs_late_misses_and_early_hits(tmp_path: Path) -> None:
    rows, loads = [], room(10_000_000, "p0")
    for k in range(120):
        at = 100.0 * k
        rows += [prompt(at, "p0", [1000 + k]), prompt(at + 50, "p0", [1000 + k], cached=100)]  # after 40 ms: hit
        rows.append(prompt(at + 15_000, "p0", [1000 + k]))  # after 15 s: dropped
    found = tables(tmp_path, requests=rows, loads=loads)
    assert found["ttl"][0]["ttl_s"] == pytest.approx(14.94, abs=0.01)
    assert {row["cause"] for row in found["prefix_loss"]} == {"ttl"}
    assert ttl_of({"hits": 99, "misses": 500, "hit_gap_p95_s": 1.0, "miss_gap_p05_s": 10.0}) is None
    assert ttl_of({"hits": 500, "misses": 500, "hit_gap_p95_s": 11.0, "miss_gap_p05_s": 10.0}) is None


def test_sampled_blocks_estimate_the_whole(tmp_path: Path) -> None:
    rows = []
    for k in range(200):
        rows += [
            prompt(10.0 * k, "p0", [*range(100 * k, 100 * k + 20)]),
        ]
    rows += [prompt(10_000 + 10.0 * k, "p1", [*range(100 * k, 100 * k + 20)]) for k in range(200)]
    found = tables(tmp_path, requests=rows, loads=room(10_000_000, "p0", "p1"), limits=Limits(blocks=1000))
    whole = only(found["prefix"], node=None)
    assert whole["block_stride"] == 8
    assert whole["ceiling_tokens"] == pytest.approx(200 * 20 * 100, rel=0.15)
    (loss,) = found["prefix_loss"]
    assert loss["cause"] == "routing"
    assert loss["tokens"] == whole["ceiling_tokens"]


def test_hot_prefixes(tmp_path: Path) -> None:
    rows = [prompt(100.0 * k, "p0" if k % 4 else "p1", [7, 100 + k]) for k in range(20)]
    (got,) = tables(tmp_path, requests=rows)["hot_prefix"]
    assert (got["requests"], got["request_frac"], got["node"], got["node_frac"]) == (20, 1.0, "p0", 0.75)


def losses(cause: str, tokens: int, requests: int = 1000) -> list[str]:
    whole = {
        "node": None, "requests": requests, "prompt_tokens": 1_000_000, "cached_tokens": 0, "ceiling_tokens": 500_000,
    }  # fmt: skip
    loss = [{"cause": cause, "blocks": 1, "tokens": tokens}]
    return [f.name for f in cache_findings({"prefix": [whole], "prefix_loss": loss, "hot_prefix": []})]


def test_small_losses_and_small_days_are_no_finding() -> None:
    assert losses("eviction", 200_000) == ["thrashing_prefix_cache"]
    assert losses("eviction", 60_000) == []
    assert losses("routing", 200_000) == ["prefix_missed_by_routing"]
    assert losses("routing", 100_000) == []
    assert losses("not_ready", 400_000) == []
    assert losses("eviction", 200_000, requests=100) == []


def test_a_hot_prefix_is_named_where_its_p_is_crowded() -> None:
    row = {"prefix": "ab", "requests": 500, "request_frac": 0.5, "node": "p0", "node_frac": 0.9, "nodes": 2}
    nodes = [{"node": "p0", "queue_mean_ms": 80.0}, {"node": "p1", "queue_mean_ms": 10.0}]
    found = cache_findings({"hot_prefix": [row], "prefill_nodes": nodes, "prefix": []})
    assert [(f.name, f.subject) for f in found] == [("hot_prefix", "p0")]
    calm = [nodes[0] | {"queue_mean_ms": 15.0}, nodes[1]]
    assert cache_findings({"hot_prefix": [row], "prefill_nodes": calm, "prefix": []}) == []
