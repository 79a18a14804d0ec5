"""docs/adding-a-reader.md, followed word by word in a copy of the project: its files, its commands, their output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "adding-a-reader.md"
COPIED = ("features", "models", "policies", "pipelines", "tests/contracts", "tests/features", "tests/golden/ingest",
          "tests/__init__.py", "tests/conftest.py", "pyproject.toml", "routecal.toml")  # fmt: skip
STEP = re.compile(
    r"(?:^`(?P<file>[^`\n]+)`(?:, above each `(?P<above>[^`\n]+)`)?:\n\n)?"
    r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project without what is built, caches and this guide's test."""
    root = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, root / name)
        else:
            unwanted = shutil.ignore_patterns("__pycache__", "*.pyc", "test_guide.py", "test_fuzz.py")
            shutil.copytree(ROOT / name, root / name, ignore=unwanted)
    command = root / "bin" / "routecal"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom pipelines.cli import main\nmain()\n")
    command.chmod(0o755)
    return root


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
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
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


def test_the_guide_word_by_word(copy: Path) -> None:
    steps = list(STEP.finditer(GUIDE.read_text("utf-8")))
    assert [step["kind"] for step in steps].count("console") == 2
    assert [step["file"] for step in steps if step["file"]] == [
        "tests/golden/ingest/acme-gateway/access.jsonl",
        "features/readers/acme_gateway.py",
        "features/readers/registry.py",
        "tests/contracts/samples/acme_gateway.py",
    ]
    for step in steps:
        if step["kind"] != "console":
            write(copy, step["file"], step["above"], step["body"])
            continue
        for part in re.split(r"^\$ ", step["body"], flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            printed = run(copy, command)
            assert shown(output, printed), f"{command}\nthe guide:\n{output}\nprinted:\n{printed}"


def test_what_the_guide_shows_is_in_the_style_of_the_house(copy: Path) -> None:
    """Runs after the guide was followed: its Python is formatted, linted and typed like ours."""
    made = [step["file"] for step in STEP.finditer(GUIDE.read_text("utf-8")) if step["kind"] == "python"]
    tools = Path(sys.executable).parent
    for command in (["ruff", "check"], ["ruff", "format", "--check"]):
        done = subprocess.run([tools / command[0], *command[1:], *made], cwd=copy, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
