from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.readers import mooncake_delta
from features.readers.head import Head
from features.readers.mooncake_delta import READER
from tests.features.logs import START_US, lines
from tests.features.readers.reading import bad, batches, chunks_of, rows

MS_US = 1_000


def turn(session: str | None, new: int | None, made: int | None, ids: list[int] | None, **when: Any) -> dict[str, Any]:
    return {"session_id": session, "input_length": new, "output_length": made, "hash_ids": ids, **when}


TURNS = (
    turn("a", 1_100, 500, [0, 1, 2], timestamp=0),
    turn("b", 600, 40, [0, 9], timestamp=100),
    turn("a", 448, 10, [3], delay=5),
    turn("b", 100, 40, [8], delay=7.5),
    turn("a", 502, 10, [4], delay=2_000),
    turn(None, 512, 1, [5], timestamp=60),
    turn("a", 1, 10, None, timestamp=9_000),
    turn("a", 1, 10, [7], delay=1),
)


def write(tmp_path: Path, *turns: dict[str, Any]) -> Path:
    path = tmp_path / "x.jsonl"
    path.write_bytes(lines(*turns))
    return path


def test_lengths_add_up_over_a_session(tmp_path: Path) -> None:
    frame = rows(READER, write(tmp_path, *TURNS))
    # a: 1,100; + 500 made + 448 new = 2,048; + 10 + 502 = 2,560; + 10 + 1; + 10 + 1. b: 600; + 40 + 100.
    assert frame["prompt_tokens"].to_list() == [1_100, 600, 2_048, 740, 2_560, 512, 2_571, 2_582]
    assert frame["output_tokens"].to_list() == [500, 40, 10, 40, 10, 1, 10, 10]
    assert frame["request_id"].to_list()[:2] == ["x-000000001", "x-000000002"]


def test_a_turn_without_a_time_arrives_its_delay_after_the_one_before(tmp_path: Path) -> None:
    frame = rows(READER, write(tmp_path, *TURNS))
    after_ms = [0, 100, 5, 107.5, 2_005, 60, 9_000, 9_001]
    assert (frame["arrived_at_us"] - START_US).to_list() == [int(ms * MS_US) for ms in after_ms]


def test_blocks_of_a_first_turn_are_shared_and_later_ones_are_the_sessions_own(tmp_path: Path) -> None:
    hashes = rows(READER, write(tmp_path, *TURNS))["block_hashes"].to_list()
    assert hashes[0] == [0, 1, 2]  # the third block is partial, and is dropped when hashes are thinned
    third, fourth, fifth = hashes[2], hashes[3], hashes[4]
    # 2,048 tokens are 4 blocks: two whole ones of the first turn, and two with what came later.
    assert third[:2] == [0, 1]
    assert len(third) == 4
    assert fifth[:4] == third
    assert len(fifth) == 5
    assert hashes[6] is None
    assert hashes[7] == fifth
    # 740 tokens of b are one block, of its first turn.
    assert fourth == [0]
    own = set(fifth[2:])
    assert len(own) == 3
    assert min(own) >= 2**40


def test_the_same_file_gives_the_same_rows_in_any_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, *TURNS)
    whole = rows(READER, path)
    for size in (1, 150, 400):
        chunks_of(monkeypatch, size)
        assert rows(READER, path).equals(whole)


def test_what_is_unknown_leaves_the_rest_of_its_session_unknown(tmp_path: Path) -> None:
    frame = rows(
        READER,
        write(
            tmp_path,
            turn("a", 600, None, [1], timestamp=0),
            turn("a", 10, 5, [2], delay=1),
            turn("b", 600, 5, [1], timestamp=0),
            turn("b", 10, 5, [2]),
            turn("b", 10, 5, [2], delay=1),
            turn("b", 10, 5, [2], timestamp=50),
            turn("c", 600, 5, [1], delay=3),
            turn("d", 2**62, 5, [1], timestamp=3),
            turn("d", 2**40, 5, [1], timestamp=4),
            turn("e", 600, 5, [1], timestamp=0),
            turn("e", -7, 5, [1], timestamp=1),
        ),
    )
    assert frame["prompt_tokens"].to_list()[:7] == [600, None, 600, 615, 630, 645, 600]
    assert frame["prompt_tokens"].to_list()[9:] == [600, None]
    assert [None if us is None else (us - START_US) // MS_US for us in frame["arrived_at_us"]][:7] == [
        0,
        1,
        0,
        None,
        None,
        50,
        None,
    ]
    assert frame["block_hashes"].to_list()[8] is None


def test_a_session_that_was_forgotten_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mooncake_delta, "SESSIONS_MAX", 2)
    chunks_of(monkeypatch, 1)
    turns = [turn(name, 600, 5, [1], timestamp=0) for name in "abcb"]
    turns[3] = turn("b", 10, 5, [2], delay=1)
    read = batches(READER, write(tmp_path, *turns, turn("a", 10, 5, [2], delay=1), turn("c", 10, 5, [2], delay=1)))
    assert bad(read) == [(5, "session_forgotten")]
    frame = pl.concat([batch.frame for batch in read])
    assert frame["prompt_tokens"].to_list() == [600, 600, 600, 615, 615]


@pytest.mark.parametrize(
    ("turns", "recognised"),
    [
        (TURNS, True),
        # Whole prompts: the second turn starts with the first one's hashes.
        ([turn("a", 1_100, 5, [0, 1], timestamp=0), turn("a", 1_700, 5, [0, 1, 2], delay=5)], False),
        # Nothing tells whether later turns are whole.
        ([turn("a", 1_100, 5, [0, 1], timestamp=0), turn("b", 1_700, 5, [0, 3], timestamp=5)], False),
        ([turn("a", 1_100, 5, None, timestamp=0), turn("a", 70, 5, None, delay=5)], False),
        ([turn("a", 100, 5, [1], timestamp=0), turn("a", 70, 5, [2], delay=5)], False),
        ([{**value, "wait_for": []} for value in TURNS], False),
    ],
)
def test_it_is_recognised_by_later_turns_that_hold_new_tokens_only(
    turns: list[dict[str, Any]], recognised: bool
) -> None:
    assert bool(READER.sniff(Head("", list(turns)))) is recognised
