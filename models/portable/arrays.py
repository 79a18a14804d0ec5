"""Portable laws over whole columns: the same operations in the same order as their plain forms, so the same bits.

Routers evaluate the plain forms, without numpy; fits, predictions of a day and the twin's workloads need many rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from models.metrics import FloatArray, IntArray
from models.portable.steps import StepLaw, StepLaws, Tail
from models.portable.transfer import TransferLaw
from models.portable.trees import Trees

_Seconds = Callable[[StepLaw, IntArray], FloatArray]


def leaf_nodes(trees: Trees, root: int, x: FloatArray) -> IntArray:
    """The leaf, a node's number, that each row of `x`, shape (rows, inputs), reaches from `root`; shape (rows,)."""
    feature, split = np.array(trees.feature, np.int64), np.array(trees.split)
    left, right = np.array(trees.left, np.int64), np.array(trees.right, np.int64)
    node = np.full(len(x), root, np.int64)
    moving = np.flatnonzero(feature[node] >= 0)
    while moving.size:
        at = node[moving]
        smaller = x[moving, feature[at]] < split[at]
        node[moving] = np.where(smaller, left[at], right[at])
        moving = moving[feature[node[moving]] >= 0]
    return node


def leaves(trees: Trees, root: int, x: FloatArray) -> FloatArray:
    """`Trees.leaf` of each row of `x`, shape (rows,)."""
    found: FloatArray = np.array(trees.value, np.float64)[leaf_nodes(trees, root, x)]
    return found


def product(trees: Trees, x: FloatArray) -> FloatArray:
    """`Trees.product` of each row of `x`, shape (rows,)."""
    found: FloatArray = np.ones(len(x))
    for root in trees.roots:
        found = found * leaves(trees, root, x)
    return found


def log1p(values: FloatArray) -> FloatArray:
    """`math.log1p` of each value, shape (rows,): numpy's own may differ in the last bit and so cross a split."""
    distinct, at = np.unique(values, return_inverse=True)
    return np.array([math.log1p(value) for value in distinct.tolist()], np.float64)[at]


def prefill_s(law: StepLaw, new_tokens: FloatArray, chunk_context: FloatArray, prompts: FloatArray) -> FloatArray:
    """`StepLaw.prefill_s` of each row."""
    c = law.coef
    poly = c[0] + c[1] * new_tokens + c[2] * new_tokens * new_tokens + c[3] * chunk_context + c[4] * prompts
    return _bent(law, poly, new_tokens) * product(law.trees, np.stack([new_tokens, chunk_context, prompts], axis=1))


def decode_s(law: StepLaw, sequences: FloatArray, tokens: FloatArray) -> FloatArray:
    """`StepLaw.decode_s` of each row."""
    c = law.coef
    x = tokens if law.token_cap is None else np.where(tokens < law.token_cap, tokens, law.token_cap)
    poly = c[0] + c[1] * sequences + c[2] * x + c[3] * x * x
    return _bent(law, poly, sequences) * product(law.trees, np.stack([sequences, tokens], axis=1))


def by_node(laws: StepLaws, nodes: list[str], seconds: _Seconds) -> FloatArray:
    """Seconds of each row under the law of its node, times the node's factor. `seconds(law, rows)`: of some rows."""
    places: dict[str, list[int]] = {}
    for at, node in enumerate(nodes):
        places.setdefault(node, []).append(at)
    found = np.zeros(len(nodes))
    for node, rows in places.items():
        at_rows = np.array(rows, np.int64)
        found[at_rows] = seconds(laws.of(node), at_rows) * laws.factor(node)
    return found


def tail_factor(tail: Tail, size: FloatArray, level: float) -> FloatArray | None:
    """`Tail.at` of each row; None if the tail does not have the level."""
    if level not in tail.levels:
        return None
    factors = np.array([row[tail.levels.index(level)] for row in tail.factor])
    found: FloatArray = factors[np.searchsorted(np.array(tail.edges), size, side="right")]
    return found


def transfer_s(
    law: TransferLaw, path: list[str], kv_bytes: FloatArray, share: FloatArray, blocks: FloatArray
) -> FloatArray:
    """`TransferLaw.seconds` of each row."""
    found: FloatArray = fixed_s(law, path, blocks) + wire_s(law, path, kv_bytes, share)
    return found


def fixed_s(law: TransferLaw, path: list[str], blocks: FloatArray) -> FloatArray:
    """The part of a transfer's seconds that does not hang on bytes, of each row."""
    alpha = np.array([law.alpha_s[name] for name in path])
    found: FloatArray = alpha + law.descriptor_s * (law.descriptors_per_block * blocks)
    return found


def wire_s(law: TransferLaw, path: list[str], kv_bytes: FloatArray, share: FloatArray) -> FloatArray:
    """Seconds during which the bytes leave, of each row."""
    efficiency = np.array([law.efficiency[name] for name in path])
    found: FloatArray = kv_bytes * law.wire_frac / (share * efficiency)
    return found


def _bent(law: StepLaw, value: FloatArray, size: FloatArray) -> FloatArray:
    for at, slope in law.bends:
        value = np.where(size > at, value + slope * (size - at), value)
    return value
