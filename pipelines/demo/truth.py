"""Fitted estimators against the emulated pool's noise-free truth, cell by cell, on traffic that the fit never saw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from models.portable import Estimators, TransferLaw
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
    errors = []
    for p, node in enumerate(served.cluster.prefill):
        for cell in _full(served.recorded.prefill_cells[p]):
            tokens, context, true_s = cell[1] / cell[0], cell[2] / cell[0], cell[3] / cell[0]
            errors.append(fitted.prefill.prefill_s(node.name, tokens, context) / true_s - 1)
    return _recovery(errors)


def decode_recovery(served: Served, fitted: Estimators) -> Recovery:
    """Decode steps: cells of node × sequences × tokens."""
    errors = []
    for d, node in enumerate(served.cluster.decode):
        for cell in _full(served.recorded.decode_cells[d]):
            sequences, tokens, true_s = cell[1] / cell[0], cell[2] / cell[0], cell[3] / cell[0]
            errors.append(fitted.decode.decode_s(node.name, sequences, tokens) / true_s - 1)
    return _recovery(errors)


def transfer_recovery(served: Served, fitted: Estimators, transfers: pl.DataFrame) -> Recovery:
    """Transfers of the table `features.transfers.transfers`: seconds at their own share of the ports."""

    def seconds(law: TransferLaw) -> Float64:
        alpha = transfers["path"].replace_strict(dict(law.alpha_s), return_dtype=pl.Float64).to_numpy()
        efficiency = transfers["path"].replace_strict(dict(law.efficiency), return_dtype=pl.Float64).to_numpy()
        share = transfers["share_bytes_per_s"].to_numpy()
        return np.asarray(alpha + transfers["bytes"].to_numpy() / (share * efficiency), np.float64)

    return _recovery((seconds(fitted.transfer) / seconds(served.world.laws.transfer) - 1).tolist())


def _full(cells: Float64) -> Float64:
    rows = cells.reshape(-1, cells.shape[-1])
    return rows[rows[:, 0] >= MIN_STEPS]


def _recovery(errors: list[float]) -> Recovery:
    found = np.array(errors)
    return Recovery(
        cells=len(found),
        median_abs=float(np.median(np.abs(found))),
        p90_abs=float(np.quantile(np.abs(found), 0.9)),
        median_signed=float(np.median(found)),
    )
