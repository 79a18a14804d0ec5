"""Logs into the lake, and what the night makes of the history that is there."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from features.ingest_report import IngestReport
from features.lake import Lake
from features.schemas import TABLES
from pipelines.defs.night import OWNERS, Metadata, Night, Stored, night, stage
from pipelines.defs.partitions import NIGHTS, night_key
from pipelines.defs.resources import Project, Teller
from pipelines.night.ingest import ingest_night
from pipelines.night.inputs import Inputs, select_inputs
from pipelines.night.policy import trusted_keys
from pipelines.night.stored import plain

GRAIN = {
    "requests": "One row a request that arrived on the day.",
    "node_loads": "One row a sample of a P or D node.",
    "decisions": "One row a candidate (P, D) of a logged decision.",
}


@dg.multi_asset(
    name="ingest",
    partitions_def=NIGHTS,
    group_name="logs",
    outs={
        **{
            name: dg.AssetOut(description=text, kinds={"parquet", "polars"}, owners=OWNERS)
            for name, text in GRAIN.items()
        },
        "ingest_report": dg.AssetOut(
            description="One row a source that was read: rows read = accepted + quarantined + skipped + duplicates.",
            kinds={"json"},
            owners=OWNERS,
        ),
    },
)
def ingest(context: dg.AssetExecutionContext, project: Project, teller: dg.ResourceParam[Teller]) -> Iterator[object]:
    """The settings' sources of the day, and of days of the history that the lake does not have yet.

    The lake merges by primary key, so reading a log again adds nothing.
    """
    tonight = night(context, project)
    before = set(tonight.lake.days("requests", tonight.pool.name))
    with stage("ingest", context, teller):
        reports = ingest_night(tonight.lake, tonight.pool, tonight.day, base=tonight.settings.base)
    for day in set(tonight.lake.days("requests", tonight.pool.name)) - before - {tonight.day}:
        for name in GRAIN:
            key = night_key(day, tonight.pool.name)
            context.log_event(
                dg.AssetMaterialization(name, partition=key, description=f"With the night of {tonight.day}.")
            )
    for name in GRAIN:
        # The lake wrote it: a materialisation without a value leaves the IO manager out.
        yield dg.MaterializeResult(asset_key=name, metadata=partition_metadata(tonight, name))
    yield dg.Output(
        [plain(IngestReport, report) for report in reports],
        "ingest_report",
        metadata={"reports": reports_table(reports)},
    )


@dg.asset(
    deps=["requests", "node_loads", "decisions", "ingest_report"],
    partitions_def=NIGHTS,
    group_name="logs",
    kinds={"json"},
    owners=OWNERS,
    description="One row a night: days of history, their split into train, validation and test, the pool's nodes, what "
    "the logs allow, and the digest of every partition that is used.",
)
def night_inputs(
    context: dg.AssetExecutionContext, project: Project, teller: dg.ResourceParam[Teller]
) -> dg.Output[Stored]:
    """What the night works on; later assets use this and not what the lake may hold by then."""
    tonight = night(context, project)
    with stage("inputs", context, teller):
        trusted_keys(tonight.settings.keys)
        inputs = select_inputs(tonight.lake, tonight.pool, tonight.day)
    return dg.Output(
        plain(Inputs, inputs),
        metadata={
            "days": len(inputs.days),
            "split": inputs.split.mode.value,
            **{
                part: [w.day.isoformat() for w in getattr(inputs.split, part)]
                for part in ("train", "validation", "test")
            },
            "capability": inputs.capability.level,
            "nodes": len(inputs.cluster.prefill) + len(inputs.cluster.decode),
            "digests": dict(inputs.digests),
        },
    )


def partition_metadata(tonight: Night, table: str) -> Metadata:
    """Row count, place, digest and columns of a partition; no rows where no log of it came."""
    lake, pool, day = tonight.lake, tonight.pool, tonight.day
    found: Metadata = {"dagster/row_count": 0}
    if day in lake.days(table, pool.name):
        found["dagster/row_count"] = lake.read(table, day, pool.name).height
        found["sha256"] = lake.digest(table, day, pool.name)
        found["path"] = dg.MetadataValue.path(str(partition_path(lake, table, tonight)))
    columns = [dg.TableColumn(name, str(kind)) for name, kind in TABLES[table].dtypes.items()]
    return found | {"dagster/column_schema": dg.TableSchema(columns)}


def partition_path(lake: Lake, table: str, tonight: Night) -> Path:
    """Where a partition lies."""
    return lake.root / table / f"pool={tonight.pool.name}" / f"day={tonight.day.isoformat()}" / "part.parquet"


def reports_table(reports: tuple[IngestReport, ...]) -> dg.TableMetadataValue:
    """What became of the rows, one line a source."""
    names = ("format", "files", "read", "accepted", "quarantined", "skipped", "duplicates")
    return dg.MetadataValue.table(
        [dg.TableRecord({name: getattr(report, name) for name in names}) for report in reports]
    )
