"""Estimators in the form that ships: plain numbers that a router in any language can evaluate.

The policy file carries this form, the twin's router uses it, and every score is taken of it, so there is no skew
between what was tested and what runs. Evaluation is written with + - * / and comparisons only (logarithms of a length's
inputs apart), in a fixed order: kernels repeat it and must agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from features.errors import ModelError
from models.portable.cache import CacheLaw
from models.portable.length import LengthLaw
from models.portable.steps import DECODE_INPUTS, PREFILL_INPUTS, StepLaws
from models.portable.transfer import TransferLaw
from models.portable.values import STRICT, Positive


@dataclass(frozen=True, slots=True)
class RiskSigma:
    """Standard deviation of log(realised/predicted): TTFT and TPOT of a placement, as SloRisk uses them."""

    __pydantic_config__ = STRICT

    ttft: Positive = 0.25
    tpot: Positive = 0.1


@dataclass(frozen=True, slots=True)
class Estimators:
    """Everything that a decision and the twin need. `cache`: P node -> its prefix cache; none = as settings say."""

    __pydantic_config__ = STRICT

    length: LengthLaw
    prefill: StepLaws
    decode: StepLaws
    transfer: TransferLaw
    risk: RiskSigma = RiskSigma()
    cache: Mapping[str, CacheLaw] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("prefill", self.prefill, 5, len(PREFILL_INPUTS))
        _check("decode", self.decode, 4, len(DECODE_INPUTS))


def _check(kind: str, laws: StepLaws, coefficients: int, inputs: int) -> None:
    """Every law of a kind has its coefficients and reads its own inputs only."""
    for name, law in laws.by_type.items():
        place = f"estimators.{kind}.by_type.{name}"
        if len(law.coef) != coefficients:
            raise ModelError(f"a {kind} law must have {coefficients} coefficients", value=len(law.coef), place=place)
        if any(feature >= inputs for feature in law.trees.feature):
            raise ModelError(f"trees of a {kind} law must read inputs 0..{inputs - 1}", place=place)
        leaves = [value for feature, value in zip(law.trees.feature, law.trees.value, strict=True) if feature < 0]
        if any(value <= 0.0 for value in leaves):
            raise ModelError(f"leaves of trees of a {kind} law must be above 0", value=min(leaves), place=place)
