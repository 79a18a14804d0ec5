"""Requests of three classes and some apps whose lengths are known in law; and a small law by hand."""

from __future__ import annotations

import numpy as np
import polars as pl

from models.portable.length import INPUTS, LengthLaw
from models.portable.trees import Trees

CLASSES = {"chat": (40.0, 0.35, 0.6), "batch": (400.0, 0.05, 0.9), "long": (5.0, 0.5, 0.4)}
"""Class -> tokens at a prompt of one token, power of the prompt, spread of logs."""


def requests(rng: np.random.Generator, count: int, *, shares: tuple[float, ...] = (0.6, 0.3, 0.1)) -> pl.DataFrame:
    """Log-normal outputs whose median grows with the prompt, differently in each class; an answer takes 50 rows."""
    name = rng.choice(list(CLASSES), count, p=shares)
    scale, slope, sigma = (np.array([CLASSES[n][at] for n in name]) for at in range(3))
    prompt = np.exp(rng.uniform(np.log(50), np.log(30_000), count)).astype(int)
    output = np.maximum(1, np.rint(scale * prompt**slope * np.exp(rng.normal(0, sigma)))).astype(int)
    return pl.DataFrame(
        {
            "arrived_at_us": np.arange(count) * 1000,
            "ended_at_us": np.arange(count) * 1000 + 50_500,
            "slo_class": name,
            "prompt_tokens": prompt,
            "output_tokens": output,
            "max_output_tokens": np.full(count, 10**7),
            "finish_reason": ["stop"] * count,
        }
    )


def everything(rng: np.random.Generator, count: int) -> pl.DataFrame:
    """Requests with every column that a law reads, some values unknown."""

    def some(values: np.ndarray) -> list[float | None]:  # type: ignore[type-arg]
        return [value if known else None for value, known in zip(values.tolist(), rng.random(count) < 0.8, strict=True)]

    def name(*names: str) -> list[str | None]:
        return [None if at == len(names) else names[at] for at in rng.integers(0, len(names) + 1, count).tolist()]

    table = requests(rng, count)
    app = name("a", "b", "rare")
    tenant = name("t1", "t2")
    factor = np.array([{"a": 1.0, "b": 2.0}.get(at or "", 1.4) for at in app])
    factor *= np.array([{"t1": 1.5}.get(at or "", 1.0) for at in tenant])
    return table.with_columns(
        slo_class=pl.when(pl.int_range(pl.len()) % 17 != 0).then("slo_class"),
        app=pl.Series(app, dtype=pl.String),
        tenant=pl.Series(tenant, dtype=pl.String),
        model=pl.Series(name("m1", "m2"), dtype=pl.String),
        max_output_tokens=pl.Series(some(rng.integers(50, 20_000, count)), dtype=pl.Int64),
        cached_frac=pl.Series(some(rng.random(count)), dtype=pl.Float64),
        session_turn=pl.Series(some(rng.integers(0, 9, count)), dtype=pl.Int64),
        previous_output=pl.Series(some(rng.integers(1, 900, count)), dtype=pl.Float64),
        session_mean_output=pl.Series(some(rng.integers(1, 900, count)), dtype=pl.Float64),
        hour=rng.random(count) * 24,
        recent_output=pl.Series(some(rng.integers(20, 400, count)), dtype=pl.Float64),
        output_tokens=(pl.col("output_tokens") * factor).round().cast(pl.Int64),
    )


def small_law(
    *, levels: tuple[float, ...] = (0.5, 0.9), pace: float = 0.02, limit_tokens: float | None = None
) -> LengthLaw:
    """Two rows: prompts under e⁶ - 1 = 402 tokens, and others; groups `*`, chat, chat/a and its longer prompts."""
    groups = {"*": 4.0, "chat": 5.0, "chat/a": 5.5, "chat/a|1": 5.5}
    ones = (1.0,) * len(levels)
    return LengthLaw(
        levels=levels,
        group_level=groups,
        table=Trees((0,), (INPUTS.index("log_prompt"), -1, -1), (6.0, 0.0, 0.0), (1, 0, 0), (2, 0, 0), (0.0, 0.0, 1.0)),
        rows=(tuple(100.0 * (k + 1) for k in range(len(levels))), tuple(300.0 * (k + 1) for k in range(len(levels)))),
        offset=dict.fromkeys(groups, ones),
        pace=dict.fromkeys(groups, (pace,) * len(levels)),
        limit_tokens=limit_tokens,
        prompt_edges=(1000.0,),
    )
