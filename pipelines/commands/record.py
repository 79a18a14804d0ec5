"""`routecal record loads` and `routecal record metrics`: what engines say and do not log, kept for the night."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.options import AsJson
from pipelines.console import command, emit, say

if TYPE_CHECKING:
    from pipelines.record import Recording

record_app = typer.Typer(
    name="record", help="Keep what engines say and do not log.", no_args_is_help=True, rich_markup_mode=None
)


@record_app.callback()
def record() -> None:
    """Keep what engines say and do not log."""


More = Annotated[list[str] | None, typer.Argument(metavar="[URL]...", help="Further targets.")]
Targets = Annotated[
    list[str], typer.Option("--targets", metavar="URL", help="Engines, http://host:port; several: repeat, or list.")
]
Out = Annotated[str, typer.Option("--out", metavar="FILE", help="Lines are appended to it; {day} is the UTC day.")]
Period = Annotated[float, typer.Option("--period", metavar="SECONDS", help="Between two polls of a target.")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="A target that is silent so long.")]
Duration = Annotated[float | None, typer.Option("--duration", metavar="SECONDS", help="Without it until Ctrl-C.")]


@record_app.command()
@command
def loads(
    more: More = None,
    *,
    targets: Targets,
    out: Out = "loads-{day}.jsonl",
    period_s: Period = 1.0,
    timeout_s: Timeout = 2.0,
    duration_s: Duration = None,
    as_json: AsJson = False,
) -> None:
    """Poll GET /v1/loads of SGLang engines. A dead target costs its own polls only. Ends cleanly on Ctrl-C."""
    from pipelines.record import LOADS, Recording, in_order

    _run(Recording(in_order([*targets, *(more or [])]), out, period_s, timeout_s, duration_s, LOADS), as_json=as_json)


@record_app.command()
@command
def metrics(
    more: More = None,
    *,
    targets: Targets,
    out: Out = "metrics-{day}.jsonl",
    period_s: Period = 5.0,
    timeout_s: Timeout = 2.0,
    duration_s: Duration = None,
    as_json: AsJson = False,
) -> None:
    """Scrape GET /metrics of engines and routers. A dead target costs its own scrapes only. Ends cleanly on Ctrl-C."""
    from pipelines.record import METRICS, Recording, in_order

    _run(Recording(in_order([*targets, *(more or [])]), out, period_s, timeout_s, duration_s, METRICS), as_json=as_json)


def _run(recording: Recording, *, as_json: bool) -> None:
    from pipelines.record import record as run

    stop = threading.Event()
    before = {s: signal.signal(s, lambda *_: stop.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    every = f"every {recording.period_s:g} s into {recording.path}"
    say(f"polling {len(recording.targets)} target(s) {every}; Ctrl-C ends it")
    try:
        tally = run(recording, now_s=time.time, stop=stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for target in recording.targets:
        say(f"{target}: {tally.ok[target]} polls, {tally.refused[target]} refused, {tally.silent[target]} unanswered")
    if as_json:
        emit({
            "polls": tally.polls, "ok": tally.ok.total(), "refused": tally.refused.total(),
            "unanswered": tally.silent.total(), "files": sorted(tally.files),
        })  # fmt: skip
