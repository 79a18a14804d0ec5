"""Tables of a night in which a node, a pair or an application changed."""

import numpy as np
import polars as pl
import pytest

from models.fit import TrainTables
from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, one_type
from models.portable.transfer import TransferLaw
from models.recency import DAY_US
from models.recent_tables import recent_tables
from policies.lengths import constant_length

ESTIMATORS = Estimators(
    length=constant_length(200.0),
    prefill=one_type(StepLaw((0.02, 1e-5, 0.0, 0.0, 0.0))),
    decode=one_type(StepLaw((0.01, 1e-4, 0.0, 0.0))),
    transfer=TransferLaw({"local": 0.002, "cross": 0.002}, {"local": 0.9, "cross": 0.9}),
)
ROWS = 120


def tables(
    days: range, *, slow_p: float = 1.0, slow_d: float = 1.0, slow_pair: float = 1.0, new_app: bool = False
) -> TrainTables:
    """Days of two P, two D and one application, or two."""
    parts = [_day(day, slow_p, slow_d, slow_pair, new_app=new_app) for day in days]
    return TrainTables(*(pl.concat(column) for column in zip(*parts, strict=True)))


def _day(day: int, slow_p: float, slow_d: float, slow_pair: float, *, new_app: bool) -> list[pl.DataFrame]:
    rng = np.random.default_rng(day)
    at = day * DAY_US + np.arange(ROWS) * 1_000_000
    noise = rng.lognormal(0, 0.05, ROWS)
    odd = np.arange(ROWS) % 2 == 1
    tokens = rng.integers(100, 4000, ROWS)
    sequences = rng.integers(1, 50, ROWS).astype(np.float64)
    size = tokens * 300_000.0
    p, d = np.where(odd, "p1", "p0"), np.where(rng.random(ROWS) < 0.5, "d1", "d0")
    slow = np.where((p == "p1") & (d == "d1"), slow_pair, 1.0)
    app = np.where(odd & new_app, "new", "old")
    return [
        pl.DataFrame(
            {"arrived_at_us": at, "slo_class": "a", "app": app, "prompt_tokens": tokens}
            | {"output_tokens": (200 * noise).astype(np.int64), "censored": False}
        ),
        pl.DataFrame(
            {"node": p, "started_at_us": at, "n_steps": 1, "prompts": 1, "new_tokens": tokens, "sum_t2": tokens**2}
            | {"busy_us": (0.02 + 1e-5 * tokens) * 1e6 * noise * np.where(odd, slow_p, 1.0), "sum_chunk_context": 0}
        ),
        pl.DataFrame(
            {"node": np.where(odd, "d1", "d0"), "observed_at_us": at, "n_steps": 1, "sequences": sequences}
            | {"busy_us": (0.01 + 1e-4 * sequences) * 1e6 * noise * np.where(odd, slow_d, 1.0), "tokens": 1e4}
        ),
        pl.DataFrame(
            {"path": "local", "prefill_node": p, "decode_node": d, "started_at_us": at, "bytes": size}
            | {"share_bytes_per_s": 25e9, "duration_us": (0.002 + size / 22.5e9) * 1e6 * noise * slow}
        ),
    ]


def days_of(rows: pl.DataFrame, time: str) -> set[int]:
    return set((rows[time] // DAY_US).to_list())


def test_a_quiet_pool_keeps_its_very_tables() -> None:
    train = tables(range(4))
    found, changes = recent_tables(ESTIMATORS, train, tables(range(4, 6)))
    assert changes == {}
    for name in ("lengths", "prefill_steps", "decode_steps", "transfers"):
        assert getattr(found, name) is getattr(train, name)


@pytest.mark.parametrize(
    ("table", "column", "group", "change"),
    [
        ("prefill_steps", "node", "p1", {"slow_p": 1.25}),
        ("decode_steps", "node", "d1", {"slow_d": 1.4}),
        ("lengths", "app", "new", {"new_app": True}),
    ],
)
def test_only_the_changed_group_moves_to_its_newest_day(
    table: str, column: str, group: str, change: dict[str, float]
) -> None:
    train = tables(range(4))
    found, changes = recent_tables(ESTIMATORS, train, tables(range(5, 6), **change))  # type: ignore[arg-type]
    assert set(changes) == {table}
    rows = getattr(found, table)
    time = next(name for name in ("arrived_at_us", "started_at_us", "observed_at_us") if name in rows.columns)
    assert days_of(rows.filter(pl.col(column) == group), time) == {5}
    assert days_of(rows.filter(pl.col(column) != group), time) == {0, 1, 2, 3}
    assert rows.columns == getattr(train, table).columns


def test_transfers_beside_a_changed_pair_stay_as_flows() -> None:
    train, newer = tables(range(4)), tables(range(5, 6), slow_pair=2.5)
    found, changes = recent_tables(ESTIMATORS, train, newer)
    assert [change.group for change in changes["transfers"]] == [("p1", "d1")]
    assert changes["transfers"][0].factor == pytest.approx(2.3, rel=0.15)
    assert found.transfers.height == train.transfers.height + newer.transfers.height
    pair = (pl.col("prefill_node") == "p1") & (pl.col("decode_node") == "d1")
    known = found.transfers.filter(pl.col("bytes").is_not_null())
    assert days_of(known.filter(pair), "started_at_us") == {5}
    assert days_of(known.filter(~pair), "started_at_us") == {0, 1, 2, 3}
