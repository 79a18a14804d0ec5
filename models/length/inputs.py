"""The table's inputs for many rows at once, as `LengthLaw.inputs` computes them one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from models.length.rows import LengthRows
from models.metrics import FloatArray, IntArray
from models.portable.arrays import log1p
from models.portable.length import ALL, LengthLaw

LEVEL_PRIOR_ROWS = 20.0
"""A group of n rows keeps n / (n + this) of its own mean; the rest is its parent's."""
PROMPT_BANDS = 5
"""Offsets drift apart between short and long prompts: large groups have one for each fifth of the prompt lengths."""
GROUP_LEAST, PART_LEAST, EFFECT_LEAST = 30, 200, 200
"""Rows that a class with app, a band of a group, and a tenant or model must have for an entry of their own."""
MOST_GROUPS, MOST_PARTS, MOST_EFFECTS = 150, 150, 300
"""Entries at most, those of most rows: a policy file stays small whatever the number of apps and tenants."""


@dataclass(frozen=True, slots=True)
class Names:
    """How text becomes numbers; fields as in `LengthLaw`. `parent`: group -> the group that it leans on, `*` -> `*`."""

    group_level: Mapping[str, float]
    parent: Mapping[str, str]
    prompt_edges: tuple[float, ...]
    tenant_effect: Mapping[str, float]
    model_effect: Mapping[str, float]

    @classmethod
    def of(cls, law: LengthLaw) -> Names:
        """Those of a law; parents are left open."""
        return cls(law.group_level, {}, law.prompt_edges, law.tenant_effect, law.model_effect)

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups, parents first."""
        return tuple(self.group_level)


def learn_names(rows: LengthRows) -> Names:
    """Levels of classes and apps with enough rows, shrunk to their parent, and what tenants and models add to them."""
    keys, classes, place = rows.keys()
    y = rows.log_output
    levels, parent = {ALL: float(y.mean())}, {ALL: ALL}
    sizes = np.bincount(place, minlength=len(keys))
    class_of = np.array([classes.index(name) for name in classes])[place]
    for name in sorted(set(classes) - {ALL}):
        levels[name] = _shrunk(y[class_of == classes.index(name)], levels[ALL])
        parent[name] = ALL
    largest = sorted((-int(sizes[at]), key, at) for at, key in enumerate(keys) if key not in levels)[:MOST_GROUPS]
    for size, key, at in largest:
        if -size >= GROUP_LEAST:
            levels[key] = _shrunk(y[place == at], levels[classes[at]])
            parent[key] = classes[at]
    whole = group_places(rows, tuple(levels), ())
    rest = y - np.array(list(levels.values()))[whole]
    edges = _prompt_edges(rows.column("prompt_tokens"))
    for part, of in _parts(rows, whole, tuple(levels), edges):
        if part not in levels:  # an app may be named like a band of another one: it keeps its own level
            levels[part], parent[part] = levels[of], of
    tenants = _effects(rows.frame["tenant"], rest)
    with_tenant = rest - effect_values(rows.frame["tenant"], tenants)
    return Names(levels, parent, edges, tenants, _effects(rows.frame["model"], with_tenant))


def group_places(rows: LengthRows, groups: Sequence[str], edges: Sequence[float]) -> IntArray:
    """Each row's place in `groups`, as `LengthLaw.group` says."""
    known = {name: at for at, name in enumerate(groups)}
    keys, classes, place = rows.keys()
    whole = [known.get(key, known.get(of, known[ALL])) for key, of in zip(keys, classes, strict=True)]
    parts = [[known.get(f"{groups[at]}|{band}", at) for band in range(len(edges) + 1)] for at in whole]
    found = np.array(parts, dtype=np.int64).reshape(-1, len(edges) + 1)
    return found[place, prompt_bands(rows.column("prompt_tokens"), edges)]


def prompt_bands(prompt_tokens: FloatArray, edges: Sequence[float]) -> IntArray:
    """How many edges are at or below each prompt."""
    found: IntArray = np.searchsorted(np.array(edges, dtype=np.float64), prompt_tokens, side="right")
    return found


def input_matrix(rows: LengthRows, names: Names) -> FloatArray:
    """Inputs in the order of `models.portable.length.INPUTS`, shape (rows, inputs), unknown = NaN."""
    level = np.array(list(names.group_level.values()))[group_places(rows, names.groups, names.prompt_edges)]
    prompt, cached = rows.column("prompt_tokens"), rows.column("cached_frac")
    columns = (
        level,
        log1p(prompt),
        cached,
        log1p(rows.column("max_output_tokens")),
        rows.column("session_turn"),
        log1p(rows.column("previous_output")),
        log1p(rows.column("session_mean_output")),
        rows.column("hour"),
        log1p(rows.column("recent_output")),
        log1p(prompt * (1.0 - cached)),
        effect_values(rows.frame["tenant"], names.tenant_effect),
        effect_values(rows.frame["model"], names.model_effect),
    )
    return np.stack(columns, axis=1)


def effect_values(column: pl.Series, effects: Mapping[str, float]) -> FloatArray:
    """The effect of every name, 0 for unknown ones."""
    if not effects or column.null_count() == len(column):
        return np.zeros(len(column))
    found: FloatArray = column.replace_strict(dict(effects), default=0.0, return_dtype=pl.Float64).to_numpy()
    return found


def _prompt_edges(prompt_tokens: FloatArray) -> tuple[float, ...]:
    """Whole numbers that split the rows evenly where prompts differ enough."""
    split = np.ceil(np.quantile(prompt_tokens, np.arange(1, PROMPT_BANDS) / PROMPT_BANDS))
    return tuple(sorted({float(edge) for edge in split if edge > prompt_tokens.min()}))


def _parts(
    rows: LengthRows, whole: IntArray, groups: Sequence[str], edges: Sequence[float]
) -> Iterator[tuple[str, str]]:
    """Groups by band of the prompt that have enough rows, with the group that each is part of; the largest first."""
    bands = len(edges) + 1
    sizes = np.bincount(
        whole * bands + prompt_bands(rows.column("prompt_tokens"), edges), minlength=len(groups) * bands
    )
    order = np.argsort(-sizes, kind="stable")[:MOST_PARTS]
    for at in order[sizes[order] >= PART_LEAST].tolist():
        if bands > 1:
            yield f"{groups[at // bands]}|{at % bands}", groups[at // bands]


def _effects(column: pl.Series, rest: FloatArray) -> dict[str, float]:
    frame = pl.DataFrame({"name": column, "rest": rest}).filter(pl.col("name").is_not_null())
    found = (
        frame.group_by("name")
        .agg(rows=pl.len(), total=pl.col("rest").sort().sum())
        .sort("rows", "name", descending=[True, False])
    )
    kept = found.filter(pl.col("rows") >= EFFECT_LEAST).head(MOST_EFFECTS).sort("name")
    return {name: rounded(total / (count + LEVEL_PRIOR_ROWS)) for name, count, total in kept.iter_rows()}


def _shrunk(values: FloatArray, parent: float) -> float:
    return rounded((float(values.sum()) + LEVEL_PRIOR_ROWS * parent) / (values.size + LEVEL_PRIOR_ROWS))


def rounded(value: float, digits: int = 6) -> float:
    """To some significant digits: what ships is short, and what is fitted is what ships."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else value
