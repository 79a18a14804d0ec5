"""Estimators as MLflow models: what goes in, what comes out, and the code around their portable JSON."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from models.portable.estimators import Estimators
from models.portable_json import to_dict

MODEL_KINDS: Mapping[str, Mapping[str, tuple[str, object]]] = {
    "length": {
        "slo_class": ("string", "default"), "prompt_tokens": ("long", 4096), "app": ("string", None),
        "tenant": ("string", None), "model": ("string", None),
        "cached_frac": ("double", None), "max_output_tokens": ("double", None), "turn": ("double", None),
        "previous_output": ("double", None), "session_mean_output": ("double", None), "hour": ("double", None),
        "recent_output": ("double", None),
    },
    "prefill_step": {
        "node": ("string", "*"), "new_tokens": ("double", 4096.0), "chunk_context": ("double", 0.0),
        "prompts": ("double", 1.0),
    },
    "decode_step": {"node": ("string", "*"), "sequences": ("double", 16.0), "tokens": ("double", 65536.0)},
    "transfer": {
        "path": ("string", "local"), "kv_bytes": ("double", 1e9), "share": ("double", 1e10),
        "blocks": ("double", 256.0),
    },
    "cache": {"node": ("string", "*")},
}  # fmt: skip
"""Model -> column of its input -> type and an example; columns without one may be unknown. `length` predicts quantiles
of output tokens, steps and transfers seconds, `cache` what the node's prefix cache holds."""
OUTPUTS = {"cache": ("capacity_blocks", "ttl_s")}
ESTIMATOR = {"prefill_step": "prefill", "decode_step": "decode"}
"""Model -> the estimator that its metrics are named after, where the names differ."""


def log_model(kind: str, estimators: Estimators, *, tags: Mapping[str, str], training: Mapping[str, str]) -> Any:  # noqa: ANN401  mlflow is untyped here
    """One model of the open run."""
    import mlflow

    with tempfile.TemporaryDirectory() as folder:
        law = Path(folder) / "law.json"
        law.write_text(json.dumps({"kind": kind, "estimators": to_dict(estimators)}), "utf-8")
        return mlflow.pyfunc.log_model(
            name=kind,
            python_model=str(Path(__file__).with_name("portable_model.py")),
            artifacts={"law": str(law)},
            signature=_signature(kind, estimators),
            input_example=_example(kind),
            # Given, since inferring them loads the model in a second environment.
            pip_requirements=[f"{name}=={version(name)}" for name in ("mlflow", "pandas", "pydantic")],
            code_paths=[str(Path(__file__).parents[2] / part) for part in ("models", "features")],
            params={f"training.{name}": digest for name, digest in training.items()},
            metadata={"training": dict(training)},
            tags=dict(tags),
        )


def _signature(kind: str, estimators: Estimators) -> Any:  # noqa: ANN401  mlflow is untyped here
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema, TensorSpec

    levels = [f"q{level:g}" for level in estimators.length.levels]
    outputs = levels if kind == "length" else OUTPUTS.get(kind, ("seconds",))
    columns: list[ColSpec | TensorSpec] = [
        ColSpec(dtype, name, required=example is not None) for name, (dtype, example) in MODEL_KINDS[kind].items()
    ]
    return ModelSignature(
        inputs=Schema(columns), outputs=Schema([ColSpec("double", name, required=kind != "cache") for name in outputs])
    )


def _example(kind: str) -> Any:  # noqa: ANN401  a pandas frame
    import pandas as pd

    return pd.DataFrame({name: [value] for name, (_, value) in MODEL_KINDS[kind].items() if value is not None})
