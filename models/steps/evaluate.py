"""What step laws say about windows, all at once."""

from __future__ import annotations

import numpy as np

from models.metrics import FloatArray
from models.portable import arrays
from models.portable.steps import StepLaw, StepLaws
from models.steps.rows import StepRows


def predict(laws: StepLaws, rows: StepRows) -> FloatArray:
    """Seconds of the mean step of each window, shape (rows,); trees are read at the window's inputs."""
    seconds = np.empty_like(rows.seconds)
    for at, node in enumerate(rows.nodes):
        inside = rows.node == at
        if inside.any():
            seconds[inside] = seconds_of(laws.of(node), rows.take(inside)) * laws.factor(node)
    return seconds


def seconds_of(law: StepLaw, rows: StepRows) -> FloatArray:
    """Seconds of the mean step of each window on a node of factor 1, shape (rows,)."""
    c = law.coef
    if rows.kind == "prefill":
        tokens, tokens2, context, prompts = rows.terms.T
        seconds = c[0] + c[1] * tokens + c[2] * tokens2 + c[3] * context + c[4] * prompts
    else:
        t = rows.terms[:, 1] if law.token_cap is None else np.minimum(rows.terms[:, 1], law.token_cap)
        seconds = c[0] + c[1] * rows.terms[:, 0] + c[2] * t + c[3] * t * t
    others = (rows.steps - 1.0) / rows.steps
    for at, slope in law.bends:
        beyond = np.maximum(rows.sizes - at, 0.0)
        seconds = seconds + slope * (others * beyond[:, 0] + (1.0 - others) * beyond[:, 1])
    result: FloatArray = seconds * arrays.product(law.trees, rows.inputs)
    return result
