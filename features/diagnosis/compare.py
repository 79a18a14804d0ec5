"""Live effect: requests that one policy version (router, node, …) served against those of another one, matched by
hour of day × class × prompt bucket. Nothing was assigned at random, and the result says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from features.diagnosis.facts import DiagnosisFacts, Limits
from features.diagnosis.finding import Rows
from features.diagnosis.session import session
from features.errors import LakeError
from features.lake import Lake

Float64 = npt.NDArray[np.float64]

COLUMNS = ("policy_version", "router_id", "prefill_node", "decode_node", "slo_class", "prompt_bucket")
"""What requests can be compared by."""
MEASURES = {"slo": "share of requests within their targets", "ttft": "TTFT, ms", "tpot": "TPOT, ms"}
FEWEST_IN_STRATUM = 20
"""Requests that each side must have in a stratum; with fewer its mean is mostly chance."""
FEWEST_BLOCKS = 10
_BLOCK_S = 600.0
_SHORT_BLOCK_S = 60.0
_RESAMPLES = 1000
CONFOUNDING = (
    "Requests were not assigned at random: hour of day, class and prompt size are matched; what else differed between "
    "the times of the two (traffic, faults, engine versions) is not."
)


@dataclass(frozen=True, slots=True)
class Effect:
    """Difference of a measure, value less reference, over strata that both have; weights = requests of both.

    `low`, `high`: 95 %, None where a side has fewer than FEWEST_BLOCKS blocks of time.
    """

    measure: str
    reference_mean: float
    value_mean: float
    difference: float
    low: float | None
    high: float | None
    reference_n: int
    value_n: int
    strata: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One value against the reference. `unmatched`: strata that only one side has, with its requests.

    `together_frac`: part of the value's requests in blocks of time in which the reference served too.
    """

    by: str
    reference: str
    value: str
    reference_requests: int
    value_requests: int
    matched_frac: float
    together_frac: float
    effects: tuple[Effect, ...]
    unmatched: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def compare(
    lake: Lake,
    days: Sequence[date],
    pool: str,
    by: str,
    *,
    facts: DiagnosisFacts,
    spill: Path,
    reference: str | None = None,
    seed: int = 1,
    limits: Limits | None = None,
) -> list[Comparison]:
    """Every value of the column `by` against the reference: the one named, else the one that was seen first.

    Raises LakeError if the days have no request with the column, or none of the reference.
    """
    if by not in COLUMNS:
        raise LakeError("requests must be compared by a known column", value=by, hint=f"one of {', '.join(COLUMNS)}")
    used = limits or Limits()
    with session(lake, days, pool, facts, used, spill) as opened:
        opened.view("r", file="base")
        rows = _sums(opened, by, _BLOCK_S)
        if len({row["block"] for row in rows}) < 2 * FEWEST_BLOCKS:
            rows = _sums(opened, by, _SHORT_BLOCK_S)
    if not rows:
        raise LakeError(
            "the days must have requests to compare, whose value is known", value=f"{pool}, {by}", place=str(lake.root),
            hint=f"compare by another column ({', '.join(COLUMNS)}) or ingest more logs",
        )  # fmt: skip
    order = list(dict.fromkeys(row["value"] for row in sorted(rows, key=lambda r: (r["block"], r["value"]))))
    base = reference or order[0]
    if base not in order:
        raise LakeError("the reference must be among the values", value=base, hint=f"one of {', '.join(order)}")
    mine = [row for row in rows if row["value"] == base]
    return [_pair(by, mine, [r for r in rows if r["value"] == value], seed) for value in order if value != base]


def _sums(opened: Any, by: str, block_s: float) -> Rows:  # noqa: ANN401  a session
    opened.set(block_us=round(block_s * 1e6))
    # Requests of which nobody knows the router or class are no group of their own.
    found: Rows = opened.rows("compare", column=f"nullif({by}, 'unknown')")
    return found


