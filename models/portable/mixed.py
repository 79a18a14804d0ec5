"""Law of a step that holds a prompt's chunk and decoding sequences at once, as engines that are not split make them."""

from __future__ import annotations

from dataclasses import dataclass

from models.portable.steps import bent
from models.portable.trees import NO_TREES, Trees
from models.portable.values import STRICT, NotNegative

MIXED_INPUTS = ("chunk", "kv_prefill", "sequences", "kv_decode", "new_tokens", "kv_each")
"""What the trees read: T = chunk + sequences, and tokens of the mean sequence, follow from the others."""


@dataclass(frozen=True, slots=True)
class MixedLaw:
    """Seconds of a mixed step on one type of node: (terms + bends over T) × product of trees.

    A chunk of c tokens after k tokens of its prompt, beside n sequences of t tokens together; T = c + n. Terms, in the
    order of `coef`: 1, T, c², c·k, k, n, t, n·t, and where both c and n are above 0 once more n and t. Other fields as
    `StepLaw`.
    """

    __pydantic_config__ = STRICT

    coef: tuple[NotNegative, ...]
    bends: tuple[tuple[float, float], ...] = ()
    trees: Trees = NO_TREES
    sigma: NotNegative = 0.0
    measured: tuple[tuple[float, float], ...] = ()

    def seconds(self, chunk: float, kv_prefill: float, sequences: float, kv_decode: float) -> float:
        """Seconds of a step; `chunk` or `sequences` may be 0."""
        c, size = self.coef, chunk + sequences
        value = c[0] + c[1] * size + c[2] * chunk * chunk + c[3] * chunk * kv_prefill + c[4] * kv_prefill
        value += c[5] * sequences + c[6] * kv_decode + c[7] * sequences * kv_decode
        if chunk > 0 and sequences > 0:
            value += c[8] * sequences + c[9] * kv_decode
        each = kv_decode / sequences if sequences > 0 else 0.0
        x = (chunk, kv_prefill, sequences, kv_decode, size, each)
        return bent(value, size, self.bends) * self.trees.product(x)
