"""Laws of engine steps: physics × residual of the type of node × factor of the node."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from features.errors import ModelError
from models.portable.trees import NO_TREES, Trees
from models.portable.values import STRICT, NotNegative, Positive

ANY = "*"
"""The type whose law holds for a node of unknown type."""
PREFILL_INPUTS = ("new_tokens", "chunk_context", "prompts")
DECODE_INPUTS = ("sequences", "tokens")


@dataclass(frozen=True, slots=True)
class Tail:
    """Quantiles of true / predicted by load: `factor[band][level]`, band = number of `edges` <= the batch's size."""

    __pydantic_config__ = STRICT

    levels: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()
    factor: tuple[tuple[Positive, ...], ...] = ((),)

    def __post_init__(self) -> None:
        if len(self.factor) != len(self.edges) + 1 or any(len(row) != len(self.levels) for row in self.factor):
            raise ModelError("a tail must have one row a band and one value a level", value=len(self.factor))

    def at(self, size: float, level: float) -> float:
        """Factor on the estimate at a level that the tail has. ModelError for another one."""
        if level not in self.levels:
            raise ModelError("a tail level must be one that was fitted", value=level, hint=f"one of {self.levels}")
        return self.factor[bisect_right(self.edges, size)][self.levels.index(level)]


NO_TAIL = Tail()


def bent(value: float, size: float, bends: tuple[tuple[float, float], ...]) -> float:
    """`value` and what every bend adds that `size` lies beyond."""
    for at, slope in bends:
        if size > at:
            value += slope * (size - at)
    return value


def outside_text(
    kind: str, names: tuple[str, ...], inputs: tuple[float, ...], measured: tuple[tuple[float, float], ...]
) -> tuple[str, ...]:
    """A sentence for every input that lies outside of what was measured, as people read it; none = all inside."""
    if not measured:
        return (f"{kind}: no step was measured on this type of node",)
    return tuple(
        f"{kind} {name.replace('_', ' ')} {x:.6g} lies outside of the measured {low:.6g}..{high:.6g}"
        for name, x, (low, high) in zip(names, inputs, measured, strict=False)
        if not low <= x <= high
    )


@dataclass(frozen=True, slots=True)
class StepLaw:
    """Seconds of one engine step on one type of node: (polynomial + bends) × product of trees.

    Prefill step: x = (1, T, T², Σ chunk·context, prompts), T = new tokens of all prompts in the step, context = tokens
    of a prompt before its chunk. Decode step: x = (1, n, t, t²), n = running sequences, t = their context tokens,
    clipped at `token_cap` (None = never). `bends` (at, slope): slope·max(0, size - at) more, where size is T or n.
    The trees' inputs are PREFILL_INPUTS or DECODE_INPUTS, not clipped.

    `sigma`: standard deviation of log(true/predicted). `measured`: lowest and highest observed value of each of the
    trees' inputs; () = unknown.
    """

    __pydantic_config__ = STRICT

    coef: tuple[float, ...]
    bends: tuple[tuple[float, float], ...] = ()
    trees: Trees = NO_TREES
    token_cap: Positive | None = None
    sigma: NotNegative = 0.0
    tail: Tail = NO_TAIL
    measured: tuple[tuple[float, float], ...] = ()

    def prefill_s(self, new_tokens: float, chunk_context: float, prompts: float = 1.0) -> float:
        """Seconds of a prefill step on a node of factor 1."""
        c = self.coef
        poly = c[0] + c[1] * new_tokens + c[2] * new_tokens * new_tokens + c[3] * chunk_context + c[4] * prompts
        return bent(poly, new_tokens, self.bends) * self.trees.product((new_tokens, chunk_context, prompts))

    def decode_s(self, sequences: float, tokens: float) -> float:
        """Seconds of a decode step on a node of factor 1."""
        c = self.coef
        cap = self.token_cap
        x = tokens if cap is None or tokens < cap else cap
        poly = c[0] + c[1] * sequences + c[2] * x + c[3] * x * x
        return bent(poly, sequences, self.bends) * self.trees.product((sequences, tokens))

    def outside(self, *inputs: float) -> tuple[int, ...]:
        """Places of the inputs that lie outside of what was measured: there the estimate is extrapolated."""
        ranges = zip(inputs, self.measured, strict=False)
        return tuple(at for at, (x, (low, high)) in enumerate(ranges) if not low <= x <= high)


@dataclass(frozen=True, slots=True)
class StepLaws:
    """The laws of one kind of step in a pool.

    `by_type`: type of node -> law; `*` must be there, for nodes of a type that has none. `node_type`: node -> type.
    `node_factor`: node -> factor on its type's law; a node that is not named has 1.
    """

    __pydantic_config__ = STRICT

    by_type: Mapping[str, StepLaw]
    node_type: Mapping[str, str] = field(default_factory=dict)
    node_factor: Mapping[str, Positive] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if ANY not in self.by_type:
            raise ModelError(f"there must be a law for the type `{ANY}`", value=sorted(self.by_type))

    def of(self, node: str) -> StepLaw:
        """The law of the node's type."""
        return self.by_type.get(self.node_type.get(node, ANY), self.by_type[ANY])

    def factor(self, node: str) -> float:
        """The node's factor."""
        return self.node_factor.get(node, 1.0)

    def prefill_s(self, node: str, new_tokens: float, chunk_context: float, prompts: float = 1.0) -> float:
        """Seconds of a prefill step on `node`."""
        return self.of(node).prefill_s(new_tokens, chunk_context, prompts) * self.factor(node)

    def decode_s(self, node: str, sequences: float, tokens: float) -> float:
        """Seconds of a decode step on `node`."""
        return self.of(node).decode_s(sequences, tokens) * self.factor(node)


def one_type(law: StepLaw, node_factor: Mapping[str, float] | None = None) -> StepLaws:
    """Laws of a pool whose nodes are all of one type."""
    return StepLaws({ANY: law}, {}, node_factor or {})