def _pair(by: str, reference: Rows, value: Rows, seed: int) -> Comparison:
    sides = (reference, value)
    counts = [_by_stratum(rows) for rows in sides]
    both = sorted(
        key for key in counts[0].keys() & counts[1].keys() if min(c[key] for c in counts) >= FEWEST_IN_STRATUM
    )
    unmatched = [
        {"side": rows[0]["value"], "hour": key[0], "slo_class": key[1], "prompt_bucket": key[2], "requests": count[key]}
        for rows, count in zip(sides, counts, strict=True)
        for key in sorted(count)
        if key not in both
    ]
    totals = [sum(count.values()) for count in counts]
    blocks = {row["block"] for row in reference}
    together = sum(row["requests"] for row in value if row["block"] in blocks) / totals[1]
    notes = [CONFOUNDING]
    if together < 0.5:
        notes.append("The two served at different times for the most part: a difference may be the time's.")
    if not both:
        notes.append("No stratum has enough requests of both: nothing can be compared.")
    effects = [effect for name in MEASURES if (effect := _effect(name, sides, both, seed)) is not None]
    if any(effect.low is None for effect in effects):
        notes.append(f"There is no interval: a side has fewer than {FEWEST_BLOCKS} blocks of time.")
    return Comparison(
        by=by,
        reference=reference[0]["value"],
        value=value[0]["value"],
        reference_requests=totals[0],
        value_requests=totals[1],
        matched_frac=sum(count[key] for count in counts for key in both) / sum(totals),
        together_frac=together,
        effects=tuple(effects),
        unmatched=tuple(unmatched),
        notes=tuple(notes),
    )


def _stratum(row: Mapping[str, Any]) -> tuple[int, str, str]:
    return row["hour"], row["slo_class"], row["prompt_bucket"]


def _by_stratum(rows: Rows) -> dict[tuple[int, str, str], int]:
    found: dict[tuple[int, str, str], int] = {}
    for row in rows:
        found[_stratum(row)] = found.get(_stratum(row), 0) + row["requests"]
    return found


def _effect(name: str, sides: tuple[Rows, Rows], strata: Sequence[tuple[int, str, str]], seed: int) -> Effect | None:
    grids = [_grid(rows, name, strata) for rows in sides]
    totals = [(count.sum(axis=0), value.sum(axis=0)) for count, value in grids]
    usable = (totals[0][0] > 0) & (totals[1][0] > 0)
    if not usable.any():
        return None
    weights = np.where(usable, totals[0][0] + totals[1][0], 0.0)
    means = [_mean(count[None], value[None], weights)[0] for count, value in totals]
    low, high = _interval(grids, weights, seed)
    return Effect(
        measure=name,
        reference_mean=float(means[0]),
        value_mean=float(means[1]),
        difference=float(means[1] - means[0]),
        low=low,
        high=high,
        reference_n=int(totals[0][0][usable].sum()),
        value_n=int(totals[1][0][usable].sum()),
        strata=int(usable.sum()),
    )


def _grid(rows: Rows, name: str, strata: Sequence[tuple[int, str, str]]) -> tuple[Float64, Float64]:
    """Counts and sums of a measure, shape (blocks, strata)."""
    blocks = {block: at for at, block in enumerate(sorted({row["block"] for row in rows}))}
    place = {key: at for at, key in enumerate(strata)}
    counts, sums = np.zeros((len(blocks), len(place))), np.zeros((len(blocks), len(place)))
    for row in rows:
        if (at := place.get(_stratum(row))) is not None:
            counts[blocks[row["block"]], at] += row[f"{name}_n"]
            sums[blocks[row["block"]], at] += row[f"{name}_sum"]
    return counts, sums


def _mean(counts: Float64, sums: Float64, weights: Float64) -> Float64:
    """Weighted mean over strata, shape (draws,); a stratum that a draw lacks leaves its weight to the others."""
    has = counts > 0
    mean = np.divide(sums, counts, out=np.zeros_like(sums), where=has)
    found: Float64 = (mean * weights * has).sum(axis=1) / np.maximum((weights * has).sum(axis=1), 1e-12)
    return found


def _interval(grids: list[tuple[Float64, Float64]], weights: Float64, seed: int) -> tuple[float | None, float | None]:
    if min(len(count) for count, _ in grids) < FEWEST_BLOCKS:
        return None, None
    rng = np.random.default_rng(seed)
    drawn = []
    for counts, sums in grids:
        n = len(counts)
        draws = rng.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES).astype(np.float64)
        drawn.append(_mean(draws @ counts, draws @ sums, weights))
    low, high = np.quantile(drawn[1] - drawn[0], (0.025, 0.975))
    return float(low), float(high)
