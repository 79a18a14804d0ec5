"""The demo's folder: settings, keys, logs, lake, store and runs of one emulated pool, all in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from features.parquet import write_atomically
from features.privacy import keep_key
from pipelines.settings import Settings, load_settings

NAME_KEY = b"names of the emulated pool"
KINDS = ("demo", "plain", "trace")
TEMPLATES = Path(__file__).resolve().parents[2] / "data" / "demo"
DEFAULT_ROOT = Path(__file__).resolve().parents[2] / "data" / "runs"


@dataclass(frozen=True, slots=True)
class Workspace:
    """`folder` holds everything; `settings_path` is its routecal.toml; `pool` the one pool in it."""

    folder: Path
    settings_path: Path
    world_path: Path
    pool: str
    settings: Settings

    @property
    def logs(self) -> Path:
        """Where the emulated pool's logs go, and where the settings' sources look for them."""
        return self.folder / "logs"


def pool_name(kind: str, trace: Path | None) -> str:
    """`demo`, `plain`, or `trace-<stem>` of the served file."""
    if trace is None:
        return kind
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", trace.name.split(".")[0]).strip("-")
    return f"trace-{stem}"


def prepare(kind: str, *, trace: Path | None = None, root: Path | None = None) -> Workspace:
    """The workspace of a kind of pool below `root`, made or brought up to date; keys are made once and stay."""
    name = pool_name(kind, trace)
    folder = (root or DEFAULT_ROOT) / name
    folder.mkdir(parents=True, exist_ok=True)
    template = (TEMPLATES / f"{kind}.toml").read_text("utf-8")
    settings_path = folder / "routecal.toml"
    write_atomically(settings_path, template.replace(f"pools.{kind}", f"pools.{name}").encode())
    _keys(folder / "keys")
    settings = load_settings(settings_path)
    # Nobody stands behind an emulated pool's names: with a known key the demo gives the same hashes everywhere.
    keep_key(settings.storage.lake, NAME_KEY)
    return Workspace(folder, settings_path, TEMPLATES / f"{kind}.world.toml", name, settings)


def _keys(folder: Path) -> None:
    from policies.signing import generate_key

    private, public = folder / "demo.pem", folder / "demo.pub"
    if private.exists() and public.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    private_pem, public_pem = generate_key()
    write_atomically(public, public_pem)
    write_atomically(private, private_pem)
    private.chmod(0o600)
