"""Estimators in the form that ships: plain numbers that a router in any language can evaluate.

The policy file carries this form, the twin's router uses it, and every score is taken of it, so there is no skew
between what was tested and what runs. Evaluation is written with + - * / and comparisons only, in a fixed order:
kernels repeat it and must agree bit for bit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from features.errors import ModelError

PATHS = ("local", "cross")
"""Kinds of P -> D path: inside one rack, and over the racks' uplink."""


@dataclass(frozen=True, slots=True)
class StepLaw:
    """Seconds of one engine step, as a polynomial × node factor × bucket factor.

    Prefill step: x = (1, T, T², Σ chunk·context), T = new tokens of all prompts in the step, context = tokens of a
    prompt before its chunk; buckets are of T. Decode step: x = (1, n, t, t²), n = running sequences, t = their context
    tokens, clipped at `token_cap`; buckets are of n.

    `bucket_edges` ascend; `bucket_factor` has one value more. `sigma` is the standard deviation of log(true/predicted).
    A node that `node_factor` does not name has the factor 1.
    """

    coef: tuple[float, float, float, float]
    node_factor: Mapping[str, float] = field(default_factory=dict)
    bucket_edges: tuple[int, ...] = ()
    bucket_factor: tuple[float, ...] = (1.0,)
    token_cap: float = 1e18
    sigma: float = 0.0

    def __post_init__(self) -> None:
        if len(self.bucket_factor) != len(self.bucket_edges) + 1:
            raise ModelError(
                "`len(bucket_factor) == len(bucket_edges) + 1` must hold",
                value=(len(self.bucket_factor), len(self.bucket_edges)),
            )

    def _bucket(self, value: float) -> float:
        return self.bucket_factor[bisect_right(self.bucket_edges, value)]

    def prefill_s(self, node: str, new_tokens: float, chunk_context: float) -> float:
        """Seconds of a prefill step on `node`."""
        c = self.coef
        poly = c[0] + c[1] * new_tokens + c[2] * new_tokens * new_tokens + c[3] * chunk_context
        return poly * self.node_factor.get(node, 1.0) * self._bucket(new_tokens)

    def decode_s(self, node: str, sequences: float, tokens: float) -> float:
        """Seconds of a decode step on `node`."""
        c = self.coef
        x = tokens if tokens < self.token_cap else self.token_cap
        poly = c[0] + c[1] * sequences + c[2] * x + c[3] * x * x
        return poly * self.node_factor.get(node, 1.0) * self._bucket(sequences)


@dataclass(frozen=True, slots=True)
class TransferLaw:
    """Seconds until KV is visible: alpha + bytes / (share of the ports × efficiency), by kind of path."""

    alpha_s: Mapping[str, float]
    efficiency: Mapping[str, float]
    sigma: float = 0.0


@dataclass(frozen=True, slots=True)
class LengthTable:
    """Quantiles of output tokens by SLO class and prompt length.

    `tokens[class][bin][level]` in tokens, before the offset; bin = number of `prompt_edges` <= prompt tokens.
    `offset[class][level]` is the conformal correction, a factor. A class that is not named uses `*`.
    """

    levels: tuple[float, ...]
    prompt_edges: tuple[int, ...]
    tokens: Mapping[str, tuple[tuple[float, ...], ...]]
    offset: Mapping[str, tuple[float, ...]]

    def quantile(self, slo_class: str, prompt_tokens: int, level: float) -> float:
        """Output tokens at a quantile level that the table has."""
        if level not in self.levels:
            raise ModelError(
                "a quantile level must be one that the table has", value=level, hint=f"one of {self.levels}"
            )
        at = self.levels.index(level)
        name = slo_class if slo_class in self.tokens else "*"
        row = self.tokens[name][bisect_right(self.prompt_edges, prompt_tokens)]
        return row[at] * self.offset[name][at]


@dataclass(frozen=True, slots=True)
class RiskSigma:
    """Standard deviation of log(realised/predicted): TTFT and TPOT of a placement, as SloRisk uses them."""

    ttft: float = 0.25
    tpot: float = 0.1


@dataclass(frozen=True, slots=True)
class Estimators:
    """Everything that a decision and the twin need, fitted on the same train days."""

    length: LengthTable
    prefill: StepLaw
    decode: StepLaw
    transfer: TransferLaw
    risk: RiskSigma = RiskSigma()
