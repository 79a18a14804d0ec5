"""The LightGBM model with offsets of its own: what the shipped form is compared with, never shipped itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models.length.boost import QuantileModel
from models.length.inputs import Names, group_places, input_matrix
from models.length.offsets import conformal_offsets
from models.length.rows import LengthRows
from models.metrics import FloatArray


@dataclass(frozen=True, slots=True)
class FullModel:
    """A model, the names it reads by, and its offsets by group."""

    model: QuantileModel
    names: Names
    offset: Mapping[str, tuple[float, ...]]

    def base_tokens(self, rows: LengthRows) -> FloatArray:
        """Tokens before any offset, shape (rows, levels)."""
        found: FloatArray = np.exp(self.model.log_quantiles(input_matrix(rows, self.names)))
        return found

    def quantiles(self, rows: LengthRows) -> FloatArray:
        """Tokens with the offsets, at most the request's limit, shape (rows, levels)."""
        offset = np.array(list(self.offset.values()))[group_places(rows, tuple(self.offset), self.names.prompt_edges)]
        raised = np.maximum.accumulate(self.base_tokens(rows) * offset, axis=1)
        return np.minimum(raised, np.nan_to_num(rows.column("max_output_tokens"), nan=np.inf)[:, None])


def full_model(model: QuantileModel, names: Names, newest: LengthRows) -> FullModel:
    """The model with the offsets that the newest rows ask for."""
    log_ratio = newest.log_output[:, None] - model.log_quantiles(input_matrix(newest, names))
    place = group_places(newest, names.groups, names.prompt_edges)
    return FullModel(model, names, conformal_offsets(log_ratio, place, names.groups, names.parent, model.levels))
