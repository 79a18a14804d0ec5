"""Laws whose predictions vary with every input, drawn at random; and a quiet pool's."""

from __future__ import annotations

import numpy as np

from models.portable.cache import CacheLaw
from models.portable.estimators import Estimators
from models.portable.length import LengthLaw
from models.portable.steps import StepLaw, StepLaws, Tail
from models.portable.transfer import TransferLaw
from models.portable.trees import LEAF, Trees

LEVELS = (0.5, 0.9, 0.99)


def random_trees(rng: np.random.Generator, inputs: int, values: list[list[float]], *, depth: int = 3) -> Trees:
    """One tree for each list of leaf values, which are drawn from it."""
    nodes: list[tuple[int, float, int, int, float]] = []

    def grow(of: list[float], left: int) -> int:
        at = len(nodes)
        if left == 0:
            nodes.append((LEAF, 0.0, 0, 0, float(rng.choice(of))))
            return at
        nodes.append((0, 0.0, 0, 0, 0.0))
        feature, split = int(rng.integers(inputs)), float(rng.uniform(0.0, 8.0))
        nodes[at] = (feature, split, grow(of, left - 1), grow(of, left - 1), 0.0)
        return at

    roots = tuple(grow(of, depth) for of in values)
    columns = list(zip(*nodes, strict=True))
    return Trees(roots, *columns)


def random_step_law(rng: np.random.Generator, *, decode: bool) -> StepLaw:
    """Physics with bends, trees, a cap and a tail."""
    coef = tuple(rng.uniform(0.0, 0.01, 4 if decode else 5).tolist())
    return StepLaw(
        coef=coef,
        bends=((2.0, 0.003), (5.5, 0.001)),
        trees=random_trees(rng, 2 if decode else 3, [[0.9, 1.0, 1.2], [0.7, 1.1]]),
        token_cap=6.0 if decode else None,
        tail=Tail((0.5, 0.9), (3.0,), ((1.0, 1.2), (1.01, 1.1))),
    )


def pool(*, cache_blocks: float = 60.0) -> Estimators:
    """A quiet pool of two P and two D whose true laws are these."""
    one = 150.0
    return Estimators(
        length=LengthLaw(
            levels=LEVELS,
            group_level=dict.fromkeys(("*", "chat", "chat/a", "chat/b"), 5.0),
            table=Trees((0,), (LEAF,), (0.0,), (0,), (0,), (0.0,)),
            rows=((one, one * float(np.exp(1.281552 * 0.6)), one * float(np.exp(2.326348 * 0.6))),),
            offset=dict.fromkeys(("*", "chat", "chat/a", "chat/b"), (1.0, 1.0, 1.0)),
            pace=dict.fromkeys(("*", "chat", "chat/a", "chat/b"), (0.01, 0.01, 0.01)),
        ),
        prefill=StepLaws({"*": StepLaw((0.01, 2e-4, 1e-9, 5e-10, 0.0), tail=_tail(0.1))}, {}, {"p0": 1.0, "p1": 1.2}),
        decode=StepLaws({"*": StepLaw((0.008, 3e-4, 2e-8, 0.0), tail=_tail(0.08))}, {}, {"d0": 1.0, "d1": 1.1}),
        transfer=TransferLaw({"local": 0.002, "cross": 0.003}, {"local": 0.9, "cross": 0.8}, tail=_tail(0.15)),
        cache={name: CacheLaw(cache_blocks) for name in ("p0", "p1")},
    )


def _tail(sigma: float) -> Tail:
    return Tail((0.9,), (), ((float(np.exp(1.281552 * sigma)),),))
