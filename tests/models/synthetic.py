"""Synthetic truths that lie outside the fitted families: slow nodes, bucket kinks, log-normal noise."""

from __future__ import annotations

import numpy as np
import polars as pl

from models.portable.steps import StepLaw, StepLaws, one_type
from models.portable.trees import table_of

NODES = tuple(f"n{i}/dp0" for i in range(8))
SIGMA = 0.08
# Factors multiply up to kinks of 6 % between neighbours, in both directions.
KINKS = (0.97, 1.03, 0.97, 1.03, 0.97)

PREFILL_TRUTH = one_type(
    StepLaw((0.0165, 1.5e-5, 4.2e-10, 6.0e-10, 0.0), trees=table_of(0, (512, 1024, 2048, 4096), KINKS), sigma=SIGMA),
    {NODES[2]: 1.35, NODES[5]: 1.25},
)
DECODE_TRUTH = one_type(
    StepLaw(
        (0.0057, 1.2e-5, 7.0e-8, -6.0e-14), trees=table_of(0, (8, 16, 32, 64), KINKS), token_cap=500_000.0, sigma=SIGMA
    ),
    {NODES[1]: 1.3, NODES[6]: 1.25},
)


def prefill_windows(rng: np.random.Generator, count: int, *, truth: StepLaws = PREFILL_TRUTH) -> pl.DataFrame:
    """Windows of 1 to 6 prefill steps of one size; the busier nodes are the slow ones."""
    rows = []
    for _ in range(count):
        node = NODES[int(rng.integers(8))]
        steps = int(rng.integers(1, 7))
        tokens = int(np.exp(rng.uniform(np.log(64), np.log(8192))) * min(1.0, truth.node_factor.get(node, 0.8)))
        context = int(rng.choice([0, 0, 8192, 16384])) if tokens > 2000 else 0
        noise = np.exp(rng.normal(0.0, SIGMA, steps))
        busy_s = truth.prefill_s(node, tokens, tokens * context) * float(noise.sum())
        rows.append((node, steps, round(busy_s * 1e6), tokens * steps, tokens**2 * steps, tokens * context * steps))
    return pl.DataFrame(rows, ["node", "n_steps", "busy_us", "new_tokens", "sum_t2", "sum_chunk_context"], orient="row")


def decode_windows(rng: np.random.Generator, count: int, *, truth: StepLaws = DECODE_TRUTH) -> pl.DataFrame:
    """Windows of about a second: some thirty steps while the batch drifts."""
    rows = []
    for _ in range(count):
        node = NODES[int(rng.integers(8))]
        first = np.exp(rng.uniform(np.log(2), np.log(100))) * truth.node_factor.get(node, 1.0)
        per_sequence = np.exp(rng.uniform(np.log(800), np.log(6000)))
        steps = int(rng.integers(15, 50))
        n = np.maximum(1, np.round(first + rng.normal(0, 0.3, steps).cumsum()))
        t = np.round(n * per_sequence)
        exact = np.array([truth.decode_s(node, a, b) for a, b in zip(n.tolist(), t.tolist(), strict=True)])
        busy_s = float((exact * np.exp(rng.normal(0.0, SIGMA, steps))).sum())
        rows.append((node, steps, round(busy_s * 1e6), float(n.mean()), float(t.mean())))
    return pl.DataFrame(rows, ["node", "n_steps", "busy_us", "sequences", "tokens"], orient="row")
