"""No kernel counts from an array's end: compiled ones are not asked whether an index is below 0."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("numbers", [(0, 40), pytest.param((40, 640), marks=pytest.mark.slow)])
def test_no_index_is_below_zero(numbers):
    command = [sys.executable, "-m", "tests.policies.twin.checked_indices", *map(str, numbers)]
    done = subprocess.run(command, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
