"""The shared data folder beside the checkout, where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[3] / "shared"


def real_data(*parts: str) -> Path:
    """A file of the shared data; skips the test if the folder is absent."""
    root = Path(os.environ.get("ROUTECAL_SHARED", _BESIDE))
    if not root.is_dir():
        pytest.skip("shared data folder absent")
    return root.joinpath("data", "real", *parts)
