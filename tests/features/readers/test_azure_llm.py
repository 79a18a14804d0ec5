from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from features.readers.azure_csv import READER
from tests.features.readers.reading import bad, batches, rows
from tests.features.shared import real_data

SECOND_US = 1_000_000


def unix_us(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()) * SECOND_US


def test_a_row_is_a_request(tmp_path: Path) -> None:
    path = tmp_path / "AzureTrace.csv"
    path.write_bytes(b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805909,374,44\r\n")
    (row,) = rows(READER, path).to_dicts()
    assert row == {
        "request_id": "AzureTrace-000000002",
        "pool": "a",
        # The seventh decimal is cut, not rounded.
        "arrived_at_us": unix_us(2023, 11, 16, 18, 15, 46) + 680_590,
        "prompt_tokens": 374,
        "output_tokens": 44,
        "source_row": 2,
    }


@pytest.mark.parametrize(
    ("text", "after_us"),
    [
        ("2024-05-10 00:00:00", 0),
        ("2024-05-10 00:00:00.009930", 9_930),
        ("2024-05-10 00:00:00.009930+00:00", 9_930),
        ("2024-05-10 02:00:00.5+02:00", 500_000),
        ("2024-05-10 00:00:00Z", 0),
    ],
)
def test_times_with_fewer_decimals_and_with_an_offset(text: str, after_us: int, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    # The other line makes each text one of several in its chunk.
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{text},1,2\n2024-05-10 00:00:01,1,2\n")
    assert rows(READER, path)["arrived_at_us"].to_list() == [
        unix_us(2024, 5, 10) + after_us,
        unix_us(2024, 5, 10) + SECOND_US,
    ]


def test_images_are_accepted_and_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "lmm.csv"
    path.write_bytes(b"TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2025-01-01 00:00:00.1,3,900,12\n")
    (row,) = rows(READER, path).to_dicts()
    assert (row["prompt_tokens"], row["output_tokens"]) == (900, 12)
    assert "NumImages" not in row


def test_what_is_no_time_is_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(
        b"TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n2024-05-10 00:00:00,1,2\n,1,2\n2024-05-10,1,x\n"
    )
    read = batches(READER, path)
    assert bad(read) == [(2, "TIMESTAMP|type"), (4, "TIMESTAMP|type"), (5, "GeneratedTokens|type")]
    assert [row for batch in read for row in batch.frame["source_row"]] == [3]


def test_the_real_trace_is_read_whole() -> None:
    frame = rows(READER, real_data("azure-llm-2023", "AzureLLMInferenceTrace_conv.csv"))
    assert frame.height == 19_366
    assert frame["request_id"].n_unique() == 19_366
    assert frame["arrived_at_us"].min() == unix_us(2023, 11, 16, 18, 15, 46) + 680_590
    assert frame["arrived_at_us"].max() == unix_us(2023, 11, 16, 19, 14, 8) + 402_527
