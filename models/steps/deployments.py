"""TPOT of whole deployments from public facts about model, GPU and engine: what may be expected before it is measured.

A roofline says what a GPU makes of it; boosted trees without any fact about the GPU learn what engines make of the
roofline, so that they hold for a GPU that was never seen; levels of GPU, of model and engine on it, and of the
deployment itself take up the rest as far as its rows carry that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from features.errors import ModelError
from models.gpus import Gpu
from models.metrics import FloatArray
from models.portable import arrays
from models.portable.trees import Trees
from models.steps import boosting

TREES, LEAVES, RATE, LEAF_MIN_ROWS = 150, 31, 0.1, 5
LEVEL_PRIOR_ROWS = 1.0
OWN_WEIGHT = 10
"""A row of the GPU that the law is for weighs as much as this many others, so that a few of them count in the trees."""
LAYER_S = 3e-5
"""Launches and synchronisation a layer, in the order of what engines take at batch 1."""
INPUTS = (
    "log_concurrency", "log_prompt", "log_output", "tensor_parallel", "attention_dp", "expert_tp", "expert_parallel",
    "weight_bytes", "parameters", "active_parameters", "layers", "vllm", "sglang", "trtllm", "log_concurrency_per_gpu",
)  # fmt: skip
"""What the trees read, in order."""


@dataclass(frozen=True, slots=True)
class Model:
    """Facts of a model card: parameters, those active a token, layers, KV elements a token and layer."""

    parameters: float
    active: float
    layers: int
    kv_elements: float


@dataclass(frozen=True, slots=True)
class Point:
    """A deployment at an operating point. `groups`: names of its levels, the widest first, e.g. GPU, model and engine
    on it, deployment. `weight_bytes`: of a parameter. `prompt`, `output`: tokens.
    """

    gpu: Gpu
    model: Model
    engine: str
    weight_bytes: float
    tensor_parallel: int
    attention_dp: int
    expert_tp: int
    expert_parallel: int
    concurrency: float
    prompt: float
    output: float
    groups: tuple[str, ...]

    def roofline_s(self) -> float:
        """Seconds a token: weights and KV that are read, arithmetic of decode and of the prompts between, layers."""
        m, gpus = self.model, float(max(self.tensor_parallel, 1))
        # A token reaches each expert with the share of parameters that is active: what no token of the batch reaches
        # is not read.
        missed = math.pow(1.0 - m.active / m.parameters, max(self.concurrency - 1.0, 0.0))
        spared = (m.parameters - m.active) * missed
        weights = (m.parameters - spared) * self.weight_bytes
        context = self.prompt + self.output / 2.0
        kv = self.concurrency * context * m.layers * m.kv_elements
        work = 2.0 * m.active * self.concurrency * (1.0 + self.prompt / self.output) * self.weight_bytes / 2.0
        return (weights + kv) / (self.gpu.memory * gpus) + work / (self.gpu.flops * gpus) + m.layers * LAYER_S

    def inputs(self) -> tuple[float, ...]:
        """INPUTS; nothing of the GPU."""
        m = self.model
        logs = [float(np.log(value)) for value in (self.concurrency, self.prompt, self.output)]
        layout = (self.tensor_parallel, self.attention_dp, self.expert_tp, self.expert_parallel)
        engines = [float(self.engine == name) for name in ("vllm", "sglang", "trtllm")]
        each = float(np.log(self.concurrency / max(self.tensor_parallel, 1)))
        return (
            *logs,
            *(float(value) for value in layout),
            self.weight_bytes,
            m.parameters,
            m.active,
            float(m.layers),
            *engines,
            each,
        )


@dataclass(frozen=True, slots=True)
class DeploymentLaw:
    """Seconds a token = roofline × scale × trees × levels of the groups that the law knows."""

    scale: float
    trees: Trees
    level: Mapping[str, float]

    def tpot_s(self, point: Point) -> float:
        """Seconds a token at a point."""
        found = point.roofline_s() * self.scale * self.trees.product(point.inputs())
        for group in point.groups:
            found *= self.level.get(group, 1.0)
        return found


def fit_deployments(points: Sequence[Point], tpot_s: FloatArray, *, own: str | None = None) -> DeploymentLaw:
    """The law of measured points, tpot_s of shape (points,). ModelError if there are none.

    `own`: the widest group, a GPU, that the law is for; None = for all alike.
    """
    if not points:
        raise ModelError("there must be measured deployments", value=0)
    roofline = np.array([point.roofline_s() for point in points])
    inputs = np.array([point.inputs() for point in points])
    log_ratio = np.log(tpot_s / roofline)
    times = np.array([OWN_WEIGHT if point.groups[0] == own else 1 for point in points])
    middle = float(np.median(log_ratio))
    trees = boosting.boosted(
        np.repeat(inputs, times, axis=0),
        np.repeat(log_ratio - middle, times),
        trees=TREES,
        leaves=LEAVES,
        rate=RATE,
        least_rows=LEAF_MIN_ROWS,
    )
    left = log_ratio - middle - np.log(arrays.product(trees, inputs))
    level: dict[str, float] = {}
    for depth in range(len(points[0].groups)):
        names = np.array([point.groups[depth] for point in points])
        found, of = np.unique(names, return_inverse=True)
        rows = np.bincount(of, minlength=found.size)
        mean = np.bincount(of, weights=left, minlength=found.size) / (rows + LEVEL_PRIOR_ROWS)
        left = left - mean[of]
        level |= {str(name): float(np.exp(value)) for name, value in zip(found, mean, strict=True)}
    return DeploymentLaw(float(np.exp(middle)), trees, level)


def predict_deployments(law: DeploymentLaw, points: Sequence[Point]) -> FloatArray:
    """Seconds a token at every point, shape (points,)."""
    inputs = np.array([point.inputs() for point in points])
    base = np.array([point.roofline_s() for point in points]) * law.scale * arrays.product(law.trees, inputs)
    levels = [float(np.prod([law.level.get(group, 1.0) for group in point.groups])) for point in points]
    result: FloatArray = base * np.array(levels)
    return result
