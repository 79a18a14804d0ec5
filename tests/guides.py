"""Following a guide of docs/ word by word in a copy of the project: what it makes, what it runs, what that prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
STEP = re.compile(
    r"(?:^`(?P<file>[^`\n]+)`(?:, above each `(?P<above>[^`\n]+)`)?:\n\n)?"
    r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def steps_of(guide: str) -> list[re.Match[str]]:
    """The files and commands that a page of docs/ shows, in its order."""
    return list(STEP.finditer((ROOT / "docs" / guide).read_text("utf-8")))


def copy_project(root: Path, names: Iterable[str], without: Sequence[str]) -> None:
    """Files and folders of the project, without what is built and without files of these names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, root / name)
        else:
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", *without))


def write(root: Path, name: str, above: str | None, body: str) -> None:
    """A file as the guide shows it, or its lines above each line that it names."""
    path = root / name
    if above is None:
        assert not path.exists(), f"the guide makes {name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, "utf-8")
        return
    place = re.compile(rf"^( *){re.escape(above)}$", re.MULTILINE)
    text, times = place.subn(rf"\g<1>{body.strip()}\n\g<0>", path.read_text("utf-8"))
    assert times == 2, f"{above} must stand in both lists of {name}"
    path.write_text(text, "utf-8")


def run(root: Path, command: str) -> str:
    """What a command prints, as a terminal shows it."""
    path = os.pathsep.join([str(root / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {"PATH": path, "PYTHONPATH": str(root), "POLARS_MAX_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV", "NUMBA"))}
    done = subprocess.run(
        command, shell=True, cwd=root, env={**kept, **own}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def shown(wanted: str, printed: str) -> bool:
    """The guide's lines are the last ones that were printed; `…` stands for any text."""
    lines = wanted.strip().splitlines()
    pattern = "\n".join(".*".join(map(re.escape, line.rstrip().split("…"))) for line in lines)
    ends = "\n".join(line.rstrip() for line in printed.strip().splitlines()[-len(lines) :])
    return re.fullmatch(pattern, ends) is not None


def follow(root: Path, steps: Iterable[re.Match[str]]) -> None:
    """Make every file, run every command, and compare what it prints."""
    for step in steps:
        if step["kind"] != "console":
            write(root, step["file"], step["above"], step["body"])
            continue
        for part in re.split(r"^\$ ", step["body"], flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            printed = run(root, command)
            assert shown(output, printed), f"{command}\nthe guide:\n{output}\nprinted:\n{printed}"


def check_style(root: Path, steps: Iterable[re.Match[str]]) -> None:
    """The Python that the guide made is formatted and linted like ours."""
    made = [step["file"] for step in steps if step["kind"] == "python"]
    tools = Path(sys.executable).parent
    for command in (["ruff", "check"], ["ruff", "format", "--check"]):
        done = subprocess.run([tools / command[0], *command[1:], *made], cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
