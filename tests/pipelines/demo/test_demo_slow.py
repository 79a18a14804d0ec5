"""The whole demo, twice in fresh folders and again in one: the same policy file, which verifies."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app

pytestmark = pytest.mark.slow


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and stdout of a command."""
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout


def demo(folder: Path, *arguments: str) -> dict[str, object]:
    """What `routecal demo --json` prints."""
    code, out = run("demo", "--json", "--out", str(folder), *arguments)
    assert code == 0, out
    value: dict[str, object] = json.loads(out)
    return value


def test_same_hash_in_two_fresh_lakes_and_again_in_one(tmp_path: Path) -> None:
    first = demo(tmp_path / "a")
    second = demo(tmp_path / "b")
    again = demo(tmp_path / "a")
    assert first["content_hash"] == second["content_hash"] == again["content_hash"]
    assert first["verdict"] in {"better", "not distinguishable", "worse"}
    key = tmp_path / "a" / "demo" / "keys" / "demo.pub"
    code, out = run("policy", "verify", str(first["policy"]), "--key", str(key), "--json")
    assert code == 0, out
    assert json.loads(out)["valid"] is True


def test_a_homogeneous_pool_has_nothing_to_win(tmp_path: Path) -> None:
    assert demo(tmp_path, "--pool-kind", "plain")["verdict"] == "not distinguishable"


def test_a_real_trace_reaches_a_verdict(tmp_path: Path, shared_real: Path) -> None:
    trace = shared_real / "mooncake-fast25" / "conversation_trace.jsonl"
    found = demo(tmp_path, "--trace", str(trace), "--slices", "8")
    assert found["verdict"] == "not trustworthy" or found["content_hash"]
