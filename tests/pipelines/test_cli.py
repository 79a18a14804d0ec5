"""The command: JSON on stdout, people's text on stderr, exit codes, errors without tracebacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines import cli

ROOT = Path(__file__).parents[2]
TRACE = '{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2]}\n'


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Mooncake trace; the working folder has no settings."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "trace.jsonl"
    path.write_text(TRACE + TRACE.replace('"timestamp": 0', '"timestamp": 5000'))
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def ingest(trace: Path, *more: str) -> Result:
    start = ["--starts-at", "2026-11-01T00:00:00Z"]
    return run("ingest", trace, "--format", "mooncake", "--pool", "p", "--lake", trace.parent / "lake", *start, *more)


def test_ingest_prints_one_object(trace: Path) -> None:
    result = ingest(trace, "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    wanted = {
        "format": "mooncake",
        "files": 1,
        "read": 2,
        "accepted": 2,
        "quarantined": 0,
        "skipped": 0,
        "duplicates": 0,
    }
    assert {key: report[key] for key in wanted} == wanted
    assert report["rules"] == {}
    assert report["partitions"] == ["requests/pool=p/day=2026-11-01"]
    assert "no class rules" in result.stderr
    assert "2 rows read = 2 accepted" in result.stderr


def test_ingest_again_adds_nothing(trace: Path) -> None:
    ingest(trace)
    again = json.loads(ingest(trace, "--json").stdout)
    assert (again["accepted"], again["duplicates"]) == (0, 2)


def test_relative_clock_needs_a_start(trace: Path) -> None:
    result = run("ingest", trace, "--pool", "p", "--lake", trace.parent / "lake", "--json")
    assert result.exit_code == 2
    assert "--starts-at" in result.stderr
    assert "Traceback" not in result.stderr
    assert "--starts-at" in json.loads(result.stdout)["error"]["hint"]


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02", b"not json\n", b'{"a": 1}\n', b'{"timestamp": 0, "inp'])
def test_unreadable_input_is_wrong_use(trace: Path, content: bytes) -> None:
    trace.write_bytes(content)
    result = run("ingest", trace, "--pool", "p", "--lake", trace.parent / "lake")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines()[1].startswith("error: ")
    assert "hint:" in result.stderr


def test_class_rules_and_the_lake_come_from_settings(trace: Path) -> None:
    text = (ROOT / "routecal.toml").read_text("utf-8")
    (trace.parent / "routecal.toml").write_text(text)
    result = run("ingest", trace, "--starts-at", "2026-11-01")
    assert result.exit_code == 0, result.stderr
    shown = run("sql", "SELECT pool, slo_class, count(*) AS n FROM requests GROUP BY ALL", "--json")
    assert json.loads(shown.stdout) == {
        "columns": ["pool", "slo_class", "n"], "rows": [["chat", "interactive", 2]], "row_count": 1,
    }  # fmt: skip


def test_sql_shows_a_table_and_says_what_it_left_out(trace: Path) -> None:
    ingest(trace)
    result = run("sql", "SELECT prompt_tokens FROM requests", "--lake", trace.parent / "lake", "--limit", "1")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("1024") == 1
    assert "2 rows, 1 shown" in result.stderr


@pytest.mark.parametrize("query", ["DROP TABLE requests", "SELECT nothing FROM requests", "SELECT 1; SELECT 2"])
def test_sql_only_reads(trace: Path, query: str) -> None:
    ingest(trace)
    result = run("sql", query, "--lake", trace.parent / "lake")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ingest"], "Missing argument"),
        (["ingest", "x.jsonl", "--lake", "l"], "a pool must be named"),
        (["ingest", "x.jsonl", "--pool", "p"], "a lake must be named"),
        (["ingest", "x.jsonl", "--pool", "p", "--lake", "l"], "a log must exist"),
        (["ingest", "x.jsonl", "--pool", "../p", "--lake", "l"], "a pool's name"),
        (["ingest", "x.jsonl", "--pool", "p", "--lake", "l", "--starts-at", "soon"], "ISO time"),
        (["ingest", "x.jsonl", "--settings", "none.toml"], "settings file must exist"),
        (["record", "loads", "--targets", "nowhere", "--duration", "1"], "http URL"),
        (["record", "loads"], "Missing option"),
        (["nothing"], "No such command"),
    ],
)
def test_wrong_use_ends_with_2(trace: Path, arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_error_itself(trace: Path) -> None:
    result = run("--debug", "ingest", "x.jsonl", "--pool", "p", "--lake", "l")
    assert type(result.exception).__name__ == "SourceError"


def test_an_internal_error_is_a_line_and_debug_may_stand_anywhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*, args: list[str]) -> None:
        cli.Mode.debug = "--debug" in args
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(cli, "app", broken)
    monkeypatch.setattr(sys, "argv", ["routecal", "sql", "SELECT 1"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    assert "internal error: ZeroDivisionError" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["routecal", "sql", "--debug"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_help_names_every_command_and_loads_no_heavy_library() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from pipelines.cli import app;"
        "print(CliRunner().invoke(app, ['--help']).stdout);"
        "print(sorted({'polars', 'mlflow', 'dagster', 'numba', 'lightgbm', 'duckdb'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.strip().endswith("[]")
    assert all(name in shown for name in ("ingest", "record", "sql"))


def test_json_is_json_whatever_the_values(trace: Path) -> None:
    ingest(trace)
    query = "SELECT 'NaN'::DOUBLE, 'inf'::DOUBLE, 3::HUGEINT, sum(prompt_tokens), 'é', DATE '2026-11-01' FROM requests"
    result = run("sql", query, "--lake", trace.parent / "lake", "--json")
    (row,) = json.loads(result.stdout, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))["rows"]
    assert row == [None, None, 3, 2048, "é", "2026-11-01"]


@pytest.mark.parametrize("arguments", [["ingest", "--json"], ["sql", "SELECT 1", "--json", "--nope"]])
def test_wrong_use_prints_an_object_too(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["routecal", *arguments])
    monkeypatch.setattr("pipelines.console.Mode.emitted", False)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "UsageError"


def test_sql_of_a_lake_that_is_not_there(tmp_path: Path) -> None:
    result = run("sql", "SELECT 1", "--lake", tmp_path / "absent", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["rule"] == "a lake must exist"
