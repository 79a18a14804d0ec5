"""The one way to compile a kernel: numba, cached, with a cache that a change of any kernel's source invalidates.

numba's own cache looks at the file of the outermost function only; after a change in a callee it would run old code.
So the cache folder is named after a digest of the numba version, of every file of policies/ that holds kernels, and of
the files that what is compiled depends on.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numba

from policies.kernel_types import Side
from policies.numba_setup import ONLY_LINKED, compiled_once

F = TypeVar("F", bound=Callable[..., Any])

MARKS = (b"@kernel", b"@inlined", b"@entry_kernel", b"@keys_kernel")
KeysFunction: TypeAlias = Callable[[Side], None]
"""A compiled function of `keys_kernel`, which kernels take as an argument and call."""

OTHERS = ("kernel_types", "columns", "parts", "registry", "view", "mixing", "numba_setup")
"""Files without kernels: those whose names kernels read at compile time, and how kernels are compiled."""


def _cache_dir() -> Path:
    digest = hashlib.sha256(numba.__version__.encode())
    package = Path(__file__).parent
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if any(mark in source for mark in MARKS) or path.stem in OTHERS:
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
_KEYS: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False}


def kernel(function: F) -> F:
    """A kernel that only kernels call: it has no way in from Python, and its entry's cache holds it.

    Both would cost more compile time than the kernel itself, since views and states are wide. No fast math: the order
    of operations is part of the result.
    """
    ONLY_LINKED.add(function.__qualname__)
    return cast(F, compiled_once(numba.njit(**_INNER)(function)))


def inlined(function: F) -> F:
    """A small kernel that is copied into its callers: handing its arrays on would cost more than its work."""
    ONLY_LINKED.add(function.__qualname__)
    return cast(F, compiled_once(numba.njit(**_INNER, forceinline=True)(function)))


def entry_kernel(function: F) -> F:
    """A kernel that Python calls: compiled on first use, machine code kept on disk."""
    return cast(F, numba.njit(**_ENTRY)(function))


class KeysKernel:
    """A kernel that takes a `Side` and fills its keys, compiled on first use apart from everything else.

    Kernels get it as a function value: an engine that is compiled once serves every family, and a family that nobody
    asks for costs no compile time.
    """

    def __init__(self, function: KeysFunction) -> None:
        self.function = function
        self._compiled: KeysFunction | None = None

    @property
    def compiled(self) -> KeysFunction:
        """What kernels call."""
        if self._compiled is None:
            if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
                self._compiled = self.function
            else:
                self._compiled = self._compile()
        return self._compiled

    def _compile(self) -> KeysFunction:
        types = numba.types
        row, rows, whole, count = types.float64[::1], types.float64[:, ::1], types.int64[::1], types.int64
        fields = (row, rows, whole, count, count, count, count, count, types.uint64, count, row)
        side = types.NamedTuple(fields, Side)  # type: ignore[no-untyped-call]
        return cast(KeysFunction, numba.cfunc(types.void(side), **_KEYS)(self.function))


def keys_kernel(function: KeysFunction) -> KeysKernel:
    """The keys of one family."""
    return KeysKernel(function)


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
        collects = gc.isenabled()
        gc.disable()  # what a compiler builds stays in use: looking for garbage in it is a fifth of its time
        try:
            yield
        finally:
            if collects:
                gc.enable()
    done.add(name)
