"""Law of a transfer from the log: constants of a path, speed of links, slow ports, overlap, first transfers of a pair.

Everything is one robust fit of log(observed / predicted). `share` is what ports and uplinks left to a transfer while
its bytes left (processor sharing), so that the fit sees the path and not its neighbours; with a port's factor the
shares move, so that fit and shares take turns until both stand still. Ports are normal until many rows deny it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from features.errors import ModelError
from models.metrics import ApeSummary, BoolArray, FloatArray, ape_summary, robust_sigma
from models.portable.transfer import PATHS, TransferLaw
from models.transfer import extras
from models.transfer.descent import Found, descend
from models.transfer.model import ALPHA, DESCRIPTOR, EFFICIENCY, FACTORS, LAST, Sample, fixed_s, newest, wire_s
from models.transfer.rows import read

MIN_ROWS = 20


@dataclass(frozen=True, slots=True)
class TransferFit:
    """A law with how it was found. `error`: by kind of path, against the observed durations of the rows that were kept.

    `rows` = transfers used, the newest of the table (`path_rows`: by kind), of which `trimmed` were set aside as out of
    line; `unusable` lacked bytes, share or time; `hidden` ended with their prompt's compute, which tells of no link;
    `first` of their pair were set apart.
    `borrowed`: kinds with too few rows of their own, which took the other's numbers. `clamped`: kinds and ports that
    seemed faster than their line. `port_rows`: rows that each named port held up. `notes`: what the rows cannot tell.
    """

    law: TransferLaw
    rows: int
    trimmed: int
    unusable: int
    path_rows: Mapping[str, int]
    borrowed: tuple[str, ...]
    clamped: tuple[str, ...]
    error: Mapping[str, ApeSummary]
    hidden: int = 0
    first: int = 0
    port_rows: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()


def fit_transfer(table: pl.DataFrame, *, min_rows: int = MIN_ROWS) -> TransferFit:
    """Fits `TransferLaw` from one row a finished transfer, as `features.transfers.transfers` gives them.

    Columns that must be there: `path` ('local' inside a rack, 'cross' between racks), `bytes` on the wire,
    `share_bytes_per_s`, `duration_us` (start until the KV is visible). A table without its nodes and ports gives no
    `port_factor`. ModelError if a column is missing or damaged, or if no kind of path has `min_rows` usable rows
    that are not the first of their pair.
    """
    rows = read(table)
    of = newest(rows)
    count = {kind: int(np.count_nonzero(of.rows.kind[of.at] == k)) for k, kind in enumerate(PATHS)}
    # The first transfer of a pair may have met a new connection: it tells nothing of its path.
    telling = [np.count_nonzero((rows.kind[of.at] == k) & ~rows.first[of.at]) for k in range(len(PATHS))]
    own = [k for k, some in enumerate(telling) if some >= min_rows]
    if not own:
        raise ModelError(
            f"`transfers` must have at least {min_rows} usable rows of one kind of path after the first of their pair",
            value={kind: int(some) for kind, some in zip(PATHS, telling, strict=True)},
            place="transfers",
            hint="needs request logs with transfer_started_at_us, transfer_finished_at_us and transferred_bytes",
        )
    fitted = np.isin(rows.kind[of.at], own) & ~rows.first[of.at]
    notes: list[str] = []
    found = descend(of, fitted)
    theta = found.theta
    if not found.seen.any():
        notes.append("every transfer ends with its prompt's compute: the speed of links stands at their line's")
    if not found.descriptors_told:
        notes.append("descriptors cannot be told from bytes: their time is part of the rest")
    wire = wire_s(of, theta, found.shared)
    fixed = fixed_s(rows, theta)[of.at]
    overlap = rows.overlap_s[of.at]
    predicted = fixed + np.maximum(wire, overlap + theta[LAST] * wire)
    ratio = rows.duration_s[of.at] / predicted
    handshake = extras.handshake_s(rows, theta)
    if handshake is None:
        notes.append("too few first transfers of a pair: a handshake stands at 0")
    wire_frac = extras.wire_frac(rows.wire_bytes[of.at], rows.kv_bytes[of.at])
    law = TransferLaw(
        alpha_s={kind: float(theta[ALPHA + _donor(k, own)]) for k, kind in enumerate(PATHS)},
        efficiency={kind: float(np.exp(theta[EFFICIENCY + _donor(k, own)])) for k, kind in enumerate(PATHS)},
        descriptor_s=float(theta[DESCRIPTOR]),
        descriptors_per_block=extras.per_block(rows.descriptors[of.at], rows.kv_blocks[of.at]),
        wire_frac=wire_frac,
        port_factor={name: float(np.exp(g)) for name, g in zip(rows.ports, theta[FACTORS:], strict=True) if g != 0.0},
        overlap_frac=extras.overlap_frac(rows.overlap_s[of.at], rows.compute_s[of.at]),
        handshake_s=handshake or 0.0,
        sigma=robust_sigma(np.log(ratio[found.kept & found.seen])),
        tail=extras.tail(ratio[found.seen], rows.wire_bytes[of.at][found.seen] / wire_frac),
        last_frac=float(theta[LAST]),
    )
    return TransferFit(
        law=law,
        rows=sum(count[PATHS[k]] for k in own),
        trimmed=int(np.count_nonzero((found.seen | found.hidden) & ~found.kept)),
        unusable=int(np.count_nonzero(~rows.usable)),
        path_rows=count,
        borrowed=tuple(kind for k, kind in enumerate(PATHS) if k not in own),
        clamped=_clamped(found, own, rows.ports),
        error=_errors(of, found, own, predicted),
        hidden=int(np.count_nonzero(found.hidden)),
        first=int(np.count_nonzero(rows.first[of.at])),
        port_rows={name: float(found.port_rows[rows.ports.index(name)]) for name in law.port_factor},
        notes=tuple(notes),
    )


def _donor(kind: int, own: list[int]) -> int:
    """The kind whose numbers a kind takes."""
    return kind if kind in own else own[0]


def _clamped(found: Found, own: list[int], ports: tuple[str, ...]) -> tuple[str, ...]:
    kinds = tuple(kind for k, kind in enumerate(PATHS) if found.at_line[EFFICIENCY + _donor(k, own)])
    return kinds + tuple(name for k, name in enumerate(ports) if found.at_line[FACTORS + k])


def _errors(of: Sample, found: Found, own: list[int], predicted: FloatArray) -> dict[str, ApeSummary]:
    errors = {}
    for k in own:
        of_kind: BoolArray = found.kept & (of.rows.kind[of.at] == k)
        if of_kind.any():
            errors[PATHS[k]] = ape_summary(predicted[of_kind], of.rows.duration_s[of.at][of_kind])
    return errors
