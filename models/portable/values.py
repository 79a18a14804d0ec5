"""What numbers in a portable estimator may be, as pydantic checks them when JSON is read."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""Of every portable dataclass: no key that it does not know, no number that JSON cannot write."""

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
