"""Names that settings give: nodes behind the aliases of logs, and SLO classes of requests that have none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from features.errors import SettingsError
from features.readers.base import HEADER_PREFIX

DEFAULT_CLASS = "default"
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_RANK = re.compile(r"/dp\d+$")


@dataclass(frozen=True, slots=True)
class Alias:
    """`name` (URL, instance label, pod, worker id) means `node` from `valid_from_us` until before `valid_to_us`.

    A `node` without `/dp<rank>` is a worker: ranks of the name carry over to it.
    """

    name: str
    node: str
    valid_from_us: int | None = None
    valid_to_us: int | None = None


@dataclass(frozen=True, slots=True)
class ClassRule:
    """Requests that meet all given conditions are of class `name`. `min` is inclusive, `max` exclusive, in tokens.

    `header` is (name, value) of a captured request header.
    """

    name: str
    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None
    priority: int | None = None
    tenant: str | None = None
    app: str | None = None
    model: str | None = None
    header: tuple[str, str] | None = None

    def holds(self) -> pl.Expr:
        """Whether a request meets the conditions; an unknown value does not meet one."""
        prompt = pl.col("prompt_tokens")
        wanted = [
            pl.lit(value=True),
            *([prompt >= self.min_prompt_tokens] if self.min_prompt_tokens is not None else []),
            *([prompt < self.max_prompt_tokens] if self.max_prompt_tokens is not None else []),
            *([pl.col("priority") == self.priority] if self.priority is not None else []),
            *([pl.col("tenant") == self.tenant] if self.tenant is not None else []),
            *([pl.col("app") == self.app] if self.app is not None else []),
            *([pl.col("model") == self.model] if self.model is not None else []),
            *([pl.col(HEADER_PREFIX + self.header[0]) == self.header[1]] if self.header is not None else []),
        ]
        return pl.all_horizontal(wanted).fill_null(value=False)


def headers_of(rules: Sequence[ClassRule]) -> tuple[str, ...]:
    """Names of the request headers that rules ask for, sorted."""
    return tuple(sorted({rule.header[0] for rule in rules if rule.header is not None}))


def classify(requests: pl.DataFrame, rules: Sequence[ClassRule]) -> pl.DataFrame:
    """Requests with `slo_class`: the log's own, else the first rule that holds, else DEFAULT_CLASS.

    A format that captures no headers cannot meet a header condition.
    """
    absent = [HEADER_PREFIX + name for name in headers_of(rules) if HEADER_PREFIX + name not in requests.columns]
    known = requests.with_columns(pl.lit(None, pl.String).alias(name) for name in absent)
    if "slo_class" not in known.columns:
        known = known.with_columns(slo_class=pl.lit(None, pl.String))
    by_rule = [pl.when(rule.holds()).then(pl.lit(rule.name)) for rule in rules]
    return known.with_columns(pl.coalesce("slo_class", *by_rule, pl.lit(DEFAULT_CLASS)).alias("slo_class"))


class NodeNames:
    """Translates the node names of logs.

    Raises SettingsError if two aliases give one name two nodes at one time.
    """

    def __init__(self, aliases: Sequence[Alias]) -> None:
        self._by_name: dict[str, list[Alias]] = {}
        for alias in aliases:
            self._by_name.setdefault(_plain(alias.name), []).append(alias)
        for name, held in self._by_name.items():
            ordered = sorted(held, key=lambda a: a.valid_from_us or 0)
            for one, other in pairwise(ordered):
                if one.valid_to_us is None or one.valid_to_us > (other.valid_from_us or 0):
                    raise SettingsError("an alias must mean one node at a time", value=name)
        self.unmapped: dict[str, int] = {}
        """Name that no alias was valid for -> rows; stays empty without aliases."""

    def translate(self, frame: pl.DataFrame, column: str, time: str) -> pl.DataFrame:
        """`frame` with the nodes of `column` as of the time in `time`; names without a valid alias stay."""
        if not self._by_name or column not in frame.columns:
            return frame
        at = pl.col(time)
        out = pl.lit(None, pl.String)
        for name in frame[column].drop_nulls().unique(maintain_order=True):
            for alias, node in self._meanings(name):
                valid = pl.col(column) == name
                if alias.valid_from_us is not None:
                    valid &= at >= alias.valid_from_us
                if alias.valid_to_us is not None:
                    valid &= at < alias.valid_to_us
                out = pl.when(valid).then(pl.lit(node)).otherwise(out)
        named = frame.with_columns(out.alias("_node"))
        missed = named.filter(pl.col("_node").is_null() & pl.col(column).is_not_null())[column].value_counts()
        for name, rows in missed.rows():
            self.unmapped[name] = self.unmapped.get(name, 0) + rows
        return named.with_columns(pl.coalesce("_node", column).alias(column)).drop("_node")

    def _meanings(self, name: str) -> list[tuple[Alias, str]]:
        """Aliases of the whole name, or of the worker in front of its rank, with the node that each means."""
        plain = _plain(name)
        if plain in self._by_name:
            return [(alias, alias.node) for alias in self._by_name[plain]]
        rank = _RANK.search(plain)
        if rank is None:
            return []
        worker = self._by_name.get(plain[: rank.start()], [])
        return [(alias, alias.node if _RANK.search(alias.node) else alias.node + rank.group()) for alias in worker]


def _plain(name: str) -> str:
    """A URL's host and port; any other name as it is."""
    if not _SCHEME.match(name):
        return name
    return _SCHEME.sub("", name).split("/", 1)[0]
