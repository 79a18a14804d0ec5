"""The demo's folder: settings of the kind, keys that are made once and never printed into the settings."""

from pathlib import Path

import pytest

from features.errors import SettingsError
from pipelines.demo.workspace import KINDS, TEMPLATES, pool_name, prepare
from pipelines.demo.world import load_world


@pytest.mark.parametrize("kind", KINDS)
def test_settings_and_world_of_each_kind_load(kind: str, tmp_path: Path) -> None:
    workspace = prepare(kind, root=tmp_path)
    assert workspace.settings.pool(workspace.pool).name == kind
    assert workspace.settings.notices == ()
    load_world(workspace.world_path)


def test_keys_stay(tmp_path: Path) -> None:
    first = prepare("demo", root=tmp_path)
    key = (first.folder / "keys" / "demo.pem").read_bytes()
    prepare("demo", root=tmp_path)
    assert (first.folder / "keys" / "demo.pem").read_bytes() == key
    assert (first.folder / "keys" / "demo.pem").stat().st_mode & 0o077 == 0
    assert prepare("demo", root=tmp_path / "other").folder.joinpath("keys", "demo.pem").read_bytes() != key


def test_a_trace_names_its_pool(tmp_path: Path) -> None:
    trace = Path("somewhere/conversation trace.v1.jsonl.gz")
    assert pool_name("trace", trace) == "trace-conversation-trace"
    workspace = prepare("trace", trace=trace, root=tmp_path)
    assert workspace.settings.pool("trace-conversation-trace").nodes


def test_a_broken_world_is_refused_by_key(tmp_path: Path) -> None:
    text = (TEMPLATES / "demo.world.toml").read_text().replace("step_sigma = 0.08", "step_sigma = -1")
    path = tmp_path / "bad.world.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"truth\.step_sigma"):
        load_world(path)
    with pytest.raises(SettingsError, match="readable"):
        load_world(tmp_path / "none.toml")
