"""Files whose first line is damaged: what is sound behind it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.errors import SourceError
from features.ingest import ingest
from features.lake import Lake
from tests.contracts.sample import all_samples
from tests.features.logs import NAME_KEY, START_US

SAMPLES = all_samples()


@pytest.mark.parametrize("name", ["routecal-requests", "azure-llm", "prometheus-text", "otlp-spans"])
def test_a_zero_byte_costs_its_line_only(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    first, *rest = sample.records(8)
    path = tmp_path / "log.txt"
    path.write_bytes(sample.header + first[:20] + b"\x00" + first[20:] + b"".join(rest))
    report = ingest(path, format="auto", pool="a", lake=Lake(tmp_path / "l"), starts_at_us=START_US, name_key=NAME_KEY)
    assert report.accepted >= 7 * sample.rows
    assert report.read == report.accepted + report.quarantined


def test_a_file_of_many_zero_bytes_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(SAMPLES["routecal-requests"].make(8).decode().encode("utf-16-le"))
    with pytest.raises(SourceError, match="must be text"):
        ingest(path, format="auto", pool="a", lake=Lake(tmp_path / "lake"))


def test_spans_behind_a_cut_line_that_fills_the_first_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.readers.plain.CHUNK_BYTES", 300)
    first, *rest = SAMPLES["otlp-spans"].records(4)
    path = tmp_path / "log.txt"
    path.write_bytes(first[:700] + b"\n" + b"".join(rest))
    report = ingest(path, format="otlp-spans", pool="a", lake=Lake(tmp_path / "lake"))
    assert (report.accepted, report.rules) == (6, {"json": 1})
    assert report.samples["json"]["row"] == 1


@pytest.mark.parametrize(("name", "text"), [("otlp-spans", b"chatcmpl-r0"), ("prometheus-range", b"vllm:")])
def test_half_a_pair_of_surrogates_costs_what_it_stands_in(name: str, text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    content = SAMPLES[name].make(6)
    assert text in content
    path.write_bytes(content.replace(text, text + b"\\ud800", 1))
    report = ingest(path, format=name, pool="a", lake=Lake(tmp_path / "lake"), starts_at_us=START_US)
    assert report.read == report.accepted + report.quarantined + report.skipped + report.duplicates
    assert report.quarantined == 1
