"""The compiled keys of every family: modules of kernels are imported when a family is asked for."""

from __future__ import annotations

from importlib import import_module

from policies.compiled import KeysFunction, KeysKernel
from policies.families.registry import BY_NAME, PAIRS

_UNUSED = "policies.families.round_robin_kernel"


def keys_of(family: str) -> KeysFunction:
    """What kernels call for the keys of a family's nodes; the family that scores pairs never calls it."""
    module = _UNUSED if family == PAIRS else BY_NAME[family].kernel
    found: KeysKernel = import_module(module).keys
    return found.compiled
