"""docs/adding-a-family.md, followed word by word in a copy of the project: its files, its command, its output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "adding-a-family.md"
COPIED = ("features", "models", "policies", "tests/policies/families", "tests/policies/views.py", "tests/__init__.py",
          "tests/conftest.py", "pyproject.toml")  # fmt: skip
STEP = re.compile(
    r"(?:^`(?P<file>[^`\n]+)`(?:, above each `(?P<above>[^`\n]+)`)?:\n\n)?"
    r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
STEPS = list(STEP.finditer(GUIDE.read_text("utf-8")))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's packages without what is built and without this test."""
    root = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, root / name)
        else:
            unwanted = shutil.ignore_patterns("__pycache__", "*.pyc", "test_guide.py")
            shutil.copytree(ROOT / name, root / name, ignore=unwanted)
    return root


def write(root: Path, name: str, above: str | None, body: str) -> None:
    """A file as the guide shows it, or its lines above each line that it names."""
    path = root / name
    if above is None:
        assert not path.exists(), f"the guide makes {name}"
        path.write_text(body, "utf-8")
        return
    place = re.compile(rf"^( *){re.escape(above)}$", re.MULTILINE)
    text, times = place.subn(rf"\g<1>{body.strip()}\n\g<0>", path.read_text("utf-8"))
    assert times == 2, f"{above} must stand in both lists of {name}"
    path.write_text(text, "utf-8")


def run(root: Path, command: str) -> str:
    """What a command prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV", "NUMBA"))}
    own = {"PATH": path, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, shell=True, cwd=root, env={**kept, **own}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


@pytest.mark.slow
def test_the_guide_word_by_word(copy: Path) -> None:
    assert [step["file"] for step in STEPS if step["file"]] == [
        "policies/families/acme_wait.py",
        "policies/families/acme_wait_kernel.py",
        "policies/families/registry.py",
        "tests/policies/families/test_acme_wait.py",
    ]
    for step in STEPS:
        if step["kind"] != "console":
            write(copy, step["file"], step["above"], step["body"])
            continue
        command, _, output = step["body"].removeprefix("$ ").partition("\n")
        printed = run(copy, command)
        pattern = ".*".join(map(re.escape, output.strip().split("…")))
        assert re.fullmatch(pattern, printed.strip().splitlines()[-1]), printed


@pytest.mark.slow
def test_what_the_guide_shows_is_in_the_style_of_the_house(copy: Path) -> None:
    """Runs after the guide was followed: its Python is formatted, linted and typed like ours."""
    made = [step["file"] for step in STEPS if step["kind"] == "python"]
    tools = Path(sys.executable).parent
    for command in (["ruff", "check"], ["ruff", "format", "--check"]):
        done = subprocess.run([tools / command[0], *command[1:], *made], cwd=copy, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
