"""The estimators as they ship: size in the policy file, time of a decision's estimates in plain Python, exactness.

A pool of 8 P and 8 D of two node types, with laws of the size that a fit yields: trees of 31 leaves, a length table of
400 rows in 24 groups at 5 levels.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from benchmarks.estimators.bars import Bar, Part, Row
from models.portable.cache import CacheLaw
from models.portable.estimators import Estimators
from models.portable.length import ALL, INPUTS, LengthLaw
from models.portable.steps import StepLaw, StepLaws, Tail
from models.portable.transfer import TransferLaw, egress, ingress
from models.portable.trees import LEAF, Trees
from models.portable_json import from_dict, to_dict
from policies.canonical import canonical_bytes

NODES, LEAVES, CELLS, CLASSES, APPS = 8, 31, 400, 4, 5
LEVELS = (0.5, 0.75, 0.9, 0.95, 0.99)
KIB = 1024.0
PREFILL_RANGES = ((64.0, 16384.0), (0.0, 2e8), (1.0, 64.0))
DECODE_RANGES = ((1.0, 256.0), (1e3, 4e6))


def measure(data: Path) -> Part:  # noqa: ARG001  # every part has the same form; this one reads nothing
    """Size, time and exactness of made-up estimators of a real size."""
    estimators = fitted_like()
    value = to_dict(estimators)
    size_kib = len(canonical_bytes(value)) / KIB
    read_back = from_dict(json.loads(canonical_bytes(value)))
    found = json.loads(_alone(canonical_bytes(value).decode()))
    rows = (
        Row("8 P × 8 D, 2 node types", "canonical JSON", "policy file, estimators", {"KiB": size_kib}),
        Row("8 P × 8 D, 64 pairs", "plain Python, no numpy", "one decision", {"ms": found["decision_ms"]}),
        Row("8 P × 8 D, 64 pairs", "plain Python, no numpy", "its length quantiles", {"ms": found["length_ms"]}),
        Row("8 P × 8 D, 2 node types", "plain Python, no numpy", "file read", {"ms": found["read_ms"]}),
    )
    wrong = float(read_back != estimators) + float(to_dict(read_back) != value)
    estimates_ms = found["estimates_ms"] + found["length_ms"]
    bars = (
        Bar("policy file's estimators, KiB", size_kib, 256.0),
        Bar("one decision's estimates for 8 × 8 candidates in plain Python, ms", estimates_ms, 2.0),
        Bar("numpy or LightGBM imported by the plain decision", float(len(found["heavy"])), 0.0),
        Bar("JSON round trips that change anything", wrong, 0.0),
    )
    return Part("shipped", rows, bars)


def fitted_like(seed: int = 1) -> Estimators:
    """Estimators of the size that a fit yields."""
    rng = random.Random(seed)
    prefill, decode = ([f"{kind}{k}/dp0" for k in range(NODES)] for kind in "pd")
    types = {node: ("h100", "h200")[k % 2] for nodes in (prefill, decode) for k, node in enumerate(nodes)}
    factors = {node: rng.uniform(0.97, 1.3) for node in types}
    of_prefill = {
        kind: _law(rng, (0.015, 1.4e-5, 3e-10, 1.2e-10, 1e-4), PREFILL_RANGES) for kind in ("*", "h100", "h200")
    }
    of_decode = {kind: _law(rng, (0.0068, 4e-5, 6.2e-8, -2.6e-14), DECODE_RANGES) for kind in ("*", "h100", "h200")}
    ports = {
        port(node): rng.uniform(0.6, 1.0) for port, nodes in ((egress, prefill), (ingress, decode)) for node in nodes
    }
    return Estimators(
        length=_lengths(rng),
        prefill=StepLaws(of_prefill, {n: types[n] for n in prefill}, {n: factors[n] for n in prefill}),
        decode=StepLaws(of_decode, {n: types[n] for n in decode}, {n: factors[n] for n in decode}),
        transfer=TransferLaw(
            {"local": 0.0021, "cross": 0.0032},
            {"local": 0.91, "cross": 0.87},
            descriptor_s=1.7e-6,
            descriptors_per_block=160.0,
            wire_frac=0.93,
            port_factor=ports,
        ),
        cache={node: CacheLaw(rng.uniform(500, 2000), rng.uniform(60, 600)) for node in prefill},
    )


def _law(rng: random.Random, coef: tuple[float, ...], ranges: tuple[tuple[float, float], ...]) -> StepLaw:
    return StepLaw(
        coef=tuple(c * rng.uniform(0.9, 1.1) for c in coef),
        bends=((rng.uniform(500, 4000), rng.uniform(1e-7, 1e-6)), (rng.uniform(4000, 8000), rng.uniform(1e-7, 1e-6))),
        trees=_tree(rng, LEAVES, ranges, [rng.uniform(0.9, 1.1) for _ in range(LEAVES)]),
        token_cap=rng.uniform(1e6, 2e6),
        sigma=rng.uniform(0.02, 0.1),
        tail=Tail(
            (0.5, 0.9, 0.95, 0.99), (8.0, 64.0), tuple(tuple(rng.uniform(0.9, 1.4) for _ in range(4)) for _ in range(3))
        ),
        measured=ranges,
    )


def _lengths(rng: random.Random) -> LengthLaw:
    groups = [
        ALL,
        *(f"class-{c}" for c in range(CLASSES)),
        *(f"class-{c}/app-{a}" for c in range(CLASSES) for a in range(APPS)),
    ]
    groups = groups[:24]
    ranges = tuple((0.0, 8.0) for _ in INPUTS)
    rows = tuple(tuple(sorted(rng.uniform(1, 4000) for _ in LEVELS)) for _ in range(CELLS))
    return LengthLaw(
        levels=LEVELS,
        group_level={group: rng.uniform(2, 7) for group in groups},
        table=_tree(rng, CELLS, ranges, [float(k) for k in range(CELLS)]),
        rows=rows,
        offset={group: tuple(rng.uniform(0.7, 1.4) for _ in LEVELS) for group in groups},
        pace={group: tuple(rng.uniform(0.001, 0.05) for _ in LEVELS) for group in groups},
        limit_tokens=8192.0,
    )


def _tree(rng: random.Random, leaves: int, ranges: tuple[tuple[float, float], ...], values: list[float]) -> Trees:
    """A balanced tree of that many leaves with random splits."""
    nodes: list[tuple[int, float, int, int, float]] = []
    left_over = iter(values)

    def grow(count: int) -> int:
        at = len(nodes)
        nodes.append((LEAF, 0.0, 0, 0, 0.0))
        if count == 1:
            nodes[at] = (LEAF, 0.0, 0, 0, next(left_over))
            return at
        feature = rng.randrange(len(ranges))
        split = rng.uniform(*ranges[feature])
        nodes[at] = (feature, split, grow(count // 2), grow(count - count // 2), 0.0)
        return at

    root = grow(leaves)
    columns = list(zip(*nodes, strict=True))
    return Trees((root,), columns[0], columns[1], columns[2], columns[3], columns[4])


def _alone(estimators: str) -> str:
    """What a process that imports the plain decision only measures; `estimators` is its input."""
    here = Path(__file__).resolve()
    made = subprocess.run(
        [sys.executable, str(here.with_name("plain_router.py"))],
        input=estimators,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(here.parents[2]), "PATH": ""},
    )
    return made.stdout
