"""What a transfer law finds in the log of an emulated pool."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from models.portable.transfer import TransferLaw
from models.transfer.fit import fit_transfer
from models.transfer.score import score_transfers
from tests.models.transfer.pool import table

DAY_US = 86_400_000_000


def test_a_slow_port_descriptors_and_compression_are_told_apart() -> None:
    fit = fit_transfer(table("slow port"))
    law = fit.law
    assert law.port_factor == {"out:p1": pytest.approx(0.5, rel=0.05)}
    assert law.descriptor_s == pytest.approx(4e-6, rel=0.1)
    assert law.descriptors_per_block == pytest.approx(8.0, rel=0.05)
    assert law.wire_frac == pytest.approx(0.5, rel=0.01)
    assert law.efficiency == pytest.approx({"local": 0.92, "cross": 0.84}, rel=0.02)
    assert law.alpha_s == pytest.approx({"local": 0.002, "cross": 0.005}, rel=0.1)
    assert fit.port_rows is not None
    assert fit.port_rows["out:p1"] > 100


def test_quiet_ports_are_not_named_and_first_transfers_are_apart() -> None:
    fit = fit_transfer(table("quiet"))
    assert fit.law.port_factor == {}
    assert fit.law.handshake_s == pytest.approx(0.3, rel=0.1)
    assert fit.first == 24
    assert fit.law.descriptor_s == 0.0
    assert "descriptors cannot be told" in fit.notes[0]


def test_transfers_that_overlap_their_prompts_compute() -> None:
    fit = fit_transfer(table("overlapped"))
    law = fit.law
    assert law.overlap_frac == pytest.approx(0.7, abs=0.01)
    assert law.last_frac == pytest.approx(1 / 40, rel=0.25)
    assert law.efficiency == pytest.approx({"local": 0.92, "cross": 0.84}, rel=0.03)
    assert fit.hidden > 100
    # All of a long compute hides all but the last layer; nothing hides what none overlaps.
    wire = law.wire_s("local", 1e9, 12.5e9)
    assert law.exposed_s("local", 1e9, 12.5e9, 1e3) == law.alpha_s["local"] + law.last_frac * wire
    assert law.exposed_s("local", 1e9, 12.5e9, 0.0) == law.seconds("local", 1e9, 12.5e9)
    assert law.exposed_s("local", 1e9, 12.5e9, 0.01) == pytest.approx(law.seconds("local", 1e9, 12.5e9) - 0.007)


def test_links_that_are_never_seen_stand_at_their_line() -> None:
    rows = table("overlapped")
    hidden = rows.filter(pl.col("bytes") / pl.col("share_bytes_per_s") < 0.3 * pl.col("overlap_us") * 1e-6)
    fit = fit_transfer(hidden)
    assert fit.law.efficiency == {"local": 1.0, "cross": 1.0}
    assert "stands at their line's" in fit.notes[0]


def test_links_are_as_they_were_on_the_last_day() -> None:
    before = table("quiet").with_columns(started_at_us=pl.col("started_at_us") - 2 * DAY_US)
    assert set(fit_transfer(pl.concat([before, table("slow port")])).law.port_factor) == {"out:p1"}


def test_unseen_transfers_are_scored_with_the_laws_ports() -> None:
    law = fit_transfer(table("slow port")).law
    later = table("slow port", seed=2, per_second=15.0)
    scores = score_transfers(law, later)
    assert [score.path for score in scores] == ["local", "cross"]
    for score in scores:
        assert score.error.median_ape_frac < 0.06
        assert abs(score.error.signed_median_frac) < 0.02
        assert score.covered[2] == pytest.approx(0.95, abs=0.03)
    blind = score_transfers(replace(law, port_factor={}), later)
    assert blind[0].error.p90_ape_frac > 2 * scores[0].error.p90_ape_frac
    assert score_transfers(law, later.head(0)) == ()


def test_a_law_without_tail_is_scored_without_coverage() -> None:
    bare = TransferLaw({"local": 0.002, "cross": 0.005}, {"local": 0.92, "cross": 0.84})
    assert score_transfers(bare, table("quiet"))[0].covered == ()


def test_order_of_rows_changes_nothing() -> None:
    rows = table("slow port")
    assert fit_transfer(rows.sample(fraction=1.0, shuffle=True, seed=1)) == fit_transfer(rows)
