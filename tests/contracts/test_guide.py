"""docs/adding-a-reader.md, followed word by word in a copy of the project: its files, its commands, their output."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.guides import check_style, copy_project, follow, steps_of

STEPS = steps_of("adding-a-reader.md")
COPIED = ("features", "models", "policies", "pipelines", "tests/contracts", "tests/features", "tests/golden/ingest",
          "tests/__init__.py", "tests/conftest.py", "pyproject.toml", "routecal.toml")  # fmt: skip


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project without what is built, caches and this guide's test."""
    root = tmp_path_factory.mktemp("checkout")
    copy_project(root, COPIED, ("test_guide.py", "test_fuzz.py"))
    command = root / "bin" / "routecal"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom pipelines.cli import main\nmain()\n")
    command.chmod(0o755)
    return root


def test_the_guide_word_by_word(copy: Path) -> None:
    assert [step["kind"] for step in STEPS].count("console") == 2
    assert [step["file"] for step in STEPS if step["file"]] == [
        "tests/golden/ingest/acme-gateway/access.jsonl",
        "features/readers/acme_gateway.py",
        "features/readers/registry.py",
        "tests/contracts/samples/acme_gateway.py",
    ]
    follow(copy, STEPS)


def test_what_the_guide_shows_is_in_the_style_of_the_house(copy: Path) -> None:
    """Runs after the guide was followed."""
    check_style(copy, STEPS)
