"""What the day's logs say about the pool, before anything is learned from them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from features.errors import RoutecalError
from features.parquet import write_atomically
from pipelines.defs.night import OWNERS, Metadata, Night, Stored, night, stage
from pipelines.defs.partitions import NIGHTS
from pipelines.defs.resources import Project, Teller

FAILED = "failed"
"""Key of the stored value where the day could not be diagnosed: the reason."""


@dg.asset(
    deps=["requests", "node_loads", "decisions", "ingest_report"],
    partitions_def=NIGHTS,
    group_name="logs",
    kinds={"duckdb", "html"},
    owners=OWNERS,
    description="One row a finding: what is wrong with the pool, with its number; and in sentences where the time went "
    "and whether routing is to blame. A day that cannot be diagnosed says why and stops nothing.",
)
def diagnosis(
    context: dg.AssetExecutionContext, project: Project, teller: dg.ResourceParam[Teller]
) -> dg.Output[Stored]:
    """The page with tables and charts lies beside the night's report."""
    import duckdb

    tonight = night(context, project)
    with stage("diagnosis", context, teller):
        try:
            return _diagnosed(tonight)
        except (RoutecalError, duckdb.Error) as error:
            # The night learns from the same tables by other ways: it goes on, and its report tells.
            context.log.error("no diagnosis: %s", error)
            return dg.Output({FAILED: str(error)}, metadata={FAILED: str(error)})


def _diagnosed(tonight: Night) -> dg.Output[Stored]:
    from pipelines.night.diagnosis import diagnose_day, pool_facts
    from pipelines.report.diagnosis_page import diagnosis_html, diagnosis_markdown

    pool, day = tonight.pool, tonight.day
    found = diagnose_day(tonight.lake, day, pool.name, pool_facts(pool, day))
    path = page_path(tonight)
    write_atomically(path, diagnosis_html(found).encode())
    plain = found.to_dict()
    value = {name: plain[name] for name in ("findings", "answers", "sentences", "sampled")} | {"path": str(path)}
    metadata: Metadata = {
        "dagster/row_count": len(found.findings),
        "bottleneck": found.answers[-1].verdict,
        "page": dg.MetadataValue.path(str(path)),
        "summary": dg.MetadataValue.md(diagnosis_markdown(found) + _chart(found.tables)),
    }
    if found.findings:
        rows = [
            dg.TableRecord({"finding": f.name, "severity": f.severity, "where": f.subject, "what": f.text})
            for f in found.findings
        ]
        metadata["findings"] = dg.MetadataValue.table(rows)
    return dg.Output(value, metadata=metadata)


def _chart(tables: Mapping[str, Any]) -> str:
    """TTFT by stage as an inline picture, where there is one."""
    from pipelines.report.diagnosis_figures import diagnosis_figures
    from pipelines.report.figures import png_base64

    figure = diagnosis_figures(tables).get("ttft_by_class")
    return "" if figure is None else f"\n\n![TTFT by stage](data:image/png;base64,{png_base64(figure)})"


def page_path(tonight: Night) -> Path:
    """Where a day's diagnosis lies."""
    folder = tonight.settings.storage.runs / "reports" / tonight.pool.name
    return folder / f"{tonight.day.isoformat()}-diagnosis.html"
