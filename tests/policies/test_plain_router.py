"""A router in plain Python needs neither numpy nor what fits and replays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PLAIN = (
    "models.portable_json",
    "models.portable.length_online",
    "policies.families.registry",
    "policies.stages",
)
HEAVY = ("numpy", "lightgbm", "numba", "polars", "scipy", "sklearn", "pandas")


def test_the_plain_decision_imports_nothing_heavy():
    lines = ["import sys", *(f"import {name}" for name in PLAIN), f"print([m for m in {HEAVY} if m in sys.modules])"]
    made = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.strip() == "[]"
