"""Estimators <-> plain JSON values, strict and exact.

Floats keep every bit (shortest round-trip digits). Numbers stay below 2⁵³, so canonical JSON can write them and read
them back. `token_cap` null = no cap. Values that JSON turned into integers (1.0 -> 1) come back as floats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from features.errors import ModelError
from models.portable import PATHS, Estimators, LengthTable, RiskSigma, StepLaw, TransferLaw

Json: TypeAlias = "float | int | str | bool | Sequence[Json] | Mapping[str, Json] | None"

NO_CAP = 1e18
LARGEST = 2.0**53


def to_dict(estimators: Estimators) -> dict[str, Json]:
    """Plain dicts, lists and numbers, keys sorted. ModelError if a number is not finite or a shape is wrong."""
    length, transfer, risk = estimators.length, estimators.transfer, estimators.risk
    made: dict[str, Json] = {
        "decode": _law(estimators.decode),
        "length": {
            "levels": _floats(length.levels),
            "offset": {name: _floats(length.offset[name]) for name in sorted(length.offset)},
            "prompt_edges": [int(edge) for edge in length.prompt_edges],
            "tokens": {name: [_floats(row) for row in length.tokens[name]] for name in sorted(length.tokens)},
        },
        "prefill": _law(estimators.prefill),
        "risk": {"tpot": _float(risk.tpot), "ttft": _float(risk.ttft)},
        "transfer": {
            "alpha_s": _by_name(transfer.alpha_s),
            "efficiency": _by_name(transfer.efficiency),
            "sigma": _float(transfer.sigma),
        },
    }
    from_dict(made)  # what is written can be read, or nothing is written
    return made


def from_dict(value: Json) -> Estimators:
    """The estimators behind `to_dict`. ModelError names the place of the first rule that is broken."""
    top = _object(value, "estimators", {"length", "prefill", "decode", "transfer", "risk"})
    risk = _object(top["risk"], "estimators.risk", {"ttft", "tpot"})
    return Estimators(
        length=_read_length(top["length"], "estimators.length"),
        prefill=_read_law(top["prefill"], "estimators.prefill"),
        decode=_read_law(top["decode"], "estimators.decode"),
        transfer=_read_transfer(top["transfer"], "estimators.transfer"),
        risk=RiskSigma(
            ttft=_number(risk["ttft"], "estimators.risk.ttft", above=0.0),
            tpot=_number(risk["tpot"], "estimators.risk.tpot", above=0.0),
        ),
    )


def _float(value: float) -> float:
    return float(value) + 0.0  # -0.0 -> 0.0: canonical JSON has one zero


def _floats(values: Sequence[float]) -> list[float]:
    return [_float(value) for value in values]


def _by_name(values: Mapping[str, float]) -> dict[str, Json]:
    return {name: _float(values[name]) for name in sorted(values)}


def _law(law: StepLaw) -> dict[str, Json]:
    return {
        "bucket_edges": [int(edge) for edge in law.bucket_edges],
        "bucket_factor": _floats(law.bucket_factor),
        "coef": _floats(law.coef),
        "node_factor": _by_name(law.node_factor),
        "sigma": _float(law.sigma),
        "token_cap": None if law.token_cap == NO_CAP else _float(law.token_cap),
    }


def _read_law(value: Json, place: str) -> StepLaw:
    keys = {"bucket_edges", "bucket_factor", "coef", "node_factor", "sigma", "token_cap"}
    law = _object(value, place, keys)
    coef = _numbers(law["coef"], f"{place}.coef", length=4)
    cap = law["token_cap"]
    edges = _edges(law["bucket_edges"], f"{place}.bucket_edges")
    return StepLaw(
        coef=(coef[0], coef[1], coef[2], coef[3]),
        node_factor=_factors(law["node_factor"], f"{place}.node_factor"),
        bucket_edges=edges,
        bucket_factor=_numbers(law["bucket_factor"], f"{place}.bucket_factor", length=len(edges) + 1, above=0.0),
        token_cap=NO_CAP if cap is None else _number(cap, f"{place}.token_cap", above=0.0),
        sigma=_number(law["sigma"], f"{place}.sigma", least=0.0),
    )


def _read_transfer(value: Json, place: str) -> TransferLaw:
    law = _object(value, place, {"alpha_s", "efficiency", "sigma"})
    alpha = _object(law["alpha_s"], f"{place}.alpha_s", set(PATHS))
    efficiency = _object(law["efficiency"], f"{place}.efficiency", set(PATHS))
    read = {path: _number(efficiency[path], f"{place}.efficiency.{path}", above=0.0) for path in PATHS}
    for path, share in read.items():
        if share > 1.0:
            raise ModelError("`efficiency <= 1` must hold", value=share, place=f"{place}.efficiency.{path}")
    return TransferLaw(
        alpha_s={path: _number(alpha[path], f"{place}.alpha_s.{path}", least=0.0) for path in PATHS},
        efficiency=read,
        sigma=_number(law["sigma"], f"{place}.sigma", least=0.0),
    )


def _read_length(value: Json, place: str) -> LengthTable:
    table = _object(value, place, {"levels", "offset", "prompt_edges", "tokens"})
    levels = _numbers(table["levels"], f"{place}.levels", above=0.0)
    if not levels or levels[-1] >= 1.0 or any(b <= a for a, b in pairwise(levels)):
        raise ModelError("levels must ascend inside (0, 1)", value=levels, place=f"{place}.levels")
    edges = _edges(table["prompt_edges"], f"{place}.prompt_edges")
    names = _names(table["tokens"], f"{place}.tokens")
    if "*" not in names:
        raise ModelError("the table must have the row `*` for classes that it does not name", place=f"{place}.tokens")
    tokens = {}
    for name, rows in names.items():
        where = f"{place}.tokens.{name}"
        read = [
            _numbers(row, f"{where}[{at}]", length=len(levels), least=0.0) for at, row in enumerate(_array(rows, where))
        ]
        if len(read) != len(edges) + 1:
            raise ModelError("a class must have one row a prompt bin", value=(len(read), len(edges) + 1), place=where)
        tokens[name] = tuple(read)
    offsets = _object(table["offset"], f"{place}.offset", set(tokens))
    offset = {
        name: _numbers(offsets[name], f"{place}.offset.{name}", length=len(levels), above=0.0) for name in offsets
    }
    return LengthTable(levels=levels, prompt_edges=edges, tokens=tokens, offset=offset)


def _names(value: Json, place: str) -> Mapping[str, Json]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ModelError("an object must stand here", value=type(value).__name__, place=place)
    return value


def _object(value: Json, place: str, keys: set[str]) -> Mapping[str, Json]:
    found = _names(value, place)
    if set(found) != keys:
        missing, unknown = sorted(keys - set(found)), sorted(set(found) - keys)
        raise ModelError(f"the keys must be {sorted(keys)}", value=f"missing {missing}, unknown {unknown}", place=place)
    return found


def _array(value: Json, place: str) -> Sequence[Json]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ModelError("an array must stand here", value=type(value).__name__, place=place)
    return value


def _number(value: Json, place: str, *, least: float = -LARGEST, above: float | None = None) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError("a number must stand here", value=value, place=place)
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise ModelError("a number must be finite and at most 2^53 in size", value=value, place=place)
    if value < least or (above is not None and value <= above):
        rule = f"`x > {above}` must hold" if above is not None else f"`x >= {least}` must hold"
        raise ModelError(rule, value=value, place=place)
    return float(value)


def _numbers(
    value: Json, place: str, *, length: int | None = None, least: float = -LARGEST, above: float | None = None
) -> tuple[float, ...]:
    items = _array(value, place)
    if length is not None and len(items) != length:
        raise ModelError(f"an array of {length} numbers must stand here", value=len(items), place=place)
    return tuple(_number(item, f"{place}[{at}]", least=least, above=above) for at, item in enumerate(items))


def _edges(value: Json, place: str) -> tuple[int, ...]:
    edges = _numbers(value, place)
    if any(edge != math.floor(edge) for edge in edges) or any(b <= a for a, b in pairwise(edges)):
        raise ModelError("edges must be whole numbers that ascend", value=edges, place=place)
    return tuple(int(edge) for edge in edges)


def _factors(value: Json, place: str) -> dict[str, float]:
    return {name: _number(factor, f"{place}.{name}", above=0.0) for name, factor in _names(value, place).items()}
