"""One law in portable form as an MLflow model: code around JSON, evaluated by `models.portable` and nothing else.

MLflow runs this file when it loads a model ("models from code"). The artifact `law` is {kind, estimators}; what goes in
and what comes out is in `pipelines.io.models.MODEL_KINDS`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from models.portable.estimators import Estimators
from models.portable.length import Arrival
from models.portable_json import from_dict


class PortableModel(PythonModel):
    """Predicts row by row."""

    def load_context(self, context: Any) -> None:  # noqa: ANN401  mlflow's signature
        """Read the law. ModelError if it is damaged."""
        value = json.loads(Path(context.artifacts["law"]).read_text("utf-8"))
        self._kind: str = value["kind"]
        self._estimators: Estimators = from_dict(value["estimators"])

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:  # noqa: ANN401, ARG002
        """Predictions, one row a row of the input."""
        return pd.DataFrame([self._row(row) for row in model_input.to_dict("records")])

    def _row(self, row: dict[str, Any]) -> dict[str, float | None]:
        laws = self._estimators
        if self._kind == "length":
            found = laws.length.quantiles(Arrival(**{name: _known(value) for name, value in row.items()}))
            return {f"q{level:g}": tokens for level, tokens in zip(laws.length.levels, found, strict=True)}
        if self._kind == "prefill_step":
            return {"seconds": laws.prefill.prefill_s(**row)}
        if self._kind == "decode_step":
            return {"seconds": laws.decode.decode_s(**row)}
        if self._kind == "transfer":
            return {"seconds": laws.transfer.seconds(**row)}
        held = laws.cache.get(row["node"])
        return {"capacity_blocks": None, "ttl_s": None} if held is None else asdict(held)


def _known(value: object) -> Any:  # noqa: ANN401  text or a number
    """None for what pandas has in place of an unknown value."""
    return None if pd.isna(value) else value


set_model(PortableModel())
