"""The estimators read what `features` writes: from log rows to a law, with the column names that both sides use."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from features.tables import decode_steps, prefill_steps
from features.transfers import transfers
from models.portable.steps import StepLaw, one_type
from models.steps.fit import fit_decode, fit_prefill
from models.transfer.fit import fit_transfer

CHUNK = 4096
PREFILL = one_type(StepLaw((0.016, 1.5e-5, 4e-10, 6e-10, 0.0)), {"p1/dp0": 1.3})
DECODE = one_type(StepLaw((0.006, 1e-4, 7e-8, 0.0)), {"d1/dp0": 1.3})
LINK_BYTES_PER_S = 12.5e9
KV_BYTES = 327_680


def log(rng: np.random.Generator, count: int) -> pl.DataFrame:
    """Requests one after the other on each P, so that the log gives away every step."""
    rows = []
    free_us = [0, 0, 0]
    for i in range(count):
        p, d = int(rng.integers(3)), int(rng.integers(2))
        prompt, cached = int(rng.integers(64, 12_000)), int(rng.integers(0, 2)) * 32
        seconds, at = 0.0, cached
        while at < prompt:
            chunk = min(CHUNK, prompt - at)
            seconds += PREFILL.prefill_s(f"p{p}/dp0", chunk, chunk * at)
            at += chunk
        start = free_us[p] + 1000
        end = start + round(seconds * 1e6)
        free_us[p] = end
        cross = p == 2
        size = prompt * KV_BYTES
        duration_us = round((0.003 + size / (LINK_BYTES_PER_S * (0.8 if cross else 0.9))) * 1e6)
        # Far apart: every transfer has its ports for itself.
        sent = i * 10_000_000
        rows.append((f"r{i}", start, end, f"p{p}/dp0", f"d{d}/dp0", prompt, cached, sent, sent + duration_us, size))
    names = ["request_id", "prefill_started_at_us", "prefill_finished_at_us", "prefill_node", "decode_node"]
    names += ["prompt_tokens", "prefill_cached_tokens", "transfer_started_at_us", "transfer_finished_at_us"]
    frame = pl.DataFrame(rows, [*names, "transferred_bytes"], orient="row")
    return frame.with_columns(
        arrived_at_us=pl.col("prefill_started_at_us"),
        slo_class=pl.lit("chat"),
        finish_reason=pl.lit("stop"),
        output_tokens=pl.Series(rng.integers(1, 500, count)),
        max_output_tokens=pl.lit(None, pl.Int64),
        block_hashes=pl.lit(None, pl.List(pl.UInt64)),
        transfer_descriptors=pl.lit(None, pl.Int64),
        app=pl.lit(None, pl.String),
        tenant=pl.lit(None, pl.String),
        session_id=pl.lit(None, pl.String),
        decode_resident_tokens=pl.lit(None, pl.Int64),
    )


def loads(rng: np.random.Generator, polls: int) -> pl.DataFrame:
    """Two Ds polled once a second, with a batch that changes at the polls only."""
    rows = []
    for node in ("d0/dp0", "d1/dp0"):
        moments = np.zeros(6)
        for second in range(polls):
            n, tokens = int(rng.integers(1, 60)), int(rng.integers(4_000, 9_000))
            step_us = DECODE.decode_s(node, n, n * tokens) * 1e6
            steps = max(1, int(1e6 // step_us))
            # A poll before and after the window: the batch stands still between them.
            for part in (0, steps):
                moments = moments + part * np.array([1, n, step_us, n * n, n * step_us, n])
                at_us = second * 2_000_000 + (1_000_000 if part else 0)
                rows.append((at_us, node, moments.tolist(), n * tokens, n))
    schema = {"observed_at_us": pl.Int64, "node": pl.String, "decode_moments": pl.List(pl.Float64)}
    return pl.DataFrame(rows, schema | {"running_tokens": pl.Int64, "running_requests": pl.Int64}, orient="row")


def test_prefill_from_request_times() -> None:
    law = fit_prefill(prefill_steps(log(np.random.default_rng(1), 400), CHUNK), residual=False).laws
    assert law.node_factor["p1/dp0"] == pytest.approx(1.3, rel=0.01)
    for tokens, context in [(200, 0), (4096, 0), (4096, 4096)]:
        true = PREFILL.prefill_s("p0/dp0", tokens, tokens * context)
        assert law.prefill_s("p0/dp0", tokens, tokens * context) == pytest.approx(true, rel=0.01)


def test_decode_from_polls() -> None:
    law = fit_decode(decode_steps(loads(np.random.default_rng(2), 300)), residual=False).laws
    ratio = law.node_factor["d1/dp0"] / law.node_factor["d0/dp0"]
    assert ratio == pytest.approx(1.3, rel=0.02)
    for n, tokens in [(5, 30_000), (40, 250_000)]:
        true = DECODE.decode_s("d0/dp0", n, tokens)
        assert law.decode_s("d0/dp0", n, tokens) == pytest.approx(true, rel=0.02)


def test_transfers_from_request_times() -> None:
    requests = log(np.random.default_rng(3), 300)
    racks = {"p0/dp0": "a", "p1/dp0": "a", "p2/dp0": "b", "d0/dp0": "a", "d1/dp0": "a"}
    facts = {node: (rack, LINK_BYTES_PER_S) for node, rack in racks.items()}
    law = fit_transfer(transfers(requests, facts, {})).law
    assert law.efficiency == pytest.approx({"local": 0.9, "cross": 0.8}, rel=1e-3)
    assert law.alpha_s == pytest.approx({"local": 0.003, "cross": 0.003}, rel=1e-2)
