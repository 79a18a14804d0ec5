"""A transfer law on transfers that it was not fitted on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from models.metrics import ApeSummary, BoolArray, FloatArray, ape_summary
from models.portable.transfer import PATHS, TransferLaw
from models.transfer.model import LAST, Sample, fixed_s, newest, of_law, shared, tells, wire_s
from models.transfer.rows import read


@dataclass(frozen=True, slots=True)
class TransferScore:
    """One kind of path: errors of whole transfers, from start to visible, at the shares that ports left to them.

    `covered[k]`: part of the transfers within the law's tail at `levels[k]`. Hidden and first transfers count in the
    errors, the tail is of others.
    """

    path: str
    error: ApeSummary
    levels: tuple[float, ...]
    covered: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Predicted:
    """Of a sample's rows, shape (rows,): seconds from start to visible given what they overlapped, and whether the
    law's tail is of such a row.
    """

    seconds: FloatArray
    tailed: BoolArray


def predict(law: TransferLaw, of: Sample) -> Predicted:
    """What a law says of the sample's rows, at the shares that its ports left to them."""
    theta = of_law(law, of.rows)
    wire = wire_s(of, theta, shared(of, theta))
    wait = np.where(of.rows.first[of.at], law.handshake_s, 0.0)
    exposed = np.maximum(wait + wire, of.rows.overlap_s[of.at] + theta[LAST] * wire)
    return Predicted(fixed_s(of.rows, theta)[of.at] + exposed, ~of.rows.first[of.at] & tells(of, wire))


def score_transfers(law: TransferLaw, table: pl.DataFrame) -> tuple[TransferScore, ...]:
    """Scores by kind of path that occurs, in the order of PATHS; columns as of `fit_transfer`.

    ModelError if a column is missing or damaged.
    """
    rows = read(table)
    if not rows.usable.any():
        return ()
    of = newest(rows)
    found, observed = predict(law, of), rows.duration_s[of.at]
    predicted, size = found.seconds, rows.wire_bytes[of.at] / law.wire_frac
    scores = []
    for k, path in enumerate(PATHS):
        mine = rows.kind[of.at] == k
        if mine.any():
            tailed = mine & found.tailed
            covered = _covered(law, observed[tailed] / predicted[tailed], size[tailed])
            scores.append(TransferScore(path, ape_summary(predicted[mine], observed[mine]), law.tail.levels, covered))
    return tuple(scores)


def _covered(law: TransferLaw, ratio: FloatArray, size: FloatArray) -> tuple[float, ...]:
    """Part of the observed / predicted that is within the tail, by level; () without a tail or without transfers."""
    if not len(ratio):
        return ()
    factor = np.array(law.tail.factor)[np.searchsorted(np.array(law.tail.edges), size, side="right")]
    return tuple(float(np.mean(ratio <= factor[:, k])) for k in range(len(law.tail.levels)))
