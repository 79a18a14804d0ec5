"""The one way to compile a kernel: numba, cached, with a cache that a change of any kernel's source invalidates.

numba's own cache looks at the file of the outermost function only; after a change in a callee it would run old code.
So the cache folder is named after a digest of the numba version, of every file of policies/ that holds kernels, and of
the files whose constants they compile in.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

CONSTANTS = ("kernel_types", "columns", "parts", "registry", "view", "mixing")
"""Files without kernels whose names kernels read at compile time."""


def _cache_dir() -> Path:
    digest = hashlib.sha256(numba.__version__.encode())
    package = Path(__file__).parent
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if b"@kernel" in source or b"@inlined" in source or b"@entry_kernel" in source or path.stem in CONSTANTS:
            digest.update(source)
    root = os.environ.get("ROUTECAL_KERNEL_CACHE") or str(package.parent / ".cache" / "kernels")
    return Path(root) / digest.hexdigest()[:16]


CACHE = _cache_dir()
numba.config.CACHE_DIR = str(CACHE)  # type: ignore[attr-defined]  # made at import, from the environment

# numba's stubs do not know these options. `_nrt`: kernels allocate nothing, so nothing needs to count references; that
# is a third of their run time.
_KERNEL: dict[str, Any] = {"error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
_INNER = _KERNEL | {"no_cpython_wrapper": True}
_ENTRY = _KERNEL | {"cache": True}


def kernel(function: F) -> F:
    """A kernel that only kernels call: it has no way in from Python, and its entry's cache holds it.

    Both would cost more compile time than the kernel itself, since views and states are wide. No fast math: the order
    of operations is part of the result.
    """
    return cast(F, numba.njit(**_INNER)(function))


def inlined(function: F) -> F:
    """A small kernel that is copied into its callers: handing its arrays on would cost more than its work."""
    return cast(F, numba.njit(**_INNER, forceinline=True)(function))


def entry_kernel(function: F) -> F:
    """A kernel that Python calls: compiled on first use, machine code kept on disk."""
    return cast(F, numba.njit(**_ENTRY)(function))


@contextmanager
def one_compiler(done: set[str], name: str) -> Iterator[None]:
    """Around a call of an entry kernel: of processes that would all compile it, one does and the others then load it.

    `done` names the entries that this process has called; for those nothing is locked.
    """
    if name in done:
        yield
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    done.add(name)
