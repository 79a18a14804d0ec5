"""docs/adding-a-family.md, followed word by word in a copy of the project: its files, its command, its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guides import check_style, copy_project, follow, steps_of

STEPS = steps_of("adding-a-family.md")
COPIED = ("features", "models", "policies", "tests/policies/families", "tests/policies/views.py", "tests/__init__.py",
          "tests/conftest.py", "pyproject.toml")  # fmt: skip


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's packages without what is built and without this test."""
    root = tmp_path_factory.mktemp("checkout")
    copy_project(root, COPIED, ("test_guide.py",))
    return root


@pytest.mark.slow
def test_the_guide_word_by_word(copy: Path) -> None:
    assert [step["file"] for step in STEPS if step["file"]] == [
        "policies/families/acme_wait.py",
        "policies/families/acme_wait_kernel.py",
        "policies/families/registry.py",
        "tests/policies/families/test_acme_wait.py",
    ]
    follow(copy, STEPS)


@pytest.mark.slow
def test_what_the_guide_shows_is_in_the_style_of_the_house(copy: Path) -> None:
    """Runs after the guide was followed."""
    check_style(copy, STEPS)
