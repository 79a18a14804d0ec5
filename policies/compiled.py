"""The one way to compile a kernel: numba, cached, with a cache that a change of any kernel's source invalidates.

numba's own cache looks at the file of the outermost function only; after a change in a callee it would run old code.
So the cache folder is named after a digest of the numba version, of every file of policies/ that holds kernels, and of
the files whose constants they compile in.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

CONSTANTS = ("kernel_types", "engine_state", "registry", "view", "mixing")
"""Files without kernels whose names kernels read at compile time."""


def _cache_dir() -> Path:
    digest = hashlib.sha256(numba.__version__.encode())
    package = Path(__file__).parent
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if b"@kernel" in source or b"@entry_kernel" in source or path.stem in CONSTANTS:
            digest.update(source)
    root = os.environ.get("ROUTECAL_KERNEL_CACHE") or str(package.parent / ".cache" / "kernels")
    return Path(root) / digest.hexdigest()[:16]


numba.config.CACHE_DIR = str(_cache_dir())


def kernel(function: F) -> F:
    """A kernel that only kernels call. It has no way in from Python and no cache of its own: its entry's cache holds it.

    Both would cost more compile time than the kernel itself, since views and states are wide. No fast math: the order
    of operations is part of the result.
    """
    return cast(F, numba.njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))


def entry_kernel(function: F) -> F:
    """A kernel that Python calls: compiled on first use, machine code kept on disk."""
    return cast(F, numba.njit(cache=True, error_model="numpy", no_cfunc_wrapper=True)(function))
