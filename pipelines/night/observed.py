"""What happened in some windows, in the tables that predictions are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import polars as pl

from features.errors import TwinError
from features.kv import bytes_per_s
from features.lake import Lake
from features.landings import with_landings
from features.naming import DEFAULT_CLASS
from features.prefix import dense_ids
from features.transfers import transfers
from models.honesty.alarms import Seen
from models.honesty.day import DayTables
from models.portable.estimators import Estimators
from models.portable.transfer import TransferLaw, egress, ingress, uplink
from models.splits import Window
from pipelines.night.fit import window_tables
from pipelines.night.inputs import Inputs, read_day
from pipelines.settings import Pool

CACHE_PROMPTS = 200_000
"""Prompts of a window whose caches are replayed, the newest, with as many before them that only fill the caches."""
PROMPTS: Mapping[str, pl.DataType] = {
    "node": pl.String(), "started_at_us": pl.Int64(), "finished_at_us": pl.Int64(), "prompt_tokens": pl.Int64(),
    "cached_tokens": pl.Int64(), "unit_tokens": pl.Int64(), "blocks": pl.List(pl.Int32()),
}  # fmt: skip
_NAMES = ("slo_class", "app", "tenant", "prefill_node", "decode_node")


@dataclass(frozen=True, slots=True)
class Observed:
    """Some windows, whatever estimators they are held against. `flows`: requests of each window's day, whole.

    `tables` has no transfers: what ports left to them depends on how fast a law takes the ports to be.
    """

    tables: DayTables
    flows: tuple[tuple[Window, pl.DataFrame], ...]

    def under(self, pool: Pool, law: TransferLaw) -> DayTables:
        """The tables, with shares of ports as fast as the law takes them to be."""
        return replace(self.tables, transfers=pl.concat([_transfers(rows, pool, law, w) for w, rows in self.flows]))


def observed(lake: Lake, pool: Pool, windows: Sequence[Window], *, caches: bool) -> Observed:
    """The tables of at least one window, each made of whole days and then cut. `caches`: with prompts to replay."""
    days = {w.day: read_day(lake, pool, w.day) for w in windows}
    parts = [window_tables(days[w.day], pool, w)[:3] for w in windows]
    lengths, prefill, decode = (pl.concat(column) for column in zip(*parts, strict=True))
    prompts = [_prompts(lake, pool, w) for w in windows] if caches else []
    whole = pl.concat([pl.DataFrame(schema=PROMPTS), *prompts])
    tables = DayTables(_answers(lengths), prefill, decode, pl.DataFrame(), whole, pool.kv.block_tokens)
    return Observed(tables, tuple((w, days[w.day].requests) for w in windows))


def seen_before(lake: Lake, pool: Pool, inputs: Inputs, estimators: Estimators, fitted_on: str) -> Seen:
    """Names that estimators of the night of `fitted_on` (ISO day) may know: their own groups, and what the history's
    days up to then hold. Without such a day only nodes that they name count, and apps and tenants are not judged.
    """
    names: dict[str, set[str]] = {
        "prefill_node": {*estimators.prefill.node_factor, *estimators.prefill.node_type},
        "decode_node": {*estimators.decode.node_factor, *estimators.decode.node_type},
    }
    days = [d for d in inputs.days if d.isoformat() <= fitted_on and d < inputs.day]
    if days:
        rows = lake.scan("requests", days, pool.name).select(_NAMES).unique().collect()
        app = pl.concat_str(pl.col("slo_class").fill_null(DEFAULT_CLASS), pl.lit("/"), "app")
        names["app"] = {*rows.select(app).to_series().drop_nulls(), *estimators.length.offset}
        for name in _NAMES[2:]:
            names[name] = names.get(name, set()) | set(rows[name].drop_nulls())
    return Seen({kind: frozenset(held) for kind, held in names.items() if held})


def _answers(lengths: pl.DataFrame) -> pl.DataFrame:
    """Answers that ended by themselves or at their limit. What was cut off otherwise tells no length."""
    at_limit = pl.col("output_tokens") >= pl.col("max_output_tokens")
    return lengths.filter(~pl.col("censored") | at_limit.fill_null(value=False))


def _transfers(requests: pl.DataFrame, pool: Pool, law: TransferLaw, window: Window) -> pl.DataFrame:
    """Transfers with shares of ports as fast as the law takes them to be. A node sends or receives, never both."""
    port, at_us, began = {"prefill": egress, "decode": ingress}, window.start_us, pl.col("started_at_us")
    facts = {
        n.name: (n.rack, bytes_per_s(n.port_gbps) * law.port(port[n.role](n.name)))
        for n in pool.nodes
        if n.valid.holds(at_us)
    }
    uplinks = {
        (u.from_rack, u.to_rack): bytes_per_s(u.gbps) * law.port(uplink(u.from_rack, u.to_rack))
        for u in pool.uplinks
        if u.valid.holds(at_us)
    }
    found = transfers(
        with_landings(requests, pool.kv.bytes_per_token),
        facts,
        uplinks,
        kv_bytes_per_token=pool.kv.bytes_per_token,
        block_tokens=pool.kv.block_tokens,
        contention=law.contention,
    )
    return found.filter(began >= window.start_us, began + pl.col("duration_us") < window.end_us)


def _prompts(lake: Lake, pool: Pool, window: Window) -> pl.DataFrame:
    """Prompts of a window and of the time before it, whose hits are not logged here: they only fill the caches."""
    days = [d for d in (window.day - timedelta(days=1), window.day) if d in lake.days("requests", pool.name)]
    rows = (
        pl.concat([lake.read("requests", d, pool.name) for d in days])
        .filter(
            pl.col("arrived_at_us") < window.end_us,
            pl.all_horizontal(pl.col("prefill_node", "prefill_started_at_us", "prefill_finished_at_us").is_not_null()),
        )
        .sort("prefill_started_at_us", "request_id")
        .tail(2 * CACHE_PROMPTS)
    )
    try:
        blocks = dense_ids(rows, pool.kv.block_tokens)
    except TwinError:  # the log's blocks and the pool's do not fit: nothing can be replayed
        return pl.DataFrame(schema=PROMPTS)
    if not len(blocks.ids):
        return pl.DataFrame(schema=PROMPTS)
    row = np.repeat(np.arange(rows.height, dtype=np.uint32), np.diff(blocks.offset))
    of = pl.DataFrame({"row": row, "id": blocks.ids}).group_by("row", maintain_order=True).agg("id")
    scored = pl.int_range(pl.len()) >= pl.len().cast(pl.Int64) - CACHE_PROMPTS
    here = pl.col("arrived_at_us") >= window.start_us
    return (
        rows.with_row_index("row")
        .join(of, on="row", how="left", maintain_order="left")
        .select(
            pl.col("prefill_node").alias("node"),
            pl.col("prefill_started_at_us").alias("started_at_us"),
            pl.col("prefill_finished_at_us").alias("finished_at_us"),
            "prompt_tokens",
            pl.when(here & scored).then(pl.col("prefill_cached_tokens")).alias("cached_tokens"),
            pl.max_horizontal("block_tokens", pl.lit(pool.kv.block_tokens)).alias("unit_tokens"),
            pl.col("id").fill_null([]).alias("blocks"),
        )
        .cast(PROMPTS)  # type: ignore[arg-type]  # names to types, as the function takes them
    )
