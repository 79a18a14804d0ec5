"""`routecal demo` and `routecal emulate`: the whole loop on an emulated pool, and its first half."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from features.errors import SettingsError
from pipelines.commands.options import AsJson
from pipelines.commands.progress import StageLines
from pipelines.console import emit, say

if TYPE_CHECKING:
    from pipelines.demo.run import Emulated
    from pipelines.night.nightly import NightResult

ROOT = Path(__file__).resolve().parents[2]


class PoolKind(StrEnum):
    """The emulated pools: data/demo/<kind>.toml is what routecal is told, <kind>.world.toml what is true."""

    DEMO = "demo"
    PLAIN = "plain"


Kind = Annotated[PoolKind, typer.Option("--pool-kind", help="demo: uneven racks; plain: equal nodes, nothing to win.")]
Trace = Annotated[
    Path | None, typer.Option("--trace", metavar="FILE", help="Serve a real trace in Mooncake format instead.")
]
Slices = Annotated[int | None, typer.Option("--slices", min=4, help="Parts of the trace that stand for days.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where its folder goes; default data/runs.")]


def demo(
    *,
    pool_kind: Kind = PoolKind.DEMO,
    trace: Trace = None,
    slices: Slices = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Emulate a pool's days, ingest its logs, and run the night of the last day: a policy with its evidence."""
    emulated = _emulated(pool_kind, trace, slices, out)
    from pipelines.nightly_job import run_nightly_assets

    say("running the nightly assets of the last day; the twin's kernels compile on first use")
    day = emulated.served.days[-1]
    with StageLines("  ") as progress:
        result = run_nightly_assets(
            emulated.workspace.settings_path,
            emulated.workspace.pool,
            day,
            progress=progress,
            dagster_home=ROOT,
        )
    _tell(emulated, result)
    if as_json:
        storage = emulated.workspace.settings.storage
        emit(
            {
                "policy": str(result.path) if result.path else None,
                "content_hash": result.content_hash,
                "verdict": result.verdict,
                "promotion_cap": result.promotion_cap,
                "reasons": list(result.reasons),
                "report": str(report_path(storage.runs, emulated.workspace.pool, day.isoformat())),
                "lake": str(storage.lake),
                "mlflow_uri": storage.mlflow_uri,
                "settings": str(emulated.workspace.settings_path),
                "timings_s": {stage: round(seconds, 1) for stage, seconds in result.timings_s.items()},
            }
        )


def emulate(
    *,
    pool_kind: Kind = PoolKind.DEMO,
    trace: Trace = None,
    slices: Slices = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Write an emulated pool's request log, decision log and recorded polls, with settings to ingest them."""
    emulated = _emulated(pool_kind, trace, slices, out)
    say(f"settings: {emulated.workspace.settings_path}")
    if as_json:
        emit(
            {
                "settings": str(emulated.workspace.settings_path),
                "logs": [str(path) for path in emulated.logs],
                "requests": emulated.served.workload.requests,
                "days": [day.isoformat() for day in emulated.served.days],
                "goodput_frac": emulated.goodput_frac,
                "shared_transfers_frac": emulated.shared_frac,
            }
        )


def report_path(runs: Path, pool: str, day: str) -> Path:
    """Where the night's report is."""
    return runs / "reports" / pool / f"{day}.html"


def _emulated(kind: PoolKind, trace: Path | None, slices: int | None, out: Path | None) -> Emulated:
    if trace is None and slices is not None:
        raise SettingsError("--slices cuts a trace", value=slices, hint="give --trace FILE too")
    from pipelines.demo.run import emulate as serve_and_log

    emulated = serve_and_log(kind.value if trace is None else "trace", trace=trace, slices=slices, root=out, tell=say)
    say(
        f"its router met the targets of {emulated.goodput_frac:.1%} of them; "
        f"{emulated.shared_frac:.0%} of the transfers shared a port"
    )
    return emulated


def _tell(emulated: Emulated, result: NightResult) -> None:
    from rich.console import Console

    from pipelines.report.table import WIDTH, arms_table

    say("")
    if result.evidence["details"]:
        console = Console(stderr=True)
        console.width = max(console.width, WIDTH)
        console.print(arms_table(result.evidence))
    say(f"verdict: {result.verdict}; promotion ends at {result.promotion_cap}")
    for reason in (*result.reasons, *result.notes):
        say(f"  {reason}")
    storage = emulated.workspace.settings.storage
    say(f"policy: {result.path or 'none: the night is not trustworthy'}")
    say(f"report: {report_path(storage.runs, emulated.workspace.pool, result.day.isoformat())}")
    say(f"interfaces: make dev ARGS='--settings {emulated.workspace.settings_path}'")
