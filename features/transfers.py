"""Transfers as a training table: their bytes, their time, and the bandwidth that was left to each of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from features.link_shares import NONE, Flows, Int64, shares

RESOURCES = ("out", "in", "up")
"""What a transfer takes a part of: P's egress, D's ingress, the racks' uplink."""
FLOW_COLUMNS = (
    "prefill_node", "decode_node", "from_rack", "to_rack", "started_at_us", "duration_us",
    "out_bytes_per_s", "in_bytes_per_s", "up_bytes_per_s",
)  # fmt: skip
"""What `flows` needs of a table of transfers."""


def transfers(
    requests: pl.DataFrame,
    facts: Mapping[str, tuple[str, float]],
    uplinks: Mapping[tuple[str, str], float],
    *,
    kv_bytes_per_token: float | None = None,
    block_tokens: int | None = None,
    contention: str = "share",
) -> pl.DataFrame:
    """One row a transfer between two nodes that `facts` knows, sorted by start and request id.

    facts: node -> (rack, port bytes/s); uplinks: (rack of P, rack of D) -> bytes/s, shared by all transfers of that
    direction; racks without one are joined without a limit. `kv_bytes_per_token`, `block_tokens`: of the pool.
    `contention` "none": each transfer has what it would have alone; the speeds of its resources are left out.

    Columns: request_id, prefill_node, decode_node, path (local | cross), started_at_us, duration_us, bytes (on the
    wire; null = not logged, the row is a flow beside others only), descriptors, share_bytes_per_s = mean over the
    transfer's interval of the minimum over its resources (egress of P, uplink of a cross path, ingress of D) of
    capacity / transfers logged on it, alone_bytes_per_s = the same minimum without others, shared_frac = part of the
    interval in which another transfer was on one of its resources;
    from_rack, to_rack, out_bytes_per_s, in_bytes_per_s, up_bytes_per_s (null = no limit): its resources;
    first_of_pair: no earlier transfer between the two nodes is in the table; kv_bytes, kv_blocks: KV of the prompt that
    D did not hold, null = unknown; compute_us: how long P computed the prompt, overlap_us: part of the interval before
    that ended, null = unknown.
    """
    found = _flows(requests, facts)
    nodes, racks, ports = list(facts), [rack for rack, _ in facts.values()], [port for _, port in facts.values()]
    sides = [
        pl.DataFrame(
            {node: nodes, rack: racks, port: ports}, schema={node: pl.String, rack: pl.String, port: pl.Float64}
        )
        for node, rack, port in (
            ("prefill_node", "from_rack", "out_bytes_per_s"),
            ("decode_node", "to_rack", "in_bytes_per_s"),
        )
    ]
    up = pl.DataFrame(
        [(a, b, limit) for (a, b), limit in uplinks.items() if a != b],
        schema={"from_rack": pl.String, "to_rack": pl.String, "up_bytes_per_s": pl.Float64},
        orient="row",
    )
    resident = pl.col("decode_resident_tokens").fill_null(0)
    lacking = pl.when(pl.col("prompt_tokens") > resident).then(pl.col("prompt_tokens") - resident)
    until = pl.min_horizontal("prefill_finished_at_us", "transfer_finished_at_us")
    table = (
        found.join(sides[0], "prefill_node")
        .join(sides[1], "decode_node")
        .join(up, ["from_rack", "to_rack"], how="left")
        .sort("transfer_started_at_us", "request_id")
        .select(
            "request_id",
            "prefill_node",
            "decode_node",
            path=pl.when(pl.col("from_rack") == pl.col("to_rack")).then(pl.lit("local")).otherwise(pl.lit("cross")),
            started_at_us=pl.col("transfer_started_at_us"),
            duration_us=pl.col("transfer_finished_at_us") - pl.col("transfer_started_at_us"),
            bytes=pl.when(pl.col("transferred_bytes") > 0).then(pl.col("transferred_bytes")),
            descriptors=pl.col("transfer_descriptors"),
            from_rack=pl.col("from_rack"),
            to_rack=pl.col("to_rack"),
            out_bytes_per_s=pl.col("out_bytes_per_s"),
            in_bytes_per_s=pl.col("in_bytes_per_s"),
            up_bytes_per_s=pl.col("up_bytes_per_s"),
            first_of_pair=pl.int_range(pl.len()).over("prefill_node", "decode_node") == 0,
            kv_bytes=lacking * pl.lit(kv_bytes_per_token, dtype=pl.Float64),
            kv_blocks=(lacking / pl.lit(block_tokens, dtype=pl.Float64)).ceil(),
            compute_us=pl.col("prefill_finished_at_us") - pl.col("prefill_started_at_us"),
            overlap_us=(until - pl.col("transfer_started_at_us")).clip(0),
        )
    )
    all_of_them = shares(flows(table))
    found = table.with_columns(
        share_bytes_per_s=pl.Series(all_of_them.share, dtype=pl.Float64),
        alone_bytes_per_s=pl.Series(all_of_them.alone, dtype=pl.Float64),
        shared_frac=pl.Series(all_of_them.shared_frac, dtype=pl.Float64),
    )
    return found if contention == "share" else _uncontended(found)


def flows(table: pl.DataFrame) -> Flows:
    """The transfers of a table with FLOW_COLUMNS, sorted by start, as flows over numbered resources."""
    out, into = table["prefill_node"], table["decode_node"]
    up = table.select(
        pl.when(pl.col("up_bytes_per_s").is_not_null()).then(pl.concat_str("from_rack", pl.lit(">"), "to_rack"))
    ).to_series()
    numbered = [_numbered(column) for column in (out, into, up)]
    counts = [int(column.max()) + 1 if len(column) else 0 for column in numbered]
    before = [0, counts[0], counts[0] + counts[1]]
    used = np.stack([np.where(c >= 0, c + b, NONE) for c, b in zip(numbered, before, strict=True)], axis=1)
    start = table["started_at_us"].to_numpy().astype(np.int64)
    capacity = [table[f"{name}_bytes_per_s"].fill_null(float("inf")).to_numpy() for name in RESOURCES]
    end = start + np.maximum(1, np.rint(table["duration_us"].to_numpy())).astype(np.int64)
    return Flows(start, end, used, np.stack(capacity, axis=1))


def _flows(requests: pl.DataFrame, facts: Mapping[str, tuple[str, float]]) -> pl.DataFrame:
    """Requests that were sent from one known node to another."""
    return requests.filter(
        pl.all_horizontal(
            pl.col("prefill_node", "decode_node", "transfer_started_at_us", "transfer_finished_at_us").is_not_null()
        ),
        pl.col("prefill_node").is_in(list(facts)),
        pl.col("decode_node").is_in(list(facts)),
        pl.col("prefill_node") != pl.col("decode_node"),
        pl.col("transfer_finished_at_us") > pl.col("transfer_started_at_us"),
    )


def _numbered(names: pl.Series) -> Int64:
    """Names as numbers in their alphabetical order, null = NONE."""
    known = names.drop_nulls().unique().sort()
    numbers = names.replace_strict(known, pl.int_range(len(known), eager=True), default=NONE, return_dtype=pl.Int64)
    return numbers.fill_null(NONE).to_numpy()


def _uncontended(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(share_bytes_per_s=pl.col("alone_bytes_per_s"), shared_frac=pl.lit(0.0)).drop(
        f"{name}_bytes_per_s" for name in RESOURCES
    )
