"""Whether a decoded JSON value fits a polars dtype, as strictly as polars reads JSON lines itself.

One thing is stricter: polars writes an object or array out as text where a text is wanted, which would let anything
pass.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import polars as pl

_RANGES = {pl.Int64: (-(2**63), 2**63 - 1), pl.UInt64: (0, 2**64 - 1)}


def misfit(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Path of the first field that does not fit (`body.loads[].dp_rank`), "" if all fit. Null and absent fit."""
    for name, dtype in schema.items():
        wrong = _misfit(value.get(name), dtype, name)
        if wrong:
            return wrong
    return ""


def _misfit(value: Any, dtype: Any, path: str) -> str:  # noqa: ANN401  any JSON value
    if value is None:
        return ""
    if isinstance(dtype, pl.Struct):
        if not isinstance(value, dict):
            return path
        inner = misfit(value, dict(dtype.to_schema()))
        return f"{path}.{inner}" if inner else ""
    if isinstance(dtype, pl.List):
        if not isinstance(value, list):
            return path
        found = (_misfit(item, dtype.inner, f"{path}[]") for item in value)
        return next((wrong for wrong in found if wrong), "")
    return "" if _fits_scalar(value, dtype) else path


def _fits_scalar(value: Any, dtype: Any) -> bool:  # noqa: ANN401  any JSON value
    if dtype == pl.String:
        return not isinstance(value, dict | list)  # an id that is a number is read as its digits
    if dtype == pl.Boolean:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if dtype == pl.Float64:
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    low, high = _RANGES[dtype]
    return isinstance(value, int) and low <= value <= high
