"""Assets through the IO manager, in process."""

from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from features.errors import LakeError
from features.lake import Lake
from pipelines.defs.partitions import NIGHTS, night_key, night_of, register_pools
from pipelines.io.parquet import LakeIOManager

DAY_US = 86_400_000_000
START = date(2026, 11, 1)
START_US = 1_793_491_200_000_000
LAST_TWO = dg.MultiPartitionMapping({
    "day": dg.DimensionPartitionMapping("day", dg.TimeWindowPartitionMapping(start_offset=-1)),
    "pool": dg.DimensionPartitionMapping("pool", dg.IdentityPartitionMapping()),
})  # fmt: skip


@dg.asset(partitions_def=NIGHTS)
def node_loads(context: dg.AssetExecutionContext) -> dg.Output[pl.DataFrame]:
    day, _ = night_of(context)
    at = START_US + (day - START).days * DAY_US
    frame = pl.DataFrame({"observed_at_us": [at + 1, at], "node": ["p0", "p0"], "block_tokens": [16, 16]})
    return dg.Output(frame, metadata={"sources": {"log": "abc"}})


@dg.asset(partitions_def=NIGHTS)
def busy(node_loads: pl.DataFrame) -> pl.DataFrame:
    return node_loads.group_by("node", maintain_order=True).len()


@dg.asset(partitions_def=NIGHTS)
def facts(node_loads: pl.LazyFrame) -> dict[str, Any]:
    return {"rows": node_loads.select(pl.len()).collect().item(), "big": 2**63 + 1}


@dg.asset(
    partitions_def=NIGHTS,
    ins={name: dg.AssetIn(partition_mapping=LAST_TWO) for name in ("node_loads", "busy", "facts")},
)
def window(node_loads: pl.DataFrame, busy: pl.DataFrame, facts: list[dict[str, Any]]) -> dict[str, Any]:
    times = node_loads["observed_at_us"].to_list()
    return {"times": times, "busy": busy["len"].to_list(), "facts": [f["rows"] for f in facts]}


ASSETS = [node_loads, busy, facts, window]


def run(folder: Path, instance: dg.DagsterInstance, day: int, *only: Any) -> dg.ExecuteInProcessResult:
    manager = LakeIOManager(lake=str(folder / "lake"), derived=str(folder / "derived"))
    register_pools(instance, ["p"])
    return dg.materialize(
        ASSETS, selection=list(only) or None, instance=instance, resources={"io_manager": manager},
        partition_key=night_key(date(2026, 11, day), "p"), raise_on_error=True,
    )  # fmt: skip


@pytest.fixture
def two_days(tmp_path: Path) -> Path:
    with dg.DagsterInstance.ephemeral() as instance:
        run(tmp_path, instance, 1, node_loads, busy, facts)
        run(tmp_path, instance, 2)
    return tmp_path


def test_tables_go_to_the_lake_with_their_sources(two_days: Path) -> None:
    lake = Lake(two_days / "lake")
    assert lake.days("node_loads", "p") == [date(2026, 11, 1), date(2026, 11, 2)]
    assert lake.read("node_loads", date(2026, 11, 1), "p")["observed_at_us"].to_list() == [START_US, START_US + 1]
    assert lake.sources("node_loads", date(2026, 11, 1), "p") == {"log": "abc"}


def test_windows_are_read_in_order_of_the_days(two_days: Path) -> None:
    text = (two_days / "derived/window/pool=p/day=2026-11-02.json").read_text()
    later = START_US + DAY_US
    times = f"[{START_US}, {START_US + 1}, {later}, {later + 1}]"
    assert text == f'{{"busy": [2, 2], "facts": [2, 2], "times": {times}}}'


def test_the_same_values_are_the_same_bytes(two_days: Path) -> None:
    files = sorted(path for path in two_days.rglob("*") if path.is_file() and path.name != ".lock")
    before = {path: path.read_bytes() for path in files}
    with dg.DagsterInstance.ephemeral() as instance:
        result = run(two_days, instance, 2)
    assert {path: path.read_bytes() for path in files} == before
    metadata = result.asset_materializations_for_node("node_loads")[0].metadata
    assert metadata["sha256"].value == Lake(two_days / "lake").digest("node_loads", date(2026, 11, 2), "p")
    assert metadata["dagster/row_count"].value == 2


def test_a_missing_partition_is_an_error(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run(tmp_path, instance, 1, node_loads)
        with pytest.raises(LakeError, match="materialize it first"):
            run(tmp_path, instance, 1, window)


def test_a_value_that_is_not_plain_is_refused(tmp_path: Path) -> None:
    @dg.asset(partitions_def=NIGHTS)
    def odd() -> Any:
        return {"x": float("nan")}

    manager = LakeIOManager(lake=str(tmp_path / "lake"), derived=str(tmp_path / "derived"))
    with dg.DagsterInstance.ephemeral() as instance:
        register_pools(instance, ["p"])
        with pytest.raises(LakeError, match="plain JSON values"):
            dg.materialize(
                [odd], instance=instance, resources={"io_manager": manager}, partition_key=night_key(START, "p")
            )
