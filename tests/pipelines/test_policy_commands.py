"""`routecal policy`: exit codes, what is said about keys, and publishing under the file's own gates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipelines.cli import app
from policies.policy_file import sealed, to_bytes, to_json
from policies.policy_models import PolicyFile
from policies.signing import generate_key, load_private, sign
from policies.store import PolicyStore
from tests.pipelines.nights import TOML
from tests.policies.files import small_file

AT = "2026-11-04T03:10:00Z"


@pytest.fixture(scope="module")
def file() -> PolicyFile:
    return small_file()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings for the pool `demo`, a store and two key pairs; commands run in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("ours", "theirs"):
        private, public = generate_key()
        (tmp_path / f"{name}.key").write_bytes(private)
        (tmp_path / f"{name}.pub").write_bytes(public)
    keys = '[keys]\nprivate_key = "ours.key"\ntrusted_keys = ["ours.pub"]\n[pools.demo]'
    (tmp_path / "with-keys.toml").write_text(TOML.replace("[pools.p]", keys), "utf-8")
    return tmp_path


def run(*arguments: str | Path) -> tuple[Result, dict[str, Any]]:
    result = CliRunner().invoke(app, ["policy", *map(str, arguments), "--json"])
    return result, json.loads(result.stdout) if result.stdout else {}


def written(folder: Path, file: PolicyFile, *, signed_by: str | None = "ours") -> Path:
    if signed_by:
        key = load_private((folder / f"{signed_by}.key").read_bytes())
        file = sign(file, key, issued_at=AT, mlflow_run=None, test_openings=1)
    path = folder / "policy.json"
    path.write_bytes(to_bytes(file))
    return path


def changed(path: Path, key: str, value: object) -> Path:
    whole = json.loads(path.read_text("utf-8"))
    whole[key] = value
    path.write_text(json.dumps(whole), "utf-8")
    return path


def test_verify_with_a_trusted_key(folder: Path, file: PolicyFile) -> None:
    result, said = run("verify", written(folder, file), "--key", folder / "ours.pub")
    assert result.exit_code == 0, result.stderr
    assert (said["valid"], said["content_hash"], said["failed"]) == (True, file.content_hash, 0)
    assert said["vectors"] == len(file.vectors) > 0
    assert len(said["signed_by"]) == 1
    from_settings, _ = run("verify", folder / "policy.json", "--settings", folder / "with-keys.toml")
    assert from_settings.exit_code == 0


def test_verify_without_a_trusted_key_says_so(folder: Path, file: PolicyFile) -> None:
    for signed_by in ("ours", None):
        result, said = run("verify", written(folder, file, signed_by=signed_by))
        assert result.exit_code == 0
        assert (said["valid"], said["signed_by"]) == (True, [])
        assert "no trusted key was given" in result.stderr


@pytest.mark.parametrize("signed_by", ["theirs", None])
def test_verify_refuses_what_no_trusted_key_signed(folder: Path, file: PolicyFile, signed_by: str | None) -> None:
    result, said = run("verify", written(folder, file, signed_by=signed_by), "--key", folder / "ours.pub")
    assert result.exit_code == 1
    assert said["valid"] is False


def test_a_changed_file_is_refused(folder: Path, file: PolicyFile) -> None:
    path = changed(written(folder, file), "family", "lmetric")
    for name in ("verify", "validate"):
        result, said = run(name, path)
        assert result.exit_code == 1
        assert said["valid"] is False


def test_a_vector_that_is_not_reproduced_is_named(folder: Path, file: PolicyFile) -> None:
    value = to_json(file)
    vector = value["vectors"][0]
    vector["expected"]["prefill"] = 1 - (vector["expected"]["prefill"] or 0)
    result, said = run("verify", written(folder, sealed(value)), "--key", folder / "ours.pub")
    assert result.exit_code == 1
    assert (said["valid"], said["failed"], said["signatures"]) == (False, 1, "trusted")
    assert file.vectors[0].name in result.stderr


def test_a_file_without_vectors_does_not_conform(folder: Path, file: PolicyFile) -> None:
    bare = sealed(to_json(file) | {"vectors": [], "envelope": None})
    result, said = run("verify", written(folder, bare), "--key", folder / "ours.pub")
    assert (result.exit_code, said["valid"], said["signatures"]) == (1, False, "trusted")


def test_validate(folder: Path, file: PolicyFile) -> None:
    path = written(folder, file)
    result, said = run("validate", path)
    assert (result.exit_code, said["valid"]) == (0, True)
    result, said = run("validate", changed(path, "familly", "x"))
    assert (result.exit_code, said["valid"]) == (1, False)
    assert "familly" in result.stderr


@pytest.mark.parametrize("name", ["validate", "verify", "show"])
def test_what_cannot_be_read_is_wrong_use(folder: Path, name: str) -> None:
    (folder / "broken.json").write_text('{"schema_version": ')
    for path in ("broken.json", "none.json", "."):
        result, _ = run(name, path)
        assert result.exit_code == 2, (path, result.stderr)
        assert "Traceback" not in result.stderr


def test_show(folder: Path, file: PolicyFile) -> None:
    path = written(folder, file)
    _, said = run("show", path)
    assert said["content_hash"] == file.content_hash
    text = CliRunner().invoke(app, ["policy", "show", str(path)]).stdout
    for part in ("demo/2026-11-03, family routecal", "interactive: TTFT <= 2000 ms, TPOT <= 50 ms", "SloRisk 1",
                 "not distinguishable, promotion ends at shadow", "gated_utilisation (as declared)"):  # fmt: skip
        assert part in text


def test_publish_keeps_and_signs_but_moves_current_only_if_the_gates_hold(folder: Path, file: PolicyFile) -> None:
    settings = folder / "with-keys.toml"
    result, said = run("publish", written(folder, file, signed_by=None), "--settings", settings)
    assert result.exit_code == 1
    assert (said["current"], said["signed"]) == (False, True)
    assert any("not distinguishable" in reason for reason in said["kept_back"])
    assert Path(said["policy"]).exists()
    verified, _ = run("verify", said["policy"], "--key", folder / "ours.pub")
    assert verified.exit_code == 0

    details = {"gates": [{"name": "validation", "status": "pass"}]}
    evidence = {"verdict": "better", "promotion_cap": "current", "reason": "r", "details": details}
    better = sealed(to_json(file) | {"evidence": evidence, "envelope": None})
    result, said = run("publish", written(folder, better, signed_by=None), "--settings", settings)
    assert result.exit_code == 0, result.stderr
    current = PolicyStore(folder / "data/store", "demo").current()
    assert current is not None
    assert current.content_hash == said["content_hash"] == better.content_hash


def test_publish_refuses_other_pools_changed_files_and_missing_settings(folder: Path, file: PolicyFile) -> None:
    path = written(folder, file)
    assert run("publish", path)[0].exit_code == 2
    (folder / "routecal.toml").write_text(TOML)
    result, _ = run("publish", path)
    assert result.exit_code == 2
    assert "a pool must stand in the settings" in result.stderr
    tampered, _ = run("publish", changed(path, "family", "lmetric"), "--settings", folder / "with-keys.toml")
    assert tampered.exit_code == 2
    assert "as it was made" in tampered.stderr


def test_export_and_import_of_a_router_config(folder, file):
    params = dict.fromkeys(("hit", "free", "health", "stale_after_s"), 1.0)
    path = changed(written(folder, file, signed_by=None), "family", "hit_capacity_health")
    path = changed(path, "family_params", params)
    refused = CliRunner().invoke(app, ["policy", "export", str(path), "--format", "dynamo"])
    assert refused.exit_code == 2
    assert "this config is of dynamo_cost" in refused.output
    path = changed(changed(path, "family", "sglang_cache_aware"), "family_params", None)
    result, said = run("export", path, "--format", "smg", "--out", folder / "smg.txt")
    assert result.exit_code == 0
    assert (folder / "smg.txt").read_text("utf-8") == said["config"]
    assert "--prefill-policy cache_aware" in said["config"].splitlines()
    result, said = run("import", folder / "smg.txt", "--format", "smg")
    assert (said["family"], said["decode_moment"]) == ("sglang_cache_aware", "arrival")
    assert said["family_params"]["cache_threshold"] == 0.3
