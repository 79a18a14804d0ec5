"""`routecal record loads`: what engines say about their load, kept for the night."""

from __future__ import annotations

import signal
import threading
import time
from typing import Annotated

import typer

from pipelines.commands.options import AsJson
from pipelines.console import command, emit, say

record_app = typer.Typer(
    name="record", help="Keep what engines say and do not log.", no_args_is_help=True, rich_markup_mode=None
)


@record_app.callback()
def record() -> None:
    """Keep what engines say and do not log."""


@record_app.command()
@command
def loads(
    more: Annotated[list[str] | None, typer.Argument(metavar="[URL]...", help="Further targets.")] = None,
    *,
    targets: Annotated[
        list[str], typer.Option("--targets", metavar="URL", help="Engines, http://host:port; several: repeat, or list.")
    ],
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="Lines are appended to it; {day} is the UTC day.")
    ] = "loads-{day}.jsonl",
    period_s: Annotated[
        float, typer.Option("--period", metavar="SECONDS", help="Between two polls of a target.")
    ] = 1.0,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="A target that is silent so long.")
    ] = 2.0,
    duration_s: Annotated[
        float | None, typer.Option("--duration", metavar="SECONDS", help="Without it until Ctrl-C.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Poll GET /v1/loads of SGLang engines. A dead target costs its own polls only. Ends cleanly on Ctrl-C."""
    from pipelines.record import Recording, in_order
    from pipelines.record import record as run

    recording = Recording(in_order([*targets, *(more or [])]), out, period_s, timeout_s, duration_s)
    stop = threading.Event()
    before = {s: signal.signal(s, lambda *_: stop.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    say(f"polling {len(recording.targets)} target(s) every {period_s:g} s into {out}; Ctrl-C ends it")
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
