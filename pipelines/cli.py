"""The `routecal` command. Each subcommand is a file of pipelines/commands and imports what it needs when it runs."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from pipelines.commands.compare import compare
from pipelines.commands.demo import demo, emulate
from pipelines.commands.dev import dev
from pipelines.commands.diagnose import diagnose
from pipelines.commands.ingest import ingest
from pipelines.commands.names import names
from pipelines.commands.nightly import nightly
from pipelines.commands.policy import policy_app
from pipelines.commands.record import record_app
from pipelines.commands.replay import replay
from pipelines.commands.sql import sql
from pipelines.console import WRONG_USE, Mode, command, emit, say

app = typer.Typer(
    name="routecal",
    help="Learns routing policies for PD-disaggregated LLM serving from the logs of the cluster that it routes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(command(ingest))
app.add_typer(record_app)
app.command()(command(sql))
app.command()(command(names))
app.command()(command(diagnose))
app.command()(command(compare))
app.command()(command(nightly))
app.command()(command(replay))
app.add_typer(policy_app)
app.command()(command(demo))
app.command()(command(emulate))
app.command()(command(dev))


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"routecal {version('routecal')}\n")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Learns routing policies for PD-disaggregated LLM serving from the logs of the cluster that it routes."""
    Mode.debug = debug


def main() -> None:
    """Run the command of sys.argv. `--debug` may stand anywhere."""
    arguments = sys.argv[1:]
    if "--debug" in arguments:
        arguments = ["--debug", *(a for a in arguments if a != "--debug")]
    try:
        app(args=arguments)
    except SystemExit as ended:
        if ended.code == WRONG_USE:
            _emit_failure(arguments, "the command line must be as --help says")
        raise
    except Exception as error:
        if Mode.debug:
            raise
        say(f"internal error: {type(error).__name__}: {error}")
        say("  hint:  this is a fault of routecal, not of your input; run it again with --debug")
        _emit_failure(arguments, f"internal error: {type(error).__name__}: {error}")
        sys.exit(WRONG_USE)


def _emit_failure(arguments: list[str], rule: str) -> None:
    """With `--json` there is an object on every end; where the command printed none, this one."""
    if "--json" in arguments and not Mode.emitted:
        emit({"error": {"kind": "UsageError", "rule": rule, "value": None, "place": "", "hint": "see stderr"}})


if __name__ == "__main__":
    main()
