"""Checks of the assets. They read what is stored for the partition of the run, and not what a step held in memory.

They have no partitions of their own, which Dagster still has in preview: a run of at least one asset brings them along.

A blocking check that fails with an error ends the run before anything downstream. A gate that failed does not block:
such a night keeps no file, moves nothing and must still be reported.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import dagster as dg

from features.errors import PolicyError
from models.honesty.alarms import alarms
from models.honesty.reading import Reading
from pipelines.defs.models import image, readings_table
from pipelines.defs.night import UNJUDGED, Metadata, Night, night
from pipelines.defs.resources import Project
from pipelines.io.parquet import LakeIOManager
from pipelines.night.honesty import readings_of
from pipelines.night.policy import signatures
from policies.conformance import check as conformance
from policies.evidence.gates import GATES
from policies.policy_file import content_hash, parse
from policies.policy_models import PolicyFile

ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
MIN_REQUESTS = 500
PREDICTION_CHECKS = (
    ("length_coverage", "length", "quantiles of lengths"),
    ("prefill_error", "prefill", "prefill steps"),
    ("decode_error", "decode", "decode steps"),
    ("transfer_error", "transfer", "transfers"),
    ("cache_error", "cache", "caches"),
)
"""(check, estimator, what it tells of)."""
MEDIAN_APE_LIMIT, P90_APE_LIMIT, COVERAGE_SLACK = 0.05, 0.15, 0.03


@dg.asset_check(
    asset="ingest_report", blocking=True, description="read = accepted + quarantined + skipped + duplicates"
)
def accounting_identity(
    context: dg.AssetCheckExecutionContext, project: Project, io_manager: dg.ResourceParam[LakeIOManager]
) -> dg.AssetCheckResult:
    """Every row that was read is accounted for, source by source."""
    reports = _stored("ingest_report", context, project, io_manager)
    parts = ("accepted", "quarantined", "skipped", "duplicates")
    wrong = [r for r in reports if r["read"] != sum(r[part] for part in parts)]
    totals = {part: sum(r[part] for r in reports) for part in ("read", *parts)}
    return dg.AssetCheckResult(passed=not wrong, metadata={**totals, "wrong": [r["format"] for r in wrong]})


@dg.asset_check(
    asset="requests", blocking=True, description=f"at least {MIN_REQUESTS} requests; none at all is an error"
)
def enough_requests(context: dg.AssetCheckExecutionContext, project: Project) -> dg.AssetCheckResult:
    """A verdict on a handful of requests says little."""
    tonight = night(context, project)
    there = tonight.day in tonight.lake.days("requests", tonight.pool.name)
    rows = tonight.lake.read("requests", tonight.day, tonight.pool.name).height if there else 0
    return dg.AssetCheckResult(
        passed=rows >= MIN_REQUESTS, severity=WARN if rows else ERROR, metadata={"rows": rows, "wanted": MIN_REQUESTS}
    )


@dg.asset_check(asset="estimators", description="errors of step and transfer times and coverage of lengths are small")
def estimator_errors(
    context: dg.AssetCheckExecutionContext, project: Project, io_manager: dg.ResourceParam[LakeIOManager]
) -> dg.AssetCheckResult:
    """Step times by cell: median |error| <= 5 %, P90 <= 15 %; transfers: median within 5 %; a quantile covers its level
    ± 3 points beyond chance.
    """
    fitted = _stored("estimators", context, project, io_manager)
    if "estimators" not in fitted:
        return dg.AssetCheckResult(passed=False, severity=WARN, description=fitted[UNJUDGED])
    found = list(_large_errors(fitted))
    return dg.AssetCheckResult(passed=not found, severity=WARN, description="; ".join(found) or "all within their bars")


@dg.multi_asset_check(
    name="prediction_errors",
    specs=[
        dg.AssetCheckSpec(name, asset="predictions", description=f"the {told} in force hold on the day")
        for name, _, told in PREDICTION_CHECKS
    ],
)
def prediction_errors(
    context: dg.AssetCheckExecutionContext, project: Project, io_manager: dg.ResourceParam[LakeIOManager]
) -> Iterable[dg.AssetCheckResult]:
    """Alarms of each estimator in force: a warning, since the night goes on and learns anew."""
    tonight = night(context, project)
    readings = readings_of(io_manager.read_table("predictions", tonight.day, tonight.pool.name))
    for name, estimator, _ in PREDICTION_CHECKS:
        yield prediction_check(name, estimator, [reading for reading in readings if reading.estimator == estimator])


def prediction_check(name: str, estimator: str, readings: Sequence[Reading]) -> dg.AssetCheckResult:
    """The check of one estimator from its readings."""
    from pipelines.report.estimator_figures import estimator_figures
    from pipelines.report.figures import png_base64

    found = alarms(readings)
    judged = [reading for reading in readings if reading.bar is not None or reading.alarm is not None]
    shown: dict[str, Any] = {"readings": readings_table(judged), "alarms": len(found)}
    for title, figure in estimator_figures(readings).items():
        shown[title.replace("_", " ")] = image(png_base64(figure))
    text = "; ".join(reading.sentence for reading in found)
    return dg.AssetCheckResult(
        asset_key="predictions",
        check_name=name,
        passed=not found,
        severity=WARN,
        description=text or (f"{len(judged)} readings within their bars" if judged else f"no rows of {estimator}"),
        metadata=shown,
    )


@dg.asset_check(asset="estimators", description="no new estimator was worse than the last good one")
def estimators_accepted(
    context: dg.AssetCheckExecutionContext, project: Project, io_manager: dg.ResourceParam[LakeIOManager]
) -> dg.AssetCheckResult:
    """A new estimator that loses more than the last good one on days held out does not replace it."""
    fitted = _stored("estimators", context, project, io_manager)
    if "estimators" not in fitted:
        return dg.AssetCheckResult(passed=False, severity=WARN, description=fitted[UNJUDGED])
    gates = fitted["origin"]
    kept = [gate["reason"] for gate in gates.values() if not gate["accepted"]]
    names = ("outcome", "day", "loss", "last_good_loss", "rows", "reason")
    rows = [dg.TableRecord({"estimator": name, **{key: gate[key] for key in names}}) for name, gate in gates.items()]
    return dg.AssetCheckResult(
        passed=not kept,
        severity=WARN,
        description="; ".join(kept) or "all are tonight's",
        metadata={"gates": dg.MetadataValue.table(rows, schema=_schema(("estimator", *names)))},
    )


def _schema(names: Sequence[str]) -> dg.TableSchema:
    return dg.TableSchema([dg.TableColumn(name) for name in names])


@dg.multi_asset_check(
    name="gates",
    specs=[dg.AssetCheckSpec(f"gate_{name}", asset="evidence", description=f"gate {name}") for name in GATES],
)
def gates(
    context: dg.AssetCheckExecutionContext, project: Project, io_manager: dg.ResourceParam[LakeIOManager]
) -> Iterable[dg.AssetCheckResult]:
    """Each gate as it stands in the evidence: passed, failed, not run, or waived."""
    value = _stored("evidence", context, project, io_manager)["judged"]["evidence"]
    held = {gate["name"]: gate for gate in value["details"].get("gates", ())}
    for name in GATES:
        gate = held.get(name, {"status": "not_run", "detail": value["reason"]})
        yield dg.AssetCheckResult(
            asset_key="evidence",
            check_name=f"gate_{name}",
            passed=gate["status"] in ("pass", "waived"),
            severity=ERROR if gate["status"] == "fail" else WARN,
            description=f"{gate['status']}: {gate['detail']}",
            metadata=gate_metadata(gate),
        )


def gate_metadata(gate: Mapping[str, Any]) -> Metadata:
    """Status, value, threshold, low, high as numbers, and the table of the numbers behind them; what is unknown is left
    out.
    """
    low, high = gate.get("interval") or (None, None)
    told = {"value": gate.get("value"), "threshold": gate.get("threshold"), "low": low, "high": high}
    shown: Metadata = {"status": gate["status"]} | {key: float(v) for key, v in told.items() if v is not None}
    numbers = gate.get("numbers")
    if numbers:
        rows = [dg.TableRecord({"name": name, "value": float(f"{value:.4g}")}) for name, value in numbers.items()]
        schema = dg.TableSchema([dg.TableColumn("name"), dg.TableColumn("value", type="float")])
        shown["numbers"] = dg.MetadataValue.table(rows, schema=schema)
    return shown


@dg.multi_asset_check(
    name="policy_holds",
    specs=[
        dg.AssetCheckSpec("content_hash", asset="policy", blocking=True, description="the hash is that of the content"),
        dg.AssetCheckSpec("signature", asset="policy", blocking=True, description="a trusted key signed the content"),
        dg.AssetCheckSpec(
            "conformance_vectors", asset="policy", blocking=True, description="every vector is decided as it says"
        ),
    ],
)
def policy_holds(
    context: dg.AssetCheckExecutionContext, project: Project, io_manager: dg.ResourceParam[LakeIOManager]
) -> Iterable[dg.AssetCheckResult]:
    """The stored file, read anew. A night without a file has nothing to hold."""
    path = _stored("policy", context, project, io_manager)["path"]
    names = ("content_hash", "signature", "conformance_vectors")
    if path is None:
        yield from (_result(name, passed=True, text="no file was kept") for name in names)
        return
    try:
        file = parse(Path(path).read_bytes(), place=path)
    except (OSError, PolicyError) as error:
        yield from (_result(name, passed=False, text=str(error)) for name in names)
        return
    yield from check_file(file, night(context, project))


def check_file(file: PolicyFile, tonight: Night) -> Sequence[dg.AssetCheckResult]:
    """The three checks of one file."""
    found = content_hash(file)
    signed = signatures(file, tonight.settings.keys)
    keys = bool(tonight.settings.keys.private_key or tonight.settings.keys.trusted_keys)
    failed = sorted({failure.vector for failure in conformance(file)})
    # Without any key nobody can vouch for the file: that is said, and does not stop a pool that chose it.
    severity = ERROR if keys or signed.state == "tampered" else WARN
    return (
        _result("content_hash", passed=found == file.content_hash, text=f"the content's is {found}"),
        _result("signature", passed=signed.state == "trusted", text=signed.reason, severity=severity),
        _result(
            "conformance_vectors",
            passed=not failed,
            text=f"{len(file.vectors)} vectors, {len(failed)} failed {', '.join(failed[:5])}".rstrip(),
        ),
    )


def _result(name: str, *, passed: bool, text: str, severity: dg.AssetCheckSeverity = ERROR) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(asset_key="policy", check_name=name, passed=passed, severity=severity, description=text)


def _large_errors(fitted: dict[str, Any]) -> Iterable[str]:
    # A single step is noisy whatever its law: cells of many steps show what the law itself is off by.
    for law in ("prefill", "decode"):
        cells = fitted["holdout"][law] or fitted["report"][law]["cells"]
        sizes = sorted(abs(cell["error"]["signed_median_frac"]) for cell in cells)
        if sizes:
            middle, high = median(sizes), sizes[int(0.9 * (len(sizes) - 1))]
            if middle > MEDIAN_APE_LIMIT or high > P90_APE_LIMIT:
                yield f"{law}: median {middle:.1%}, P90 {high:.1%} over {len(sizes)} cells"
    for path, error in fitted["report"]["transfer"]["error"].items():
        if abs(error["signed_median_frac"]) > MEDIAN_APE_LIMIT:
            yield f"transfer {path}: median {error['signed_median_frac']:+.1%}"
    for score in fitted["holdout"]["length"] or fitted["report"]["length"]["scores"]:
        cover, level = score["coverage"], score["level"]
        if cover["high_frac"] < level - COVERAGE_SLACK or cover["low_frac"] > level + COVERAGE_SLACK:
            yield f"lengths of {score['slo_class']} at {level:g}: {cover['covered_frac']:.3f} covered"


def _stored(name: str, context: Any, project: Project, io_manager: LakeIOManager) -> Any:  # noqa: ANN401
    """What is stored for the partition of the run."""
    tonight = night(context, project)
    day: date = tonight.day
    return io_manager.read(name, day, tonight.pool.name)
