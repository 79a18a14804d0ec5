"""Steps of a D, seen through the requests that joined its batch: each one's first step.

Where D makes the first token, a request that is activated at a boundary has its first token one step later. Who ran
beside it then follows from the other requests' times; their tokens so far, from their first and last token.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

PLAUSIBLE = 3.0
"""A first step that takes this many times a request's mean step, or one part in this many, is none."""
_TIMES = ("decode_admitted_at_us", "first_token_at_us", "finished_at_us")
_SCHEMA = {
    "observed_at_us": pl.Int64,
    "node": pl.String,
    "n_steps": pl.Int64,
    "busy_us": pl.Int64,
    "sequences": pl.Float64,
    "tokens": pl.Float64,
}
Float64 = npt.NDArray[np.float64]


def first_steps(requests: pl.DataFrame) -> pl.DataFrame:
    """One row a step in which requests joined, sorted by its end and node; columns as `tables.decode_steps` has them.

    A node gives no rows where the median of first step / mean step of its requests is beyond PLAUSIBLE: there the time
    from activation to first token is something else.
    """
    admitted, first, last = (pl.col(name) for name in _TIMES)
    known = requests.filter(
        pl.all_horizontal(pl.col("decode_node", "output_tokens", *_TIMES).is_not_null()),
        last >= first,
        first >= admitted,
    )
    found = [pl.DataFrame(schema=_SCHEMA)]
    unfinished = requests.filter(admitted.is_not_null(), last.is_null())
    for node, rows in sorted(known.partition_by("decode_node", as_dict=True).items()):
        if _plausible(rows):
            until = _all_known_until(rows, unfinished.filter(pl.col("decode_node") == node[0]))
            found.append(_of_node(str(node[0]), rows).filter(pl.col("observed_at_us") <= until))
    return pl.concat(found).sort("observed_at_us", "node")


def _plausible(rows: pl.DataFrame) -> bool:
    admitted, first, last = (pl.col(name) for name in _TIMES)
    mean = (last - first) / (pl.col("output_tokens") - 1)
    ratio = (
        rows.filter(pl.col("output_tokens") > 1, last > first).select((first - admitted) / mean).to_series().median()
    )
    return isinstance(ratio, float) and 1 / PLAUSIBLE <= ratio <= PLAUSIBLE


def _all_known_until(rows: pl.DataFrame, unfinished: pl.DataFrame) -> int:
    """When the first request joined that still ran when the log ended: what runs beside it has unknown tokens.

    Who joined longer before the end than any request ever took, ran no more: its end is not logged.
    """
    admitted, _, last = (pl.col(name) for name in _TIMES)
    end, longest = rows.select(last.max().alias("end"), (last - admitted).max().alias("longest")).row(0)
    still = unfinished.filter(admitted >= end - longest)["decode_admitted_at_us"].min()
    return still if isinstance(still, int) else end


def _of_node(node: str, rows: pl.DataFrame) -> pl.DataFrame:
    admitted, first, last = (rows[name].to_numpy() for name in _TIMES)
    prompt, output = (rows[name].cast(pl.Float64).to_numpy() for name in ("prompt_tokens", "output_tokens"))
    # Who waits longer than others that were activated with it has not joined that step.
    joined, at = np.unique(admitted, return_inverse=True)
    ended = np.full(joined.size, np.iinfo(np.int64).max)
    np.minimum.at(ended, at, first)
    pace = np.divide(output - 1.0, last - first, out=np.zeros(first.size), where=last > first)
    since = first - first.min()
    at_first = _up_to(first, joined, np.stack([1.0 - pace * since, pace], axis=1))
    gone = _up_to(last, joined, np.stack([1.0 - pace * since, pace, prompt, np.ones(last.size)], axis=1))
    began = _up_to(admitted, joined, np.stack([prompt, np.ones(first.size)], axis=1))
    elapsed = joined - first.min()
    held = (at_first[:, 0] - gone[:, 0]) + (at_first[:, 1] - gone[:, 1]) * elapsed
    return pl.DataFrame(
        {
            "observed_at_us": ended,
            "node": node,
            "n_steps": 1,
            "busy_us": ended - joined,
            "sequences": began[:, 1] - gone[:, 3],
            "tokens": began[:, 0] - gone[:, 2] + held,
        },
        schema=_SCHEMA,
    ).filter(pl.col("busy_us") > 0, pl.col("sequences") > 0)


def _up_to(times: npt.NDArray[np.int64], at: npt.NDArray[np.int64], values: Float64) -> Float64:
    """Sums of `values`, shape (rows, k), over the rows with times <= each of `at`, shape (at, k)."""
    order = np.argsort(times, kind="stable")
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values[order], axis=0)])
    result: Float64 = sums[np.searchsorted(times[order], at, side="right")]
    return result
