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
from typing import Any, TypeAlias, TypeVar, cast

import numba
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.targetconfig import TargetConfig

from policies.kernel_types import Side

F = TypeVar("F", bound=Callable[..., Any])

MARKS = (b"@kernel", b"@inlined", b"@entry_kernel", b"@keys_kernel")
KeysFunction: TypeAlias = Callable[[Side], None]
"""A compiled function of `keys_kernel`, which kernels take as an argument and call."""

CONSTANTS = ("kernel_types", "columns", "parts", "registry", "view", "mixing")
"""Files without kernels whose names kernels read at compile time."""


def _cache_dir() -> Path:
    digest = hashlib.sha256(numba.__version__.encode())
    package = Path(__file__).parent
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if any(mark in source for mark in MARKS) or path.stem in CONSTANTS:
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


_ONLY_LINKED: set[str] = set()
"""Kernels that only kernels call."""


class _Library(JITCodeLibrary):
    """Code of one kernel. What only kernels call is linked as it is; its entry optimises all of it and emits it once.

    numba would optimise every callee again in each of its callers and emit machine code that nobody runs: two fifths of
    the compile time.
    """

    def _optimize_final_module(self) -> None:
        if self.name not in _ONLY_LINKED:
            super()._optimize_final_module()  # type: ignore[no-untyped-call]

    def _finalize_final_module(self) -> None:
        if self.name not in _ONLY_LINKED:
            super()._finalize_final_module()  # type: ignore[no-untyped-call]
            return
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._verify_declare_only_symbols()  # type: ignore[no-untyped-call]
        self._finalized = True


_set_env = JITCPUCodegen.set_env


def _set_env_of_emitted(self: Any, name: str, env: object) -> None:  # noqa: ANN401  # numba has no types
    """numba sets the environment of every function; one that was not emitted has none of its own."""
    if self._engine.is_symbol_defined(name):
        _set_env(self, name, env)  # type: ignore[no-untyped-call]


_equal = TargetConfig.__eq__


def _equal_flags(self: TargetConfig, other: object) -> bool:
    """numba compares flags some 100,000 times and builds two whole dictionaries each time: a tenth of its work."""
    if type(self) is type(other) and self._values == other._values:  # noqa: SLF001
        return True
    return bool(_equal(self, other))  # type: ignore[no-untyped-call]


def _hash_of_flags(self: TargetConfig) -> int:
    """The hash that numba takes: of the options' names, which are the same for all flags of a kind."""
    return hash(tuple(sorted(self.options)))  # type: ignore[attr-defined]


JITCPUCodegen._library_class = _Library  # noqa: SLF001  # where numba looks for it
JITCPUCodegen.set_env = _set_env_of_emitted  # type: ignore[method-assign]
TargetConfig.__eq__ = _equal_flags  # type: ignore[method-assign]
TargetConfig.__hash__ = _hash_of_flags  # type: ignore[method-assign]


def kernel(function: F) -> F:
    """A kernel that only kernels call: it has no way in from Python, and its entry's cache holds it.

    Both would cost more compile time than the kernel itself, since views and states are wide. No fast math: the order
    of operations is part of the result.
    """
    _ONLY_LINKED.add(function.__qualname__)
    return cast(F, numba.njit(**_INNER)(function))


def inlined(function: F) -> F:
    """A small kernel that is copied into its callers: handing its arrays on would cost more than its work."""
    _ONLY_LINKED.add(function.__qualname__)
    return cast(F, numba.njit(**_INNER, forceinline=True)(function))


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
        yield
    done.add(name)
