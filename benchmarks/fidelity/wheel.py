"""NVIDIA Dynamo's offline replay, run in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

REQUIREMENT = "ai-dynamo-runtime==1.6.1"
SHARED = Path(os.environ.get("ROUTECAL_SHARED", Path(__file__).resolve().parents[3] / "shared"))
TOOL = SHARED / "tools" / "dynamo_pool.py"
TRACE = SHARED / "data" / "real" / "mooncake-fast25" / "conversation_trace.jsonl"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "routecal" / "dynamo"
INSTALL_S = 600
GB_PER_S, BYTES_PER_TOKEN = 20.0, 327_680
"""Of every link, and of a token: the KV geometry of a 70B model in half precision."""


class AbsentError(Exception):
    """What a case needs is not here; its text says what."""


@dataclass(frozen=True, slots=True)
class Run:
    """One replay of the pool."""

    name: str
    speedup: float = 1.0
    prefill: int = 4
    decode: int = 4
    router: str = "round_robin"


@dataclass(frozen=True, slots=True)
class Pool:
    """Where logs come from: the wheel, or a folder of logs that are there already (one folder a run, by its name).

    `trace`: Mooncake format. `work`: where runs are written.
    """

    trace: Path
    work: Path
    ready: Path | None = None
    blocks: int = 2048

    def logs(self, run: Run) -> Path:
        """The folder with the run's requests.jsonl and telemetry.jsonl.

        AbsentError if the logs are not there and cannot be made.
        """
        if not self.trace.exists():
            raise AbsentError(f"no trace at {self.trace}")
        if self.ready is not None and (self.ready / run.name / "requests.jsonl").exists():
            return self.ready / run.name
        out = self.work / run.name
        if not (out / "requests.jsonl").exists():
            self._make(run, out)
        return out

    def _make(self, run: Run, out: Path) -> None:
        if not TOOL.exists():
            raise AbsentError(f"no {TOOL.name} in {TOOL.parent}")
        command = [
            str(python()), str(TOOL), str(self.trace), str(out), "--router", run.router, "--speedup", str(run.speedup),
            "--prefill", str(run.prefill), "--decode", str(run.decode), "--blocks", str(self.blocks),
            "--kv-gb-per-s", str(GB_PER_S), "--kv-bytes-per-token", str(BYTES_PER_TOKEN),
        ]  # fmt: skip
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env={**os.environ, "DYN_LOG": "off"}
        )
        if done.returncode:
            raise AbsentError(f"the pool did not run: {done.stderr.strip().splitlines()[-1:]}")


def python() -> Path:
    """The interpreter that has the wheel; makes its environment once.

    AbsentError if the wheel cannot be installed.
    """
    found = CACHE / "bin" / "python"
    if _has_wheel(found):
        return found
    print(f"installing {REQUIREMENT} into {CACHE}", file=sys.stderr)
    venv.create(CACHE, with_pip=True, clear=True)
    try:
        done = subprocess.run(
            [str(found), "-m", "pip", "install", "-q", REQUIREMENT],
            check=False, capture_output=True, text=True, timeout=INSTALL_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise AbsentError(f"{REQUIREMENT} took longer than {INSTALL_S} s to install") from None
    if done.returncode or not _has_wheel(found):
        raise AbsentError(f"{REQUIREMENT} does not install: {done.stderr.strip().splitlines()[-1:]}")
    return found


def _has_wheel(found: Path) -> bool:
    if not found.exists():
        return False
    return subprocess.run([str(found), "-c", "import dynamo._core"], check=False, capture_output=True).returncode == 0
