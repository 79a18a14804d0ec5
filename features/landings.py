"""When KV landed on D, where the log knows only when the transfer began and when D activated the request.

A D that runs a batch activates at the next boundary, so the KV landed within the step before it: taken as its middle,
which is right on average. A D that runs nothing activates at once.
"""

from __future__ import annotations

import numpy as np
import polars as pl

_ENDS = ("transfer_started_at_us", "decode_admitted_at_us", "decode_node")
_STEP = ("first_token_at_us", "finished_at_us")


def with_landings(requests: pl.DataFrame, kv_bytes_per_token: float) -> pl.DataFrame:
    """Requests with the end and the bytes of their transfers; as they were if the log tells the end of any.

    The step before an activation is taken to be as long as the one after it, the request's first. Bytes are those of
    the whole prompt.
    """
    open_end = pl.all_horizontal(pl.col(*_ENDS, *_STEP).is_not_null())
    if requests["transfer_finished_at_us"].null_count() < requests.height:
        return requests
    rows = requests.with_row_index("_at")
    found = rows.filter(open_end, pl.col("first_token_at_us") > pl.col("decode_admitted_at_us"))
    if found.is_empty():
        return requests
    started, admitted, first = pl.col("transfer_started_at_us"), pl.col("decode_admitted_at_us"), pl.col(_STEP[0])
    running = pl.concat(
        [_running(rows.filter(pl.col("decode_node") == node), part) for (node,), part in _by_node(found)]
    )
    wait = pl.when(pl.col("_running") > 0).then((first - admitted) // 2).otherwise(0)
    landed = running.select(
        "_at",
        _landed=pl.max_horizontal(admitted - wait, started + 1),
        _bytes=(pl.col("prompt_tokens") * kv_bytes_per_token).round().cast(pl.Int64),
    )
    return (
        rows.join(landed, on="_at", how="left", maintain_order="left")
        .with_columns(
            transfer_finished_at_us=pl.coalesce("transfer_finished_at_us", "_landed"),
            transferred_bytes=pl.coalesce("transferred_bytes", "_bytes"),
        )
        .drop("_at", "_landed", "_bytes")
    )


def _by_node(found: pl.DataFrame) -> list[tuple[tuple[object, ...], pl.DataFrame]]:
    return sorted(found.partition_by("decode_node", as_dict=True).items(), key=lambda item: str(item[0]))


def _running(every: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """`found` with the requests of their D that ran in the step before their activation."""
    known = every.drop_nulls(["decode_admitted_at_us", "finished_at_us"])
    at = found["decode_admitted_at_us"].to_numpy()
    began = np.searchsorted(np.sort(known["decode_admitted_at_us"].to_numpy()), at, side="left")
    ended = np.searchsorted(np.sort(known["finished_at_us"].to_numpy()), at, side="left")
    return found.with_columns(pl.Series("_running", began - ended, dtype=pl.Int64))
