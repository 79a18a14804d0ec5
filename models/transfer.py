"""Law of a transfer: seconds until KV is visible = alpha + bytes / (efficiency · share), by kind of path.

`share` is what the ports and the uplink left to this transfer, on average while it lasted (processor sharing), so that
the fit sees the path and not its neighbours. Errors are relative (least squares of seconds would fit the largest
transfers only), rows out of line are set aside, and no path is faster than its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from features.errors import ModelError
from models import robust_fit
from models.columns import names, numeric, require
from models.metrics import ApeSummary, FloatArray, ape_summary, robust_sigma
from models.portable import PATHS, TransferLaw

COLUMNS = ("path", "bytes", "share_bytes_per_s", "duration_us")
MIN_ROWS = 20


@dataclass(frozen=True, slots=True)
class TransferFit:
    """A law with how it was found. `error`: by kind of path, against the observed durations of the rows that were kept.

    `rows` = transfers used, of which `trimmed` were set aside as out of line; `unusable` lacked bytes, share or time.
    `borrowed`: kinds with too few rows of their own, which took the other's numbers.
    `clamped`: kinds that seemed faster than their line.
    """

    law: TransferLaw
    rows: int
    trimmed: int
    unusable: int
    path_rows: Mapping[str, int]
    borrowed: tuple[str, ...]
    clamped: tuple[str, ...]
    error: Mapping[str, ApeSummary]


@dataclass(frozen=True, slots=True)
class _PathFit:
    alpha_s: float
    efficiency: float
    clamped: bool
    trimmed: int
    residual: FloatArray
    error: ApeSummary


def fit_transfer(rows: pl.DataFrame) -> TransferFit:
    """Fits `TransferLaw` from one row a finished transfer.

    Columns: `path` ('local' inside a rack, 'cross' between racks), `bytes`, `share_bytes_per_s` (time-weighted mean of
    min over its ports and uplink of capacity / flows), `duration_us` (start until the KV is visible).
    ModelError if a column is missing or damaged, or if no kind of path has 20 usable rows.
    """
    require(rows, COLUMNS, table="transfers")
    size, share, duration_us = (numeric(rows, name, table="transfers", least=0.0) for name in COLUMNS[1:])
    path = np.array(names(rows, "path", table="transfers"), dtype=np.str_)
    unknown = sorted(set(path.tolist()) - set(PATHS))
    if unknown:
        raise ModelError(f"`path` must be one of {PATHS}", value=unknown, place="transfers.path")
    usable = (size > 0) & (share > 0) & (duration_us > 0)
    line_s = size / np.maximum(share, 1e-9)
    order = np.lexsort((line_s, duration_us))
    order = order[usable[order]]
    fits, count = {}, {}
    for kind in PATHS:
        of_kind = order[path[order] == kind]
        count[kind] = int(of_kind.size)
        if of_kind.size >= MIN_ROWS:
            fits[kind] = _fit_path(line_s[of_kind], duration_us[of_kind] * 1e-6)
    if not fits:
        raise ModelError(
            f"`transfers` must have at least {MIN_ROWS} usable rows of one kind of path",
            value=count,
            place="transfers",
            hint="needs request logs with transfer_started_at_us, transfer_finished_at_us and transferred_bytes",
        )
    own = {kind: fits[kind] if kind in fits else next(iter(fits.values())) for kind in PATHS}
    law = TransferLaw(
        alpha_s={kind: own[kind].alpha_s for kind in PATHS},
        efficiency={kind: own[kind].efficiency for kind in PATHS},
        sigma=robust_sigma(np.concatenate([fit.residual for fit in fits.values()])),
    )
    return TransferFit(
        law=law,
        rows=sum(count[kind] for kind in fits),
        trimmed=sum(fit.trimmed for fit in fits.values()),
        unusable=int(path.size - order.size),
        path_rows=count,
        borrowed=tuple(kind for kind in PATHS if kind not in fits),
        clamped=tuple(kind for kind in PATHS if own[kind].clamped),
        error={kind: fit.error for kind, fit in fits.items()},
    )


def _fit_path(line_s: FloatArray, duration_s: FloatArray) -> _PathFit:
    """`duration_s` = alpha + `line_s` / efficiency; both shape (rows,), `line_s` = bytes / share."""
    ones = np.ones_like(line_s)
    group = np.zeros(line_s.size, dtype=np.int64)
    found = robust_fit.fit(np.stack([ones, line_s], axis=1), duration_s, group, 1, ones, factors=False)
    alpha_s, slope = float(found.coef[0]), float(found.coef[1])
    kept = found.kept
    clamped = slope < 1.0
    if clamped:
        # Faster than the line: the rest of the law is refitted with the line's own speed.
        slope = 1.0
        weight = 1.0 / np.square(alpha_s + line_s[kept])
        alpha_s = max(0.0, float(np.sum(weight * (duration_s - line_s)[kept]) / np.sum(weight)))
    predicted = alpha_s + line_s * slope
    return _PathFit(
        alpha_s=alpha_s,
        efficiency=1.0 / slope,
        clamped=clamped,
        trimmed=int(np.count_nonzero(~kept)),
        residual=np.log(duration_s[kept] / predicted[kept]),
        error=ape_summary(predicted[kept], duration_s[kept]),
    )
