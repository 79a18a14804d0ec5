"""Slices of a trace as days: nothing lost, order kept, ticks spread, prefixes the trace's own."""

import json
from pathlib import Path

import numpy as np
import pytest

from features.errors import SourceError
from pipelines.demo.trace import trace_traffic


def write_trace(path: Path, rows: int) -> Path:
    """A small trace in Mooncake format, four requests a 3 s tick, one shared first block."""
    lines = [
        {
            "timestamp": 3000 * (k // 4),
            "input_length": 512 * (2 + k % 3) + 7,
            "output_length": 5 + k,
            "hash_ids": [0, *range(100 * k + 1, 100 * k + 2 + k % 3), 100 * k + 90],
        }
        for k in range(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_slices_hold_every_request_once(tmp_path: Path) -> None:
    days = trace_traffic(write_trace(tmp_path / "t.jsonl", 40), slices=4, speed_up=2.0)
    assert [len(d.arrival_s) for d in days] == [10, 10, 10, 10]
    assert sorted(np.concatenate([d.output_tokens for d in days]).tolist()) == list(range(5, 45))
    for day in days:
        assert day.arrival_s[0] == 0
        assert np.all(np.diff(day.arrival_s) > 0)  # spread inside the tick
        assert np.array_equal(np.diff(day.hash_offset), day.prompt_tokens // 512)
        assert set(day.hashes[day.hash_offset[:-1]].tolist()) == {0}


def test_speed_up(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.jsonl", 40)
    slow = trace_traffic(path, slices=2, speed_up=1.0)
    fast = trace_traffic(path, slices=2, speed_up=2.0)
    for a, b in zip(slow, fast, strict=True):
        assert np.allclose(a.arrival_s, 2 * b.arrival_s)
    again = trace_traffic(path, slices=2, speed_up=1.0)
    assert np.array_equal(slow[0].arrival_s, again[0].arrival_s)


def test_bad_traces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="must exist"):
        trace_traffic(tmp_path / "none.jsonl", slices=4, speed_up=1.0)
    with pytest.raises(SourceError, match="two requests"):
        trace_traffic(write_trace(tmp_path / "t.jsonl", 6), slices=4, speed_up=1.0)


def test_the_real_trace(shared_real: Path) -> None:
    path = shared_real / "mooncake-fast25" / "conversation_trace.jsonl"
    days = trace_traffic(path, slices=8, speed_up=1.0)
    assert sum(len(d.arrival_s) for d in days) == 12_031
