"""A table of transfers as arrays, in an order that does not depend on the order of its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from features.errors import ModelError
from features.link_shares import NONE, Flows
from features.transfers import FLOW_COLUMNS, RESOURCES, flows
from models.columns import LARGEST, names, numeric, require
from models.metrics import BoolArray, FloatArray, IntArray
from models.portable.transfer import PATHS, egress, ingress, uplink

COLUMNS = ("path", "bytes", "share_bytes_per_s", "duration_us")
"""Without them there is no fit; the other columns of `features.transfers.transfers` make it better."""
_SORTED_BY = ("started_at_us", "request_id", "path", "duration_us", "bytes", "share_bytes_per_s", "descriptors")


@dataclass(frozen=True, slots=True)
class TransferRows:
    """n transfers in the order of their starts, each array of shape (n,); NaN = unknown.

    `kind`: place in PATHS. `wire_bytes`: what was sent. `share`: bytes/s that ports of nominal speed left. `first`: of
    its pair. `usable`: has bytes, share and duration. `flows`: None = the table does not tell its ports;
    `ports[k]`: the port or uplink that `flows` calls k, by its name in a law.
    """

    kind: IntArray
    wire_bytes: FloatArray
    duration_s: FloatArray
    share: FloatArray
    descriptors: FloatArray
    kv_bytes: FloatArray
    kv_blocks: FloatArray
    compute_s: FloatArray
    overlap_s: FloatArray
    first: BoolArray
    pair: IntArray
    usable: BoolArray
    flows: Flows | None
    ports: tuple[str, ...]


def read(table: pl.DataFrame) -> TransferRows:
    """The table's arrays. ModelError if a column of COLUMNS is missing, or any column is damaged."""
    require(table, COLUMNS, table="transfers")
    unknown = sorted(set(names(table, "path", table="transfers")) - set(PATHS))
    if unknown:
        raise ModelError(f"`path` must be one of {PATHS}", value=unknown, place="transfers.path")
    table = table.sort([name for name in _SORTED_BY if name in table.columns])
    size, share, duration_us = (numeric(table, name, table="transfers", least=0.0) for name in COLUMNS[1:])

    def optional(name: str, least: float = 0.0) -> FloatArray:
        if name not in table.columns:
            return np.full(table.height, np.nan)
        return numeric(table, name, table="transfers", least=least)

    timed = all(name in table.columns for name in FLOW_COLUMNS) and bool((duration_us > 0).all())
    if timed:
        _check_flows(table)
    first = np.zeros(table.height, np.bool_)
    if "first_of_pair" in table.columns:
        first = table["first_of_pair"].fill_null(value=False).to_numpy().astype(np.bool_)
    found = flows(table) if timed else None
    return TransferRows(
        kind=(table["path"] == PATHS[1]).to_numpy().astype(np.int64),
        wire_bytes=size,
        duration_s=duration_us * 1e-6,
        share=share,
        descriptors=_filled(optional("descriptors"), size),
        kv_bytes=optional("kv_bytes"),
        kv_blocks=optional("kv_blocks"),
        compute_s=optional("compute_us", -np.inf) * 1e-6,
        overlap_s=np.nan_to_num(optional("overlap_us") * 1e-6),
        first=first,
        pair=np.full(table.height, -1, np.int64) if found is None else _pairs(found),
        usable=(size > 0) & (share > 0) & (duration_us > 0),
        flows=found,
        ports=() if found is None else _ports(table, found),
    )


def _check_flows(table: pl.DataFrame) -> None:
    """ModelError unless every transfer has a start and ports that send; null = no limit."""
    if np.isnan(numeric(table, "started_at_us", table="transfers", least=-LARGEST)).any():
        raise ModelError("a column must have no nulls", place="transfers.started_at_us")
    for name in (f"{resource}_bytes_per_s" for resource in RESOURCES):
        if (numeric(table, name, table="transfers", least=0.0) == 0.0).any():
            raise ModelError(f"`{name} > 0` must hold", value=0.0, place=f"transfers.{name}")


def _filled(descriptors: FloatArray, size: FloatArray) -> FloatArray:
    """Descriptors, where unknown as many as the others have by bytes; NaN if none are known."""
    known = np.isfinite(descriptors) & (size > 0)
    if not known.any():
        return descriptors
    return np.where(known, descriptors, size * np.sum(descriptors[known]) / np.sum(size[known]))


def _pairs(found: Flows) -> IntArray:
    """Every flow's pair of nodes as a number."""
    return found.used[:, 0] * (int(found.used.max(initial=0)) + 1) + found.used[:, 1]


def _ports(table: pl.DataFrame, found: Flows) -> tuple[str, ...]:
    """Names of the resources, in the order of their numbers."""
    named: dict[int, str] = {}
    for k, columns in enumerate((("prefill_node",), ("decode_node",), ("from_rack", "to_rack"))):
        at, one = np.unique(found.used[:, k], return_index=True)
        for number, row in zip(at.tolist(), one.tolist(), strict=True):
            if number != NONE:
                values = [table[name][row] for name in columns]
                named[number] = (egress, ingress)[k](values[0]) if k < 2 else uplink(values[0], values[1])
    return tuple(named[number] for number in sorted(named))
