from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import TwinError
from features.prefix import BlockIds, dense_ids, ideal_reuse, thin, thinning


def frame(
    hashes: list[list[int] | None], *, block: int = 16, prompt: list[int] | None = None, scope: list[str] | None = None
) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "prompt_tokens": prompt or [len(h or ()) * block for h in hashes],
            "block_tokens": [None if h is None else block for h in hashes],
            "block_hashes": hashes,
            "block_hash_scope": scope or [None] * len(hashes),
        },
        schema={
            "prompt_tokens": pl.Int64,
            "block_tokens": pl.Int64,
            "block_hashes": pl.List(pl.UInt64),
            "block_hash_scope": pl.String,
        },
    )


@pytest.mark.parametrize(("block", "step"), [(1, 256), (16, 16), (64, 4), (100, 3), (256, 1), (512, 1)])
def test_kept_hashes_are_256_tokens_apart_or_more(block: int, step: int) -> None:
    assert thinning(block) == step


def test_thinning_keeps_every_kth_hash_of_the_chain() -> None:
    rows = thin(frame([list(range(40)), None, [2**64 - 1] * 15, []]))
    assert rows["block_hashes"].to_list() == [[15, 31], None, [], []]
    assert rows["block_tokens"].to_list() == [256, None, 256, 256]
    assert rows.columns == frame([]).columns


def test_thinning_drops_the_hash_of_a_partial_block() -> None:
    rows = thin(frame([[7, 8, 9]], block=512, prompt=[1_500]))
    assert rows["block_hashes"].to_list() == [[7, 8]]
    assert rows["block_tokens"].to_list() == [512]


def test_dense_ids_number_prefixes_by_first_appearance() -> None:
    blocks = dense_ids(frame([[90, 80], None, [90, 70], []], block=256), 256)
    assert blocks.offset.tolist() == [0, 2, 2, 4, 4]
    assert blocks.ids.tolist() == [0, 1, 0, 2]
    assert blocks.distinct == 3
    assert ideal_reuse(blocks).tolist() == [0, 0, 1, 0]


def test_a_hash_covers_the_blocks_before_it() -> None:
    blocks = dense_ids(frame([[90, 80], [90]], block=256), 64)
    assert blocks.ids.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]


def test_hashes_closer_than_blocks_are_thinned() -> None:
    blocks = dense_ids(frame([[1, 2, 3, 4, 5], [1, 2, 9, 9]], block=128), 256)
    assert blocks.ids.tolist() == [0, 1, 0, 2]


def test_scopes_do_not_share_prefixes() -> None:
    blocks = dense_ids(frame([[1], [1]], block=256, scope=["a", "b"]), 256)
    assert blocks.ids.tolist() == [0, 1]


def test_distances_that_do_not_divide_are_refused() -> None:
    with pytest.raises(TwinError, match="divide"):
        dense_ids(frame([[1]], block=48), 32)


def test_no_hashes_no_ids() -> None:
    assert dense_ids(frame([None, None]), 16).offset.tolist() == [0, 0, 0]
    assert ideal_reuse(BlockIds(np.zeros(1, np.int64), np.zeros(0, np.int32))).tolist() == []


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=8), st.sampled_from([1, 2, 4]))
def test_reuse_equals_the_longest_known_prefix(prompts: list[list[int]], blocks_per_hash: int) -> None:
    chains = []
    for prompt in prompts:
        value, chain = 0, []
        for token in prompt:
            value = value * 5 + token + 1
            chain.append(value)
        chains.append(chain)
    blocks = dense_ids(frame(list(chains), block=256), 256 // blocks_per_hash)
    seen: set[int] = set()
    expected = []
    for chain in chains:
        expected.append(sum(h in seen for h in chain) * blocks_per_hash)
        seen.update(chain)
    assert ideal_reuse(blocks).tolist() == expected
