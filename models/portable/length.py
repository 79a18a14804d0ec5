"""Quantiles of output tokens: a table by what a router knows at arrival, with offsets that follow the traffic."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from features.errors import ModelError
from models.portable.trees import Trees
from models.portable.values import STRICT, NotNegative, Positive

ALL = "*"
"""The group of requests whose class has none of its own."""
INPUTS = (
    "group_level", "log_prompt", "cached_frac", "log_max_output", "turn", "log_previous", "log_session_mean", "hour",
    "log_recent", "log_new", "tenant_effect", "model_effect",
)  # fmt: skip
"""What the table reads, in order; unknown = NaN. log_x = log(1 + x); `log_new`: of the prompt's tokens not cached."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a router knows of a request when it arrives; None = unknown.

    `cached_frac`: share of the prompt that some P is believed to hold. `turn`: requests of its session before it.
    `previous_output`, `session_mean_output`: tokens of the last answer and of all answers of the session that had ended
    by then. `hour`: of the day, UTC, 0 <= hour < 24. `recent_output`: geometric mean of the answers of its class and
    app that ended last, as `LengthTracker` keeps it.
    """

    slo_class: str
    prompt_tokens: int
    app: str | None = None
    tenant: str | None = None
    model: str | None = None
    cached_frac: float | None = None
    max_output_tokens: int | None = None
    turn: int | None = None
    previous_output: float | None = None
    session_mean_output: float | None = None
    hour: float | None = None
    recent_output: float | None = None


@dataclass(frozen=True, slots=True)
class LengthLaw:
    """Quantile at `levels[k]` = rows[cell][k] × offset[group][k], never below that of a lower level, at most the limit.

    A request's group is `<class>/<app>`, else `<class>`, else `*`: the first that `offset` names; of it the part
    `<group>|<band>` if `offset` names that, where band = how many of `prompt_edges` are <= the prompt's tokens.
    `group_level`: mean log tokens of a group, an input of the table. `table`: one tree over INPUTS whose leaves are
    places in `rows`. `pace[group][k]`: step of the online rule: after an answer of y tokens the offset is multiplied by
    1 + pace·((y > quantile) - (1 - level)). `limit_tokens` ends any answer, None = no limit. `tenant_effect`,
    `model_effect`: mean log tokens of a tenant or model above its group's; one that is not named has 0. `recent`: by
    class and app, `recent_output` at the end of the history, where a tracker starts.
    """

    __pydantic_config__ = STRICT

    levels: tuple[float, ...]
    group_level: Mapping[str, float]
    table: Trees
    rows: tuple[tuple[NotNegative, ...], ...]
    offset: Mapping[str, tuple[Positive, ...]]
    pace: Mapping[str, tuple[NotNegative, ...]]
    limit_tokens: Positive | None = None
    tenant_effect: Mapping[str, float] = field(default_factory=dict)
    model_effect: Mapping[str, float] = field(default_factory=dict)
    recent: Mapping[str, Positive] = field(default_factory=dict)
    prompt_edges: tuple[Positive, ...] = ()

    def __post_init__(self) -> None:
        if ALL not in self.offset or set(self.offset) != set(self.pace) or set(self.offset) != set(self.group_level):
            raise ModelError(
                f"offset, pace and group_level must name the same groups, `{ALL}` among them", value=sorted(self.offset)
            )
        by_level = (*self.rows, *self.offset.values(), *self.pace.values())
        if any(len(row) != len(self.levels) for row in by_level):
            raise ModelError("rows, offsets and paces must have one value a level", value=len(self.levels))
        if (
            not self.levels
            or self.levels[0] <= 0.0
            or self.levels[-1] >= 1.0
            or sorted(set(self.levels)) != [*self.levels]
        ):
            raise ModelError("levels must ascend inside (0, 1)", value=self.levels)
        places = [value for feature, value in zip(self.table.feature, self.table.value, strict=True) if feature < 0]
        if len(self.table.roots) != 1 or any(not 0 <= place < len(self.rows) for place in places):
            raise ModelError("the table must be one tree whose leaves are places in `rows`", value=len(self.rows))
        if any(feature >= len(INPUTS) for feature in self.table.feature):
            raise ModelError(
                "the table must read known inputs", value=max(self.table.feature), hint=f"0..{len(INPUTS) - 1}"
            )
        if any(b <= a for a, b in pairwise(self.prompt_edges)):
            raise ModelError("prompt edges must ascend", value=self.prompt_edges)
        if any(pace >= 1.0 for values in self.pace.values() for pace in values):
            raise ModelError("`pace < 1` must hold: an offset stays above 0")

    def group(self, arrival: Arrival) -> str:
        """The group that the request counts to."""
        whole = self._whole(arrival)
        part = f"{whole}|{bisect_right(self.prompt_edges, arrival.prompt_tokens)}"
        return part if part in self.offset else whole

    def _whole(self, arrival: Arrival) -> str:
        if arrival.app is not None and f"{arrival.slo_class}/{arrival.app}" in self.offset:
            return f"{arrival.slo_class}/{arrival.app}"
        return arrival.slo_class if arrival.slo_class in self.offset else ALL

    def base(self, arrival: Arrival) -> tuple[float, ...]:
        """The table's tokens by level, before any offset."""
        return self.rows[int(self.table.leaf(self.table.roots[0], self.inputs(arrival)))]

    def inputs(self, arrival: Arrival) -> tuple[float, ...]:
        """The table's inputs, in the order of INPUTS."""
        return (
            self.group_level[self.group(arrival)],
            math.log1p(arrival.prompt_tokens),
            _known(arrival.cached_frac),
            _log(arrival.max_output_tokens),
            _known(arrival.turn),
            _log(arrival.previous_output),
            _log(arrival.session_mean_output),
            _known(arrival.hour),
            _log(arrival.recent_output),
            _log_new(arrival),
            _effect(self.tenant_effect, arrival.tenant),
            _effect(self.model_effect, arrival.model),
        )

    def quantiles(self, arrival: Arrival) -> tuple[float, ...]:
        """Output tokens by level, with the offsets of the file."""
        return quantiles(self.base(arrival), self.offset[self.group(arrival)], self.cap(arrival))

    def quantile(self, arrival: Arrival, level: float) -> float:
        """Output tokens at a level that the law has. ModelError for another one."""
        return self.quantiles(arrival)[self.place(level)]

    def place(self, level: float) -> int:
        """Where a level stands. ModelError if it does not."""
        if level not in self.levels:
            raise ModelError("a quantile level must be one that the law has", value=level, hint=f"one of {self.levels}")
        return self.levels.index(level)

    def cap(self, arrival: Arrival) -> float:
        """The most tokens that the answer can have; infinity = no limit."""
        limits = [limit for limit in (arrival.max_output_tokens, self.limit_tokens) if limit is not None]
        return float(min(limits)) if limits else math.inf


def own_key(arrival: Arrival) -> str:
    """Class and app as the request names them, whether or not a law has a group for them."""
    return arrival.slo_class if arrival.app is None else f"{arrival.slo_class}/{arrival.app}"


def quantiles(base: tuple[float, ...], offset: tuple[float, ...] | list[float], cap: float) -> tuple[float, ...]:
    """base × offset level by level, ascending, at most `cap`."""
    found, least = [], 0.0
    for value, factor in zip(base, offset, strict=True):
        raised = value * factor
        least = raised if raised > least else least
        found.append(least if least < cap else cap)
    return tuple(found)


def _known(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _log(tokens: float | None) -> float:
    return math.nan if tokens is None else math.log1p(tokens)


def _log_new(arrival: Arrival) -> float:
    if arrival.cached_frac is None:
        return math.nan
    return math.log1p(arrival.prompt_tokens * (1.0 - arrival.cached_frac))


def _effect(effects: Mapping[str, float], name: str | None) -> float:
    return 0.0 if name is None else effects.get(name, 0.0)
