"""What the benchmark of the replay replays: copies of a trace, and another engine that may not be there."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.replay import mooncake, third_party
from policies.twin.segments import cut, segments_of

LINES = (
    '{"timestamp": 0, "input_length": 1500, "output_length": 3, "hash_ids": [5, 6, 7]}\n'
    '{"timestamp": 3000, "input_length": 600, "output_length": 2, "hash_ids": [5, 9]}\n'
    '{"timestamp": 3000, "input_length": 100, "output_length": 1, "hash_ids": [8]}\n'
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text(LINES)
    return path


def test_a_trace_keeps_its_own_clock_and_whole_blocks(trace: Path) -> None:
    found = mooncake.read_trace(trace)
    assert found.arrival_ns.tolist() == [0, 3 * 10**9, 3 * 10**9]
    assert found.block_offset.tolist() == [0, 2, 3, 3]
    assert found.block_ids.tolist() == [0, 1, 0]


@pytest.mark.parametrize("n", [3, 4, 6, 7])
def test_copies_come_later_with_blocks_of_their_own(trace: Path, n: int) -> None:
    one = mooncake.read_trace(trace)
    many = mooncake.copies(one, n)
    assert many.requests == n
    assert (np.diff(many.arrival_ns) >= 0).all()
    assert many.prompt_tokens.tolist() == [one.prompt_tokens[k % 3] for k in range(n)]
    for k in range(n):
        mine = many.block_ids[many.block_offset[k] : many.block_offset[k + 1]]
        first = one.block_ids[one.block_offset[k % 3] : one.block_offset[k % 3 + 1]]
        assert mine.tolist() == (first + k // 3 * 2).tolist()
    if n % 3 == 0:
        for known, wanted in zip(segments_of(many), cut(many.block_ids, many.block_offset), strict=True):
            np.testing.assert_array_equal(known, wanted, strict=True)


def test_an_engine_that_does_not_run_says_why(trace: Path) -> None:
    with pytest.raises(RuntimeError, match="dynamo"):
        third_party.timed(Path(sys.executable), trace, 1.0, 1, 1)
