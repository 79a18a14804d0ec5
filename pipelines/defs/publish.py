"""The policy file, `current`, and the report."""

from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl

from features.parquet import write_atomically
from pipelines.defs.night import OWNERS, Night, Stored, night, stage
from pipelines.defs.partitions import NIGHTS
from pipelines.defs.resources import Project, Teller
from pipelines.io.tracking import Tracking
from pipelines.night import policy as making
from pipelines.night import stages
from pipelines.night.honesty import predicted_of
from pipelines.night.stored import plain, restored, restored_fitted
from pipelines.report.page import NightPage
from policies.policy_file import estimators_of, parse, policy_of, sealed
from policies.store import Move


@dg.asset(
    partitions_def=NIGHTS,
    group_name="publish",
    kinds={"json"},
    owners=OWNERS,
    description="One row a night: the policy file with its evidence and conformance vectors, signed if the settings "
    "name a key, and kept in the store as a candidate. No file where the night is not trustworthy.",
)
def policy(
    context: dg.AssetExecutionContext,
    project: Project,
    teller: dg.ResourceParam[Teller],
    evidence: dict[str, Any],
    tracked_night: dict[str, Any],
) -> dg.Output[Stored]:
    """The same logs, settings and code give the same `content_hash`."""
    judged = restored(stages.Judged, evidence["judged"])
    if evidence["draft"] is None or judged.evidence["verdict"] == making.NOT_TRUSTWORTHY:
        return dg.Output({"path": None}, metadata={"verdict": judged.evidence["verdict"]})
    tonight, file = night(context, project), sealed(evidence["draft"])
    with stage("publish", context, teller):
        whole = making.proven(tonight.pool, file, policy_of(file), estimators_of(file), judged.evidence)
        path = making.keep(
            tonight.store,
            whole,
            tonight.settings.keys,
            issued_at=making.now(),
            mlflow_run=tracked_night["run_id"],
        )
    return dg.Output(
        {"path": str(path)},
        metadata={
            "path": dg.MetadataValue.path(str(path)),
            "family": whole.family,
            "verdict": judged.evidence["verdict"],
            "content_hash": whole.content_hash or "",
            "decision_hash": whole.decision_hash or "",
            "vectors": len(whole.vectors),
        },
    )


@dg.asset(
    partitions_def=NIGHTS,
    group_name="publish",
    kinds={"json"},
    owners=OWNERS,
    description="One row a night: whether `current` moved to the night's file, else why not. Hashes, signature, "
    "vectors, verdict and gates are read from the file itself once more.",
)
def published(
    context: dg.AssetExecutionContext,
    project: Project,
    tracking: Tracking,
    policy: dict[str, Any],
    tracked_night: dict[str, Any],
) -> dg.Output[Stored]:
    """Moves nothing that its own file does not allow, whatever earlier assets said."""
    tonight = night(context, project)
    if policy["path"] is None:
        return dg.Output({"path": None, "moved": False}, metadata={"moved": False})
    done = making.move(tonight.store, Path(policy["path"]), tonight.settings.keys, issued_at=making.now())
    tracking.tag(tracked_night["run_id"], {"routecal.content_hash": done.file.content_hash or ""})
    value = {
        "path": str(done.path),
        "content_hash": done.file.content_hash,
        "signed": done.signed,
        "moved": done.move is not None,
        "move": None if done.move is None else plain(Move, done.move),
        "kept_back": list(done.kept_back),
    }
    return dg.Output(value, metadata={key: value[key] for key in ("moved", "content_hash", "signed", "kept_back")})


@dg.asset(
    partitions_def=NIGHTS,
    group_name="publish",
    kinds={"html"},
    owners=OWNERS,
    description="One page a night: verdict in sentences, table of arms, gates, figures, what was read and kept.",
)
def night_report(
    context: dg.AssetExecutionContext,
    project: Project,
    ingest_report: list[Any],
    diagnosis: dict[str, Any],
    night_inputs: dict[str, Any],
    predictions: pl.DataFrame,
    estimators: dict[str, Any],
    evidence: dict[str, Any],
    tracked_night: dict[str, Any],
    published: dict[str, Any],
) -> dg.Output[Stored]:
    """One HTML file that needs no other, for people without any of the interfaces."""
    from pipelines.report.page import night_html, summary_lines

    tonight = night(context, project)
    fitted = estimators if "estimators" in estimators else None
    judged, predicted = restored(stages.Judged, evidence["judged"]), predicted_of(predictions)
    page = NightPage(
        pool=tonight.pool.name,
        day=tonight.day.isoformat(),
        evidence=judged.evidence,
        reasons=stages.reasons_of(judged.evidence),
        notes=stages.notes_of(
            restored_fitted(estimators) if fitted else None, predicted, judged, published_of(published)
        ),
        publication=published,
        ingested=ingest_report,
        diagnosis=diagnosis,
        inputs=night_inputs,
        fitted=fitted,
        predicted=predicted,
        links={"MLflow run": tracked_night["run_id"]},
    )
    path = report_path(tonight)
    write_atomically(path, night_html(page).encode())
    lines = summary_lines(page)
    return dg.Output(
        {"path": str(path), "summary": lines},
        metadata={"report": dg.MetadataValue.path(str(path)), "summary": dg.MetadataValue.md("\n\n".join(lines))},
    )


def report_path(tonight: Night) -> Path:
    """Where a night's page lies."""
    return tonight.settings.storage.runs / "reports" / tonight.pool.name / f"{tonight.day.isoformat()}.html"


def published_of(value: Stored) -> making.Published | None:
    """The stored asset `published`; None where no file was kept."""
    if value["path"] is None:
        return None
    path = Path(value["path"])
    moved = None if value["move"] is None else restored(Move, value["move"])
    return making.Published(parse(path.read_bytes(), place=str(path)), path, moved, tuple(value["kept_back"]))
