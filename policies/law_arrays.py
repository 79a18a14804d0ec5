"""Estimators as the arrays that kernels read: laws spread over nodes, ports at what they really carry."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, StepLaws
from models.portable.transfer import PATHS, egress, ingress
from policies.kernel_types import EMPTY, Float64, Int64, LawArrays, StepArrays


def law_arrays(
    estimators: Estimators,
    prefill: Sequence[tuple[str, float]],
    decode: Sequence[tuple[str, float]],
    uplinks: Sequence[tuple[str, float]],
) -> LawArrays:
    """The laws for these nodes; `prefill`, `decode`: (name, bytes/s of its port), `uplinks`: (port name, bytes/s)."""
    transfer = estimators.transfer
    return LawArrays(
        prefill=prefill_arrays(estimators.prefill, [name for name, _ in prefill]),
        decode=step_arrays(estimators.decode, [name for name, _ in decode]),
        alpha_s=np.array([transfer.alpha_s[path] for path in PATHS], np.float64),
        efficiency=np.array([transfer.efficiency[path] for path in PATHS], np.float64),
        egress=np.array([speed * transfer.port(egress(name)) for name, speed in prefill], np.float64),
        ingress=np.array([speed * transfer.port(ingress(name)) for name, speed in decode], np.float64),
        uplink=np.array([speed * transfer.port(name) for name, speed in uplinks] or [0.0], np.float64),
        descriptor_s=float(transfer.descriptor_s),
        descriptors_per_block=float(transfer.descriptors_per_block),
        wire_frac=float(transfer.wire_frac),
        overlap_frac=float(transfer.overlap_frac),
        last_frac=float(transfer.last_frac),
        alone=int(transfer.contention == "none"),
    )


def prefill_arrays(laws: StepLaws, nodes: Sequence[str]) -> StepArrays:
    """`step_arrays` of prefill laws, which alone have steps without anything in them."""
    made = step_arrays(laws, nodes)
    made.law[:, EMPTY] = [laws.prefill_s(node, 0.0, 0.0, 0.0) for node in nodes]
    return made


def step_arrays(laws: StepLaws, nodes: Sequence[str]) -> StepArrays:
    """One row a node; nodes of one type share their law's trees."""
    found: list[StepLaw] = []
    kind = []
    for node in nodes:
        law = laws.of(node)
        if law not in found:
            found.append(law)
        kind.append(found.index(law))
    bends = max(len(law.bends) for law in found)
    rows = np.array([_row(found[k], bends, laws.factor(node), k) for node, k in zip(nodes, kind, strict=True)])
    roots, branch, value = _trees(found)
    return StepArrays(law=rows, roots=roots[kind], branch=branch, value=value)


def _row(law: StepLaw, bends: int, factor: float, kind: int) -> list[float]:
    """As `StepArrays.law` says; bends that are not there begin at infinity."""
    coef = [*law.coef, 0.0][:5]
    cap = math.inf if law.token_cap is None else law.token_cap
    padded = [*law.bends, *[(math.inf, 0.0)] * (bends - len(law.bends))]
    return [*coef, cap, factor, 0.0, float(kind), *(number for bend in padded for number in bend)]


def _trees(laws: Sequence[StepLaw]) -> tuple[Int64, Int64, Float64]:
    """All laws' trees in shared arrays: first nodes by law, branches, splits and leaves."""
    roots = np.full((len(laws), max(len(law.trees.roots) for law in laws)), -1, np.int64)
    branch: list[tuple[int, int, int]] = []
    value: list[float] = []
    for at, law in enumerate(laws):
        trees, first = law.trees, len(branch)
        roots[at, : len(trees.roots)] = np.array(trees.roots, np.int64) + first
        for k, feature in enumerate(trees.feature):
            inner = feature >= 0
            branch.append((feature, trees.left[k] + first, trees.right[k] + first) if inner else (-1, 0, 0))
            value.append(trees.split[k] if inner else trees.value[k])
    return roots, np.array(branch, np.int64).reshape(-1, 3), np.array(value, np.float64)
