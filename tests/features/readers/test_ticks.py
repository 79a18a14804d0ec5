from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from features.readers.base import Batch
from features.readers.mooncake import READER
from features.readers.ticks import spread_ticks, tick_width_us
from tests.features.logs import START_US
from tests.features.readers.reading import batches, chunks_of, rows
from tests.features.shared import real_data

MS_US = 1_000
TICKS_MS = (0, 3_000, 5_999, 9_000, 15_000, 18_000)
"""The tick at 12,000 has no arrival."""


def trace(path: Path, *, ticks_ms: tuple[int, ...] = TICKS_MS, each: int = 4) -> Path:
    lines = [
        json.dumps({"timestamp": at, "input_length": 600, "output_length": 3, "hash_ids": [i]})
        for i, at in enumerate(at for at in ticks_ms for _ in range(each))
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_arrivals_of_a_tick_are_spread_inside_it_in_order(tmp_path: Path) -> None:
    frame = rows(READER, trace(tmp_path / "x.jsonl"))
    assert frame["source_row"].to_list() == list(range(1, 25))
    assert frame["arrived_at_us"].is_sorted()
    # A tick ends where the next one starts: 2,999 ms after 3,000; after a gap and at the end it has its own width.
    widths = dict(zip(TICKS_MS, (3_000, 2_999, 3_000, 3_000, 3_000, 3_000), strict=True))
    for i, (at, spread) in enumerate(frame.select("arrived_at_us", "arrival_spread_us").iter_rows()):
        tick = TICKS_MS[i // 4]
        assert spread == widths[tick] * MS_US
        assert 0 <= at - START_US - tick * MS_US < spread
    assert frame["arrived_at_us"].n_unique() == 24


def test_the_same_file_gives_the_same_times_in_any_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = trace(tmp_path / "x.jsonl", each=7)
    whole = rows(READER, path)
    assert rows(READER, path).equals(whole)
    for size in (1, 100, 1_000):
        chunks_of(monkeypatch, size)
        assert rows(READER, path).equals(whole)


def test_arrivals_are_uniform_in_their_tick() -> None:
    ticks = pl.int_range(0, 200_000, eager=True) // 1_000 * 3_000_000 + START_US
    frame = pl.DataFrame({"arrived_at_us": ticks, "source_row": pl.int_range(1, 200_001, eager=True)})
    (_, *_), spread = zip(*((batch.bad, batch.frame) for batch in spread_ticks(iter([Batch(frame)]))), strict=True)
    share = (pl.concat(spread)["arrived_at_us"] - ticks) / 3_000_000
    # Mean and variance of the uniform distribution: 1/2 and 1/12, each within four standard errors.
    assert share.mean() == pytest.approx(0.5, abs=4 * (1 / 12 / 200_000) ** 0.5)
    assert share.var() == pytest.approx(1 / 12, abs=4 * (1 / 180 / 200_000) ** 0.5)


@pytest.mark.parametrize(
    ("times_ms", "width_ms"),
    [
        ([0] * 9 + [3_000] * 9 + [6_000] * 9 + [9_000] * 9, 3_000),
        ([0, 0, 100, 100, 200, 200, 400, 400], 100),
        ([0, 0, 99, 99, 198, 198, 297, 297], None),  # a fine enough clock
        ([0, 0, 3_000, 3_000, 6_000, 6_000], None),  # three ticks are no pattern
        ([0, 700, 1_900, 2_300, 2_300, 4_000, 9_000, 9_500], None),  # few share a time
        ([0, 0, 0, 700, 700, 700, 1_900, 1_900, 4_000, 4_000, 9_000, 9_000], None),  # bursts, not ticks
        ([5], None),
        ([], None),
    ],
)
def test_a_tick_shows_in_the_data(times_ms: list[int], width_ms: int | None) -> None:
    width = tick_width_us(pl.Series(times_ms, dtype=pl.Int64) * MS_US)
    assert width == (None if width_ms is None else width_ms * MS_US)


def test_a_fine_clock_is_left_alone_and_not_marked(tmp_path: Path) -> None:
    frame = rows(READER, trace(tmp_path / "x.jsonl", ticks_ms=tuple(range(0, 60_000, 3_000)), each=1))
    assert ((frame["arrived_at_us"] - START_US) // MS_US).to_list() == list(range(0, 60_000, 3_000))
    assert frame["arrival_spread_us"].null_count() == 20


def test_bad_lines_and_unknown_times_stand_between(tmp_path: Path) -> None:
    path = trace(tmp_path / "x.jsonl")
    lines = path.read_text().splitlines()
    lines[4] = lines[4].replace('"timestamp": 3000', '"timestamp": null')
    lines.insert(10, "{")
    path.write_text("\n".join(lines))
    read = batches(READER, path)
    frame = pl.concat([batch.frame for batch in read])
    assert frame["source_row"].to_list() == [row for row in range(1, 26) if row != 11]
    unknown = frame.filter(pl.col("arrived_at_us").is_null())
    assert unknown.select("source_row", "arrival_spread_us").rows() == [(5, None)]
    assert frame["arrived_at_us"].drop_nulls().is_sorted()


@pytest.mark.parametrize(
    ("path", "requests", "widths_ms"),
    [
        (("mooncake-fast25", "conversation_trace.jsonl"), 12_031, (2_997, 3_000)),
        (("dynamo", "mooncake_trace_1000.jsonl"), 1_000, (3_049, 3_053)),
        (("mooncake-fast25", "synthetic_trace.jsonl"), 3_993, None),
    ],
)
def test_the_real_traces(path: tuple[str, ...], requests: int, widths_ms: tuple[int, int] | None) -> None:
    frame = rows(READER, real_data(*path))
    assert frame.height == requests
    assert frame["arrived_at_us"].is_sorted()
    spread = frame["arrival_spread_us"]
    if widths_ms is None:
        assert spread.null_count() == requests
        return
    assert (spread.min(), spread.max()) == (widths_ms[0] * MS_US, widths_ms[1] * MS_US)
    # Poisson arrivals in place of bursts: gaps as wide as their mean.
    gaps = frame["arrived_at_us"].diff().drop_nulls()
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.1)  # type: ignore[operator]
