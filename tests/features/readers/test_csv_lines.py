from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from features.errors import SourceError
from features.readers.csv_lines import csv_header, read_csv_lines
from features.readers.lines import Parsed
from tests.features.readers.reading import chunks_of

COLUMNS = {"a": pl.Int64, "b": pl.Float64, "c": pl.String}


def read(tmp_path: Path, content: bytes) -> Parsed:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    parts = list(read_csv_lines(path, COLUMNS))
    frame = pl.concat([part.frame for part in parts])
    return Parsed(frame, [line for part in parts for line in part.bad])


def judged(parsed: Parsed) -> tuple[list[tuple[object, ...]], list[tuple[int, str]]]:
    return parsed.frame.rows(), [(line.row, line.rule) for line in parsed.bad]


def test_columns_come_in_any_order_and_others_are_dropped(tmp_path: Path) -> None:
    rows, bad = judged(read(tmp_path, b"c,other, b ,a\nx,the prompt,2.5,7\ny,,1e3,-1\n"))
    assert rows == [(7, 2.5, "x", 2), (-1, 1000.0, "y", 3)]
    assert bad == []


def test_an_empty_field_is_unknown(tmp_path: Path) -> None:
    assert judged(read(tmp_path, b'a,b,c\n,,\n1,,""\n,2.0,x\n')) == (
        [(None, None, None, 2), (1, None, None, 3), (None, 2.0, "x", 4)],
        [],
    )


def test_damaged_lines_have_their_row_and_rule(tmp_path: Path) -> None:
    content = (
        b"a,b,c\n"
        b"1,1.0,x\n"  # 2
        b"2,2.0\n"  # 3 too few
        b"3,3.0,x,\n"  # 4 too many
        b"4.5,1.0,x\n"  # 5
        b"5,many,x\n"  # 6
        b"6,inf,x\n"  # 7
        b"7,1.0,\xff\n"  # 8
        b'8,1.0,"x\n'  # 9
        b"\n"
        b"  \r\n"  # 11
        b'9,1.0,"x, ""y"""\n'  # 12
        b"10,1.0,\xc3\xa9\n"  # 13
        b"99999999999999999999,1.0,x\n"  # 14
        b"11,1.0,x"  # 15
    )
    parsed = read(tmp_path, content)
    rows, bad = judged(parsed)
    assert rows == [(1, 1.0, "x", 2), (9, 1.0, 'x, "y"', 12), (10, 1.0, "é", 13), (11, 1.0, "x", 15)]
    assert bad == [
        (3, "csv_fields"),
        (4, "csv_fields"),
        (5, "a|type"),
        (6, "b|type"),
        (7, "b|type"),
        (8, "utf8"),
        (9, "csv_quote"),
        (14, "a|type"),
    ]


@pytest.mark.parametrize("value", [b"+5", b" 5", b"5 ", b"007", b"-0", b"1e3", b"5.", b".5", b"5.0", b"1_000"])
@pytest.mark.parametrize(
    "more", [b"0x10", b"true", b"nan", b"--5", b"\t5", b"  ", b'"5"', b"\xff", b"x,y", b"\xc3\xa9"]
)
def test_what_a_line_says_does_not_depend_on_its_neighbours(value: bytes, more: bytes, tmp_path: Path) -> None:
    alone = {}
    for text in (value, more):
        line = text + b",1.5,x\n"
        alone[text] = judged(read(tmp_path, b"a,b,c\n" + line))
        swapped = judged(read(tmp_path, b"a,b,c\n1," + text + b",x\n"))
        beside = judged(read(tmp_path, b"a,b,c\n1," + text + b",x\n,,,,\n"))
        assert beside == (swapped[0], [*swapped[1], (3, "csv_fields")])
    both = judged(read(tmp_path, b"a,b,c\n" + value + b",1.5,x\n" + more + b",1.5,x\n"))
    expected_rows = alone[value][0] + [(*row[:3], 3) for row in alone[more][0]]
    assert both == (expected_rows, alone[value][1] + [(3, rule) for _, rule in alone[more][1]])


def test_marks_line_ends_and_packing_of_other_systems(tmp_path: Path) -> None:
    plain = judged(read(tmp_path, b"a,b,c\n1,2.0,x\n3,,\n"))
    windows = b"\xef\xbb\xbfa,b,c\r\n1,2.0,x\r\n3,,\r\n"
    assert judged(read(tmp_path, windows)) == plain
    assert judged(read(tmp_path, gzip.compress(windows))) == plain


def test_chunks_give_the_same_rows_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f'{i},{i}.5,"n, {i}"' if i % 5 == 0 else f"{i},{i}.5,n" if i % 7 else f"{i},{i}.5" for i in range(200)]
    content = ("a,b,c\n" + "\n".join(lines)).encode()
    whole = judged(read(tmp_path, content))
    assert len(whole[0]) + len(whole[1]) == 200
    for size in (1, 40, 333):
        chunks_of(monkeypatch, size)
        assert judged(read(tmp_path, content)) == whole


def test_a_stream_that_is_cut_gives_what_it_holds(tmp_path: Path) -> None:
    packed = gzip.compress(b"a,b,c\n" + b"".join(b"%d,1.5,x%d\n" % (i, i * 7919 % 997) for i in range(20_000)))
    parsed = read(tmp_path, packed[: len(packed) // 2])
    assert parsed.frame.height > 1_000
    assert judged(parsed)[1] == [(parsed.frame.height + 2, "file_cut_short")]


@pytest.mark.parametrize("content", [b"", b"b,a\n1,2\n", b"a,b,c,a\n1,2,3,4\n", b'"a,b,c\n1,2,3\n', b"\xff,a,b,c\n"])
def test_a_file_without_the_columns_is_an_error(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"x\.csv"):
        read(tmp_path, content)


def test_a_header_of_a_text() -> None:
    assert csv_header('a, b ,"c,d"\r\n1,2,3\n') == ("a", "b", "c,d")
    assert csv_header('"a\n') == ()
