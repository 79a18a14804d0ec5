"""Predicted beside seen times: windows of several steps, first transfers, overlap, groups and bands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from models.honesty.steps import band_name, decode_times, error_rows, prefill_times, time_readings, transfer_times
from models.portable.steps import StepLaw, StepLaws, one_type
from tests.models.honesty.days import day
from tests.models.honesty.laws import pool

LAWS = pool()


def test_a_window_is_the_sum_of_its_steps() -> None:
    """Two full steps and a shorter one, under a law that bends between them."""
    law = StepLaw((0.01, 1e-5, 0.0, 0.0, 0.001), bends=((500.0, 1e-4),))
    frame = pl.DataFrame({
        "node": ["p0"], "started_at_us": [0], "n_steps": [3], "busy_us": [90_000], "new_tokens": [2 * 1024 + 100],
        "sum_chunk_context": [0], "prompts": [3], "last_tokens": [100],
    })  # fmt: skip
    found = prefill_times(one_type(law), frame)
    whole = 2 * law.prefill_s(1024.0, 0.0, 1.0) + law.prefill_s(100.0, 0.0, 1.0)
    assert found.predicted.tolist() == pytest.approx([whole / 3])
    assert found.seen.tolist() == pytest.approx([0.03])
    alike = prefill_times(one_type(law), frame.drop("last_tokens", "prompts"))
    assert alike.predicted.tolist() == pytest.approx([law.prefill_s(2148 / 3, 0.0, 1.0)])


def test_unusable_windows_are_left_out() -> None:
    frame = day(LAWS, 1).decode_steps.head(4)
    spoilt = frame.with_columns(
        busy_us=pl.when(pl.int_range(4) > 0).then("busy_us"), sequences=pl.when(pl.int_range(4) != 2).then("sequences")
    )
    assert len(decode_times(LAWS.decode, spoilt).seen) == 2
    assert time_readings(decode_times(LAWS.decode, frame.head(0))) == []


def test_the_tail_is_that_of_single_steps() -> None:
    frame = day(LAWS, 1).decode_steps.with_columns(n_steps=pl.int_range(pl.len()) % 2 + 1)
    tail = decode_times(LAWS.decode, frame).tail
    assert tail is not None
    assert np.isfinite(tail).sum() == (frame["n_steps"] == 1).sum()
    bare = StepLaws({"*": replace(LAWS.decode.by_type["*"], tail=StepLaw((0.0,) * 4).tail)})
    assert decode_times(bare, frame).tail is None


def test_transfers_wait_for_a_handshake_and_for_their_compute() -> None:
    law = replace(LAWS.transfer, handshake_s=0.5, last_frac=0.1, descriptor_s=1e-3, descriptors_per_block=2.0)
    frame = pl.DataFrame({
        "path": ["local"] * 3, "prefill_node": ["p0"] * 3, "decode_node": ["d0"] * 3, "started_at_us": [0, 1, 2],
        "duration_us": [1000] * 3, "bytes": [9e8] * 3, "share_bytes_per_s": [1e10] * 3, "kv_blocks": [0, 0, 5],
        "first_of_pair": [True, False, False], "overlap_us": [0, 2_000_000, None],
    })  # fmt: skip
    found = transfer_times(law, frame)
    assert found.predicted.tolist() == pytest.approx([0.002 + 0.5 + 0.1, 0.002 + 2.01, 0.002 + 0.01 + 0.1])
    law = replace(law, wire_frac=0.5)  # 0.9 GB on the wire are 1.8 GB of KV
    plain = transfer_times(law, frame.drop("kv_blocks", "first_of_pair", "overlap_us"))
    assert plain.predicted.tolist() == pytest.approx([law.seconds("local", 1.8e9, 1e10)] * 3)


def test_groups_of_transfers_are_paths_ports_and_uplinks() -> None:
    frame = day(LAWS, 1).transfers.with_columns(
        from_rack=pl.lit("r0"), to_rack=pl.when(pl.col("path") == "cross").then(pl.lit("r1")).otherwise(pl.lit("r0"))
    )
    found = time_readings(transfer_times(LAWS.transfer, frame))
    groups = {r.group for r in found if "@" not in r.group}
    assert groups == {"*", "local", "cross", "out:p0", "out:p1", "in:d0", "in:d1", "up:r0>r1"}
    bars = {r.group: r.bar for r in found if r.measure == "median_error"}
    assert (bars["local"], bars["out:p0"], bars["up:r0>r1"]) == (0.05, 0.10, 0.10)


def test_bands_have_stable_names() -> None:
    assert [band_name((2, 4), at) for at in range(3)] == ["-2", "2-4", "4-"]
    first, second = (
        {r.group for r in time_readings(decode_times(LAWS.decode, day(LAWS, k).decode_steps))} for k in (1, 2)
    )
    assert first == second
    assert "*@16-32" in first


def test_losses_are_symmetric_in_the_logarithm() -> None:
    times = decode_times(LAWS.decode, day(LAWS, 1).decode_steps)
    twice, half = replace(times, predicted=2 * times.seen), replace(times, predicted=times.seen / 2)
    np.testing.assert_allclose(error_rows(twice), error_rows(half))
