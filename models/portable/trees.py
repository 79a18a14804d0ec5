"""Decision trees as flat arrays: what a table over several inputs looks like when a router evaluates it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from features.errors import ModelError
from models.portable.values import STRICT

LEAF = -1


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees over numbered inputs, all in the same arrays; no trees = the factor 1.

    Node k with `feature[k] >= 0` goes to `left[k]` if input `feature[k]` < `split[k]`, else to `right[k]`; an unknown
    input (NaN) is not smaller and goes right. Children stand behind their parent. A leaf has `feature[k] == -1` and
    the value `value[k]`. `roots`: the first node of each tree.
    """

    __pydantic_config__ = STRICT

    roots: tuple[int, ...] = ()
    feature: tuple[int, ...] = ()
    split: tuple[float, ...] = ()
    left: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    value: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        nodes = len(self.feature)
        if not len(self.split) == len(self.left) == len(self.right) == len(self.value) == nodes:
            raise ModelError("the arrays of trees must have one length", value=nodes)
        if any(not 0 <= root < nodes for root in self.roots):
            raise ModelError("a root must be a node", value=self.roots)
        for node, feature in enumerate(self.feature):
            children = (self.left[node], self.right[node])
            if feature >= 0 and not all(node < child < nodes for child in children):
                raise ModelError("children must stand behind their parent", value=children, place=f"node {node}")
            if feature < LEAF:
                raise ModelError("`feature >= -1` must hold", value=feature, place=f"node {node}")

    def leaf(self, root: int, x: Sequence[float]) -> float:
        """Value of the leaf that `x` reaches from `root`."""
        node = root
        while self.feature[node] >= 0:
            node = self.left[node] if x[self.feature[node]] < self.split[node] else self.right[node]
        return self.value[node]

    def product(self, x: Sequence[float]) -> float:
        """Product of the leaves that `x` reaches, tree by tree."""
        found = 1.0
        for root in self.roots:
            found *= self.leaf(root, x)
        return found


NO_TREES = Trees()


def table_of(feature: int, edges: Sequence[float], values: Sequence[float]) -> Trees:
    """A one-input table as a tree: `values[k]` where k edges are <= the input. ModelError unless edges ascend."""
    if len(values) != len(edges) + 1 or any(b <= a for a, b in pairwise(edges)):
        raise ModelError("a table must have ascending edges and one value more", value=(tuple(edges), tuple(values)))
    nodes: list[tuple[int, float, int, int, float]] = []

    def grow(first: int, last: int) -> int:
        at = len(nodes)
        if first == last:
            nodes.append((LEAF, 0.0, 0, 0, float(values[first])))
            return at
        middle = (first + last) // 2
        nodes.append((feature, float(edges[middle]), 0, 0, 0.0))
        left, right = grow(first, middle), grow(middle + 1, last)
        nodes[at] = (feature, float(edges[middle]), left, right, 0.0)
        return at

    root = grow(0, len(values) - 1)
    columns = list(zip(*nodes, strict=True))
    return Trees((root,), columns[0], columns[1], columns[2], columns[3], columns[4])
