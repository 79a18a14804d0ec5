"""Live effects matched by stratum, from numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.diagnosis.compare import Comparison, compare
from features.diagnosis.facts import ClassTarget, DiagnosisFacts
from features.errors import LakeError
from tests.features.diagnosis.tiny import DAY, POOL, Row, lake_of, request

MINUTE_MS, HOUR_MS = 60_000.0, 3_600_000.0
FACTS = DiagnosisFacts(classes=(ClassTarget("fast", ttft_ms=150), ClassTarget("slow", ttft_ms=1000)))


def served(
    version: str, ttft_ms: float, *, minutes: int = 30, each: int = 4, hour: int = 0, slo_class: str = "fast"
) -> list[Row]:
    """`each` requests in each minute, their TTFT around the mean by ±1 ms."""
    rows = []
    for k in range(minutes * each):
        at = hour * HOUR_MS + (k // each) * MINUTE_MS + k % each
        ttft = ttft_ms + (1 if k % 2 else -1)
        rows.append(
            request(
                at, first=at + ttft, end=at + ttft + 200, policy_version=version, slo_class=slo_class, output_tokens=11
            )
        )
    return rows


def run(folder: Path, rows: list[Row], **more: str) -> list[Comparison]:
    lake = lake_of(folder / "lake", requests=rows)
    return compare(lake, [DAY], POOL, more.pop("by", "policy_version"), facts=FACTS, spill=folder / "spill", **more)


def effects(found: Comparison) -> dict:
    return {effect.measure: effect for effect in found.effects}


def test_difference_within_strata(tmp_path: Path) -> None:
    # v1 served mostly fast requests, v2 mostly slow ones: unmatched, v2 looks worse; in each stratum it is better.
    rows = [
        *served("v1", 100, each=8), *served("v1", 500, slo_class="slow"),
        *served("v2", 80), *served("v2", 480, each=8, slo_class="slow"),
    ]  # fmt: skip
    (found,) = run(tmp_path, rows)
    assert (found.reference, found.value) == ("v1", "v2")
    assert (found.reference_requests, found.value_requests) == (360, 360)
    assert found.matched_frac == 1.0
    assert found.together_frac == 1.0
    ttft = effects(found)["ttft"]
    assert ttft.difference == pytest.approx(-20)
    # Both strata have 360 requests of both versions, so they weigh the same.
    assert ttft.reference_mean == pytest.approx((100 + 500) / 2)
    assert ttft.low == pytest.approx(-20, abs=1)
    assert ttft.high == pytest.approx(-20, abs=1)
    assert effects(found)["tpot"].difference == pytest.approx(0, abs=1e-9)
    assert effects(found)["slo"].difference == pytest.approx(0)
    assert any("not assigned at random" in note for note in found.notes)


def test_targets_met(tmp_path: Path) -> None:
    (found,) = run(tmp_path, [*served("v1", 150), *served("v2", 100)])  # of v1 every second one is at 149 ms
    slo = effects(found)["slo"]
    assert (slo.reference_mean, slo.value_mean, slo.difference) == (0.5, 1.0, 0.5)


def test_strata_that_one_side_has_are_named(tmp_path: Path) -> None:
    rows = [*served("v1", 100), *served("v1", 100, hour=1), *served("v2", 80), *served("v2", 80, hour=2, minutes=3)]
    (found,) = run(tmp_path, rows)
    assert [(row["side"], row["hour"], row["requests"]) for row in found.unmatched] == [("v1", 11, 120), ("v2", 12, 12)]
    assert found.matched_frac == pytest.approx(240 / 372)
    assert found.together_frac == pytest.approx(120 / 132)
    assert effects(found)["ttft"].strata == 1


def test_versions_that_never_met_say_so(tmp_path: Path) -> None:
    (found,) = run(tmp_path, [*served("v1", 100), *served("v2", 80, hour=5)])
    assert found.effects == ()
    assert any("nothing can be compared" in note for note in found.notes)
    assert any("different times" in note for note in found.notes)


def test_few_blocks_have_no_interval(tmp_path: Path) -> None:
    (found,) = run(tmp_path, [*served("v1", 100, minutes=5, each=20), *served("v2", 80, minutes=5, each=20)])
    assert effects(found)["ttft"].difference == pytest.approx(-20)
    assert effects(found)["ttft"].low is None
    assert any("no interval" in note for note in found.notes)


def test_noise_is_not_an_effect(tmp_path: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(3)
    rows = []
    for k in range(1200):
        at, version = 2000.0 * k, f"v{1 + k % 2}"
        level = 100 + 80 * rng.random() + 100 * (k // 300 % 2)  # minutes differ more than versions
        rows.append(request(at, first=at + level, end=at + 500, policy_version=version, slo_class="fast"))
    (found,) = run(tmp_path, rows)
    ttft = effects(found)["ttft"]
    assert ttft.low is not None
    assert ttft.high is not None
    assert ttft.low < 0 < ttft.high


def test_reference_and_column_are_checked(tmp_path: Path) -> None:
    rows = [*served("v1", 100), *served("v2", 80), *served("v3", 90)]
    assert [c.value for c in run(tmp_path / "a", rows)] == ["v2", "v3"]
    (first, _) = run(tmp_path / "b", rows, reference="v3")
    assert first.reference == "v3"
    with pytest.raises(LakeError, match="among the values"):
        run(tmp_path / "c", rows, reference="v9")
    with pytest.raises(LakeError, match="known column"):
        run(tmp_path / "d", rows, by="tenant")
    with pytest.raises(LakeError, match="requests to compare"):
        run(tmp_path / "e", rows, by="router_id")


def test_a_damaged_partition_is_named(tmp_path: Path) -> None:
    rows = [*served("v1", 100), *served("v2", 80)]
    lake = lake_of(tmp_path / "lake", requests=rows)
    path = lake.path("requests", DAY, POOL)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"PAR1" + bytes(len(whole) // 2) + whole[len(whole) // 2 + 4 :]):
        path.write_bytes(damaged)
        with pytest.raises(LakeError, match="ingest its day again"):
            compare(lake, [DAY], POOL, "policy_version", facts=FACTS, spill=tmp_path / "spill")
