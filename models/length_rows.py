"""Rows of finished requests as arrays: what a router knew at arrival, and how long the answer became.

Columns: `arrived_at_us, slo_class, prompt_tokens, output_tokens`, and `finish_reason` or else `censored` (the output
was cut); optional `max_output_tokens`. The canonical table `requests` has them all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from features.errors import ModelError
from models.columns import numeric, require
from models.metrics import BoolArray, FloatArray, IntArray

COLUMNS = ("arrived_at_us", "slo_class", "prompt_tokens", "output_tokens")
UNFINISHED = ("cancelled", "rejected", "failed")


@dataclass(frozen=True, slots=True)
class LengthRows:
    """Usable requests, oldest first; shape (rows,) each.

    `slo_class`: index into `classes` (names, sorted), -1 for a request without a class. `log_output` of at least one
    token, at most `max_output_tokens`. `censored`: cut off by their limit; they count with the length they reached.
    `excluded`: requests that did not finish or whose length is unknown.
    """

    classes: tuple[str, ...]
    slo_class: IntArray
    prompt_tokens: IntArray
    log_output: FloatArray
    censored: BoolArray
    excluded: int

    def part(self, rows: slice) -> LengthRows:
        """Some of the rows, with the same classes."""
        return LengthRows(
            self.classes,
            self.slo_class[rows],
            self.prompt_tokens[rows],
            self.log_output[rows],
            self.censored[rows],
            0,
        )


def read_lengths(table: pl.DataFrame) -> LengthRows:
    """One row a request. ModelError if a column is missing or damaged, or a class is named `*`."""
    require(table, COLUMNS, table="lengths")
    if "max_output_tokens" not in table.columns:
        table = table.with_columns(max_output_tokens=pl.lit(None, pl.Int64))
    dropped, censored = _ending(table)
    known = pl.col("output_tokens").is_not_null() & pl.col("prompt_tokens").is_not_null()
    used = table.filter(known & ~dropped).select(
        "arrived_at_us",
        "prompt_tokens",
        pl.col("slo_class").cast(pl.String),
        output=pl.min_horizontal("output_tokens", "max_output_tokens"),
        censored=censored,
    )
    used = used.sort("arrived_at_us", "prompt_tokens", "output", "slo_class", "censored", nulls_last=True)
    classes = tuple(sorted(used["slo_class"].drop_nulls().unique().to_list()))
    if "*" in classes:
        raise ModelError("`*` stands for all classes and cannot name one", place="lengths.slo_class")
    code = {name: at for at, name in enumerate(classes)}
    prompt = numeric(used, "prompt_tokens", table="lengths", least=0.0)
    output = numeric(used, "output", table="lengths", least=0.0)
    return LengthRows(
        classes=classes,
        slo_class=np.array([code.get(name, -1) for name in used["slo_class"].to_list()], dtype=np.int64),
        prompt_tokens=prompt.astype(np.int64),
        log_output=np.log(np.maximum(output, 1.0)),
        censored=used["censored"].to_numpy().astype(np.bool_),
        excluded=table.height - used.height,
    )


def _ending(table: pl.DataFrame) -> tuple[pl.Expr, pl.Expr]:
    """Rows that did not finish, and rows that hit their limit.

    How long a cancelled answer would have become is anyone's guess: it is not a length. A log without finish reasons
    holds finished requests: a null reason is no reason to drop a length.
    """
    if "finish_reason" in table.columns:
        reason = pl.col("finish_reason").cast(pl.String)
        return reason.is_in(UNFINISHED).fill_null(value=False), (reason == "length").fill_null(value=False)
    if "censored" not in table.columns:
        raise ModelError(
            "`lengths` must have the column finish_reason or censored", value=table.columns, place="lengths"
        )
    cut = pl.col("censored").cast(pl.Boolean).fill_null(value=False)
    at_limit = (pl.col("output_tokens") >= pl.col("max_output_tokens")).fill_null(value=False)
    return cut & ~at_limit, cut & at_limit
