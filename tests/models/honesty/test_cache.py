"""A prefix cache replayed: what it holds, what it loses, and what the frame cannot tell."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.honesty.cache import cache_readings, hit_blocks, replayed_hits
from models.portable.cache import CacheLaw

WIDE = CacheLaw(1000.0)


def hits(law: CacheLaw, chains: list[list[int]], *, every_us: int = 1_000_000) -> list[int]:
    start = [k * every_us for k in range(len(chains))]
    found = hit_blocks(law, start, [at + 1 for at in start], chains, [len(chain) for chain in chains])
    return [hit for hit, _ in found]


def test_a_prefix_is_held_until_others_push_it_out() -> None:
    assert hits(WIDE, [[1, 2, 3], [1, 2, 4], [1, 9]]) == [0, 2, 1]
    assert hits(CacheLaw(3.0), [[1, 2, 3], [7, 8], [1, 2, 3]]) == [0, 0, 1]  # the end of the prompt went first
    assert hits(CacheLaw(4.0), [[1, 2], [3, 4], [1, 2], [5, 6], [1, 2]]) == [0, 0, 2, 0, 2]  # used again, kept


def test_blocks_grow_old() -> None:
    assert hits(CacheLaw(9.0, ttl_s=2.0), [[1], [2], [1], [3], [4], [5], [1]]) == [0, 0, 1, 0, 0, 0, 0]


def test_a_prompt_is_there_when_it_has_ended() -> None:
    found = hit_blocks(WIDE, [0, 5, 11], [10, 20, 30], [[1], [1], [1]], [1, 1, 1])
    assert found == [(0, 0), (0, 0), (1, 1)]


@given(
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True), min_size=1, max_size=20),
    st.integers(1, 8),
)
def test_more_room_never_holds_less(chains: list[list[int]], blocks: int) -> None:
    less, more = hits(CacheLaw(float(blocks)), chains), hits(CacheLaw(float(blocks + 1)), chains)
    assert all(a <= b for a, b in zip(less, more, strict=True))


def frame(cached: list[int | None], **more: list[int]) -> pl.DataFrame:
    count = len(cached)
    return pl.DataFrame({
        "node": ["p0"] * count, "started_at_us": [k * 100 for k in range(count)],
        "finished_at_us": [k * 100 + 50 for k in range(count)], "prompt_tokens": [64] * count,
        "cached_tokens": cached, "blocks": [[1, 2, 3, 4]] * count, **more,
    })  # fmt: skip


def test_what_the_frame_cannot_tell_is_left_out() -> None:
    found = replayed_hits({"p0": WIDE}, frame([16, None, 48]), 16)
    assert (found.predicted.tolist(), found.seen.tolist()) == ([48.0], [48.0])
    assert replayed_hits({"p1": WIDE}, frame([0, 48]), 16).seen.size == 0


def test_hits_are_compared_in_the_pieces_of_the_log() -> None:
    found = replayed_hits({"p0": WIDE}, frame([0, 48], unit_tokens=[32, 32]), 16)
    assert (found.predicted.tolist(), found.seen.tolist()) == ([0.0, 32.0], [0.0, 32.0])


def test_readings_are_shares_of_the_prompts() -> None:
    found = cache_readings(replayed_hits({"p0": WIDE}, frame([0] + [32] * 299), 16))
    assert {(r.group, r.measure) for r in found} == {(g, m) for g in ("*", "p0") for m in ("hit_error", "hit_share")}
    error = next(r for r in found if r.measure == "hit_error")
    assert error.value == pytest.approx(16 / 64 * 299 / 300)
    assert error.p is not None
    assert error.p < 1e-6
