"""What every test may use: the folder of shared real data, golden files, one setting of threads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared real data: $ROUTECAL_SHARED, else ../shared beside the checkout; skips without it."""
    folder = Path(os.environ.get("ROUTECAL_SHARED") or ROOT.parent / "shared")
    if not (folder / "data" / "real").is_dir():
        pytest.skip(f"shared data folder absent: {folder} (set ROUTECAL_SHARED)")
    return folder


@pytest.fixture(scope="session")
def shared_real(shared: Path) -> Path:
    """The real traces and profiles in the shared folder."""
    return shared / "data" / "real"
