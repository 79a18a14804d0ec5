"""numba as kernels need it: many small functions over wide named tuples, compiled once and handed little.

What numba does by default costs twice the compile time and two fifths of the run time.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any

import llvmlite.binding as llvm
from numba import types
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.targetconfig import TargetConfig
from numba.np import arrayobj, linalg

ONLY_LINKED: set[str] = set()
"""Kernels that only kernels call."""


class _Library(JITCodeLibrary):
    """Code of one kernel. What only kernels call is linked as it is; its entry optimises all of it and emits it once.

    numba would optimise every callee again in each of its callers and emit machine code that nobody runs: two fifths of
    the compile time.
    """

    def _optimize_final_module(self) -> None:
        if self.name in ONLY_LINKED:
            return
        # Nobody outside calls what was linked. An argument that it does not read need not be handed to it, and of an
        # array that is most: two fifths of the run time.
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.linkonce_odr:
                function.linkage = llvm.Linkage.internal
        passes = llvm.create_new_module_pass_manager()
        passes.add_dead_arg_elimination_pass()
        options = llvm.create_pipeline_tuning_options()
        passes.run(self._final_module, llvm.create_pass_builder(self._codegen._tm, options))  # noqa: SLF001
        super()._optimize_final_module()  # type: ignore[no-untyped-call]

    def _finalize_final_module(self) -> None:
        if self.name not in ONLY_LINKED:
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


@cache
def _defaults(kind: type[TargetConfig]) -> dict[str, object]:
    return {name: option.default for name, option in kind.options.items()}


def _chosen(flags: TargetConfig) -> dict[str, object]:
    """Options that are not at their defaults."""
    defaults = _defaults(type(flags))
    return {name: value for name, value in flags._values.items() if value != defaults[name]}  # noqa: SLF001


def _equal_flags(self: TargetConfig, other: object) -> bool:
    """numba compares flags some 200,000 times and builds two whole dictionaries each time: a tenth of its work."""
    return type(self) is type(other) and _chosen(self) == _chosen(other)


def _hash_of_flags(self: TargetConfig) -> int:
    """numba's own is the same for all flags."""
    return hash(frozenset(_chosen(self)))


def _no_blas() -> None:
    """No kernel multiplies matrices, and to see whether it could numba imports scipy: as long as loading the twin."""
    raise ImportError


_fix_index = arrayobj.fix_integer_index


def _index(context: Any, builder: Any, kind: Any, value: Any, size: Any) -> Any:  # noqa: ANN401
    """numba looks at every index for a count from the end: a tenth of the run time. Kernels have none, by test."""
    if "8policies" in builder.function.name:  # the package's name as it is mangled
        return context.cast(builder, value, kind, types.intp)
    return _fix_index(context, builder, kind, value, size)  # type: ignore[no-untyped-call]


JITCPUCodegen._library_class = _Library  # noqa: SLF001  # where numba looks for it
JITCPUCodegen.set_env = _set_env_of_emitted  # type: ignore[method-assign]
TargetConfig.__eq__ = _equal_flags  # type: ignore[method-assign]
TargetConfig.__hash__ = _hash_of_flags  # type: ignore[method-assign]
arrayobj.fix_integer_index = _index
_ensure_blas, linalg.ensure_blas = linalg.ensure_blas, _no_blas
import_module("numba.np.arraymath")  # asks now
linalg.ensure_blas = _ensure_blas


def _widened(argument: Any) -> Any:  # noqa: ANN401  # numba has no types
    plain: Any = types.unliteral(argument)  # type: ignore[no-untyped-call]
    return types.int64 if plain in types.signed_domain else plain


def compiled_once(dispatcher: Any) -> Any:  # noqa: ANN401
    """numba would compile a kernel again for every constant and every width of whole numbers that it is called with."""
    if isinstance(dispatcher, FunctionType):
        return dispatcher  # NUMBA_DISABLE_JIT
    resolve = dispatcher.get_call_template

    def get_call_template(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:  # noqa: ANN401
        return resolve(tuple(_widened(arg) for arg in args), {name: _widened(arg) for name, arg in kws.items()})

    dispatcher.get_call_template = get_call_template
    return dispatcher
