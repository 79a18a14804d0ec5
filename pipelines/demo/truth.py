"""Fitted estimators against the emulated pool's noise-free truth, cell by cell, on traffic that the fit never saw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from models.portable.estimators import Estimators
from models.portable.transfer import TransferLaw
from pipelines.demo.serve import Served

Float64 = npt.NDArray[np.float64]
MIN_STEPS = 100


@dataclass(frozen=True, slots=True)
class Recovery:
    """Relative errors predicted / true - 1 over cells of at least `MIN_STEPS` steps (transfers: over transfers)."""

    cells: int
    median_abs: float
    p90_abs: float
    median_signed: float


def prefill_recovery(served: Served, fitted: Estimators) -> Recovery:
    """Prefill steps: cells of node × prompts × tokens."""
    return _recovery([error for errors in prefill_errors(served, fitted).values() for error in errors])


def decode_recovery(served: Served, fitted: Estimators) -> Recovery:
    """Decode steps: cells of node × sequences × tokens."""
    return _recovery([error for errors in decode_errors(served, fitted).values() for error in errors])


def prefill_errors(served: Served, fitted: Estimators, *, min_steps: int = MIN_STEPS) -> dict[str, list[float]]:
    """P node -> predicted / true - 1 of its cells of prompts × tokens with at least `min_steps` steps."""
    errors: dict[str, list[float]] = {}
    for p, node in enumerate(served.cluster.prefill):
        errors[node.name] = []
        by_prompts = served.recorded.prefill_cells[p]
        for prompts, cell in ((k, cell) for k, cells in enumerate(by_prompts) for cell in _full(cells, min_steps)):
            tokens, context, true_s = cell[1] / cell[0], cell[2] / cell[0], cell[3] / cell[0]
            predicted_s = fitted.prefill.prefill_s(node.name, tokens, context, float(prompts + 1))
            errors[node.name].append(predicted_s / true_s - 1)
    return errors


def decode_errors(served: Served, fitted: Estimators, *, min_steps: int = MIN_STEPS) -> dict[str, list[float]]:
    """D node -> predicted / true - 1 of its cells of sequences × tokens with at least `min_steps` steps."""
    errors: dict[str, list[float]] = {}
    for d, node in enumerate(served.cluster.decode):
        errors[node.name] = []
        for cell in _full(served.recorded.decode_cells[d], min_steps):
            sequences, tokens, true_s = cell[1] / cell[0], cell[2] / cell[0], cell[3] / cell[0]
            errors[node.name].append(fitted.decode.decode_s(node.name, sequences, tokens) / true_s - 1)
    return errors


def transfer_recovery(served: Served, fitted: Estimators, transfers: pl.DataFrame) -> Recovery:
    """Transfers of the table `features.transfers.transfers`: seconds at their own share of the ports."""

    bytes_per_block = served.cluster.block_tokens * served.cluster.kv_bytes_per_token

    def seconds(law: TransferLaw) -> Float64:
        columns = transfers.select("path", "bytes", "share_bytes_per_s")
        blocks = (transfers["bytes"] / bytes_per_block).ceil()
        rows = zip(columns.iter_rows(), blocks, strict=True)
        return np.array([law.seconds(path, sent / law.wire_frac, share, n) for (path, sent, share), n in rows])

    return _recovery((seconds(fitted.transfer) / seconds(served.world.laws.transfer) - 1).tolist())


def _full(cells: Float64, min_steps: int) -> Float64:
    rows = cells.reshape(-1, cells.shape[-1])
    return rows[rows[:, 0] >= min_steps]


def _recovery(errors: list[float]) -> Recovery:
    found = np.array(errors)
    return Recovery(
        cells=len(found),
        median_abs=float(np.median(np.abs(found))),
        p90_abs=float(np.quantile(np.abs(found), 0.9)),
        median_signed=float(np.median(found)),
    )
