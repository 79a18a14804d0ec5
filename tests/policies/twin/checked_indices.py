"""`python -m tests.policies.twin.checked_indices FIRST LAST`: kernels as plain Python, where an index below 0 raises.

Compiled kernels read what lies before the array instead (policies/numba_setup.py).
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import numpy as np

from policies.twin import replay as twin
from tests.policies.twin.scenarios import build
from tests.policies.twin.test_engine_equals_reference import run


class Checked(np.ndarray):
    """An array that takes no index below 0."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(_not_from_the_end(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_not_from_the_end(index), value)


def _not_from_the_end(index: Any) -> Any:
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, (int, np.integer)) and part < 0:
            raise IndexError(f"index {part}")
    return index


def checked(argument: Any) -> Any:
    """The same memory, with every array checked."""
    if isinstance(argument, np.ndarray):
        return argument.view(Checked)
    return argument._make(map(checked, argument)) if hasattr(argument, "_make") else argument


def main(first: str, last: str) -> None:
    """Replay scenarios."""
    assert os.environ.get("NUMBA_DISABLE_JIT") == "1"
    warnings.simplefilter("ignore")  # of whole numbers that wrap in a hash
    loop = twin.run
    twin.run = lambda keys, *parts: loop(keys, *map(checked, parts))  # type: ignore[assignment]
    for number in range(int(first), int(last)):
        run(twin.replay, build(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
