"""Findings and answers as a whole: names, order, guards, and what a day without knowledge says."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.diagnosis.answers import AREAS, answers_of
from features.diagnosis.diagnose import diagnose
from features.diagnosis.facts import DiagnosisFacts
from features.diagnosis.finding import NAMES, percent
from features.diagnosis.findings import findings_of
from features.diagnosis.intervals import ratio_of_sums, wilson
from features.errors import LakeError
from tests.features.diagnosis.tiny import DAY, POOL, lake_of, request, tables

QUESTIONS = [
    "where", "slo", "balancing", "prefill_compute", "decode_memory", "decode_compute", "links", "cache", "routing",
    "bottleneck",
]  # fmt: skip


def test_every_name_belongs_to_a_part_of_the_pool() -> None:
    assert set(AREAS) == set(NAMES)


def test_the_guide_has_every_name_and_table(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text("utf-8")
    assert [name for name in NAMES if f"`{name}`" not in guide] == []
    hidden = {"windows", "sums"}
    found = tables(tmp_path, requests=[request(0, first=10)])
    assert [name for name in found if f"`{name}`" not in guide and name not in hidden] == []


def test_what_is_unknown_is_said_to_be(tmp_path: Path) -> None:
    found = tables(tmp_path, requests=[request(k) for k in range(300)])
    assert findings_of(found) == []
    answers = answers_of(found, [])
    assert [answer.question for answer in answers] == QUESTIONS
    assert {answer.verdict for answer in answers} == {"unknown"}


def test_a_handful_of_terrible_requests_is_no_finding(tmp_path: Path) -> None:
    rows = [
        request(
            10 * k, decided=10 * k, p_start=5000 + k, p_end=6000 + k, t_start=90_000, t_end=95_000, admitted=95_000,
            first=95_100, end=96_000, prefill_node=f"p{k % 2}", decode_node=f"d{k % 2}", transferred_bytes=10**9,
            preemptions=3, prefill_cached_tokens=0,
        )
        for k in range(9)
    ]  # fmt: skip
    assert findings_of(tables(tmp_path, requests=rows)) == []


def test_refused_and_preempted_requests_are_counted(tmp_path: Path) -> None:
    rows = [request(10 * k, preemptions=int(k < 20)) for k in range(980)]
    rows += [request(10 * k, finish_reason="rejected") for k in range(20)]
    names = {finding.name: finding for finding in findings_of(tables(tmp_path, requests=rows))}
    assert set(names) == {"refused_requests", "preemptions"}
    assert names["refused_requests"].value == pytest.approx(0.02)
    assert names["preemptions"].n == 980
    assert names["preemptions"].low is not None


def test_a_day_that_is_not_there(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", requests=[request(0, first=10)])
    whole = diagnose(lake, DAY, POOL, facts=DiagnosisFacts(), spill=tmp_path / "spill")
    assert whole.sentences[-1] == "The logs do not say enough to judge this pool."
    assert "windows" not in whole.to_dict()["tables"]
    with pytest.raises(LakeError, match="must have requests"):
        diagnose(lake, DAY, "other", facts=DiagnosisFacts(), spill=tmp_path / "spill")


def test_partitions_from_before_a_column_existed_can_be_diagnosed(tmp_path: Path) -> None:
    import polars as pl

    lake = lake_of(tmp_path / "lake", requests=[request(0, first=10, end=20)])
    path = lake.path("requests", DAY, POOL)
    pl.read_parquet(path).drop("preemptions", "transferred_bytes").write_parquet(path)
    whole = diagnose(lake, DAY, POOL, facts=DiagnosisFacts(), spill=tmp_path / "spill")
    assert whole.tables["traffic"][0]["preemptions_known"] == 0


def test_wilson_interval() -> None:
    share = wilson(5, 10)
    assert share is not None
    assert (share.low, share.high) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0, 0) is None


def test_ratio_of_sums_needs_blocks_for_an_interval() -> None:
    rows = [{"top": k % 2, "all": 1.0} for k in range(40)]
    whole = ratio_of_sums(rows, "top", "all")
    assert whole is not None
    assert whole.value == 0.5
    assert whole.low <= 0.5 <= whole.high
    assert whole.n == 20  # two sums make a block
    alone = ratio_of_sums(rows[:1], "top", "all")
    assert alone is not None
    assert alone.low == -float("inf")
    assert ratio_of_sums([], "top", "all") is None


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (0.034, "3.4 %"), (0.34, "34 %"), (0.997, "99.7 %"), (1, "100 %")]
)
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text


def test_requests_that_took_no_time_have_no_fault(tmp_path: Path) -> None:
    # All stages at one moment: a coarse clock, or a client that had gone.
    stages = ("decided", "p_start", "p_end", "t_start", "t_end", "admitted", "first", "end")
    rows = [
        request(at, **dict.fromkeys(stages, float(at)), prefill_node=f"p{at % 2}", decode_node=f"d{at % 2}")
        for at in range(300)
    ]
    lake = lake_of(tmp_path / "lake", requests=rows)
    found = diagnose(lake, DAY, POOL, facts=DiagnosisFacts(), spill=tmp_path / "spill")
    assert found.findings == ()
    assert "Whether balancing is worth it is unknown: no request waited." in found.sentences


def test_a_day_without_requests_says_which_have_some(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", requests=[request()])
    for day, pool, hint in ((DAY.replace(day=9), POOL, f"1 days, {DAY} to {DAY}"), (DAY, "other", f"requests: {POOL}")):
        with pytest.raises(LakeError, match=hint):
            diagnose(lake, day, pool, facts=DiagnosisFacts(), spill=tmp_path / "spill")
