"""Stages of a night as plain JSON values, so that one stage can go on from what another one stored.

Numbers survive exactly. Estimators are kept in their portable form, all else by field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from features.errors import LakeError
from models.fit import FitReport, HoldoutReport
from models.honesty.gate import Gate
from models.honesty.reading import Reading
from models.portable_json import from_dict, to_dict
from pipelines.night.fit import Fitted

T = TypeVar("T")

_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""Building one takes longer than most values do; a night has a thousand of a few kinds."""


def plain(kind: type[T], value: T) -> Any:  # noqa: ANN401  JSON
    """A dataclass and all that it holds as plain values."""
    return _adapter(kind).dump_python(value, mode="json", warnings="error")


def restored(kind: type[T], value: object) -> T:
    """What `plain` made, as it was. Raises LakeError for a value of another form, as an older version may have left."""
    try:
        found: T = _adapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise LakeError(
            f"a stored {kind.__name__} must be whole: {first['msg']}",
            place=".".join(str(part) for part in first["loc"]),
            hint="materialize the asset that it comes from again",
        ) from error
    return found


def plain_fitted(fitted: Fitted) -> dict[str, Any]:
    """{estimators, refits (portable form), report, holdout, rows, notes, gates, readings, digests}, and `origin` to
    read.
    """
    return {
        "estimators": to_dict(fitted.estimators),
        # The whole model behind the length law is worth its scores only.
        "report": plain(FitReport, replace(fitted.report, length=replace(fitted.report.length, full=None))),
        "holdout": plain(HoldoutReport, fitted.holdout),
        "rows": dict(fitted.rows),
        "notes": list(fitted.notes),
        "gates": [plain(Gate, gate) for gate in fitted.gates],
        "readings": [plain(Reading, reading) for reading in fitted.readings],
        "digests": dict(fitted.digests),
        "refits": [to_dict(again) for again in fitted.refits],
        "origin": fitted.origin,
    }


def restored_fitted(value: dict[str, Any]) -> Fitted:
    """What `plain_fitted` made, as it was."""
    return Fitted(
        estimators=from_dict(value["estimators"]),
        report=restored(FitReport, value["report"]),
        holdout=restored(HoldoutReport, value["holdout"]),
        rows=value["rows"],
        notes=tuple(value["notes"]),
        gates=tuple(restored(Gate, gate) for gate in value["gates"]),
        readings=tuple(restored(Reading, reading) for reading in value["readings"]),
        digests=value["digests"],
        refits=tuple(from_dict(again) for again in value["refits"]),
    )
