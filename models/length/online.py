"""A law run over a log as a router runs it: quantiles at arrival, offsets moved when answers have ended."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from features.length_history import DELAY_ROWS
from models.length.inputs import Names, group_places, input_matrix
from models.length.rows import LengthRows
from models.metrics import FloatArray, IntArray
from models.portable.arrays import leaves
from models.portable.length import LengthLaw

CHUNK_ROWS = 200_000


def base_tokens(law: LengthLaw, rows: LengthRows) -> FloatArray:
    """`LengthLaw.base` of every row, shape (rows, levels)."""
    table, names = np.array(law.rows), Names.of(law)
    root = law.table.roots[0]
    parts = [table[leaves(law.table, root, input_matrix(part, names)).astype(np.int64)] for part in _chunks(rows)]
    return np.concatenate(parts) if parts else np.zeros((0, len(law.levels)))


def caps(law: LengthLaw, rows: LengthRows) -> FloatArray:
    """`LengthLaw.cap` of every row, shape (rows,)."""
    limit = np.nan_to_num(rows.column("max_output_tokens"), nan=np.inf)
    return np.minimum(limit, np.inf if law.limit_tokens is None else law.limit_tokens)


def frozen_quantiles(law: LengthLaw, rows: LengthRows, base: FloatArray | None = None) -> FloatArray:
    """`LengthLaw.quantiles` of every row, with the offsets of the file. `base`: instead of the table's.

    Shape (rows, levels).
    """
    base = base_tokens(law, rows) if base is None else base
    offset = np.array(list(law.offset.values()))[group_places(rows, tuple(law.offset), law.prompt_edges)]
    raised = np.maximum.accumulate(base * offset, axis=1)
    return np.minimum(raised, caps(law, rows)[:, None])


def online_quantiles(law: LengthLaw, rows: LengthRows, base: FloatArray | None = None) -> FloatArray:
    """Quantiles at each arrival, as a `LengthTracker` gives them that sees an answer strictly after it ended.

    An answer without `ended_at_us` ends with the arrival of the row DELAY_ROWS later. `base`: instead of the table's.
    Shape (rows, levels).
    """
    groups = tuple(law.offset)
    base = base_tokens(law, rows) if base is None else base
    cap, place = caps(law, rows), group_places(rows, groups, law.prompt_edges)
    order, seen = answers_seen(rows)
    offset = [list(law.offset[name]) for name in groups]
    pace = [law.pace[name] for name in groups]
    keep = [1.0 - level for level in law.levels]
    found = np.empty_like(base)
    done = 0
    for start in range(0, rows.count, CHUNK_ROWS):
        chunk = slice(start, min(rows.count, start + CHUNK_ROWS))
        until = seen[chunk].tolist()
        ends = order[done : until[-1]]
        answers = list(
            zip(base[ends].tolist(), cap[ends].tolist(), place[ends].tolist(), rows.output[ends].tolist(), strict=True)
        )
        asked = zip(base[chunk].tolist(), cap[chunk].tolist(), place[chunk].tolist(), strict=True)
        quantiles, first = [], done
        for (tokens, limit, group), last in zip(asked, until, strict=True):
            for ended, ended_limit, ended_group, y in answers[done - first : last - first]:
                own, step = offset[ended_group], pace[ended_group]
                for k, value in enumerate(_quantiles(ended, own, ended_limit)):
                    own[k] *= 1.0 + step[k] * ((1.0 if y > value else 0.0) - keep[k])
            done = last
            quantiles.append(_quantiles(tokens, offset[group], limit))
        found[chunk] = quantiles
    return found


def answers_seen(rows: LengthRows) -> tuple[IntArray, IntArray]:
    """Rows in order of their answers' ends, and how many of these each arrival has seen: those strictly before it."""
    arrived = rows.frame["arrived_at_us"].to_numpy()
    ended = _ends(rows, arrived)
    order = np.argsort(ended, kind="stable")
    return order, np.searchsorted(ended[order], arrived, side="left")


def _quantiles(base: list[float], offset: list[float], cap: float) -> list[float]:
    """`models.portable.length.quantiles`, for lists."""
    found, least = [], 0.0
    for value, factor in zip(base, offset, strict=True):
        raised = value * factor
        least = raised if raised > least else least
        found.append(least if least < cap else cap)
    return found


def _ends(rows: LengthRows, arrived: IntArray) -> IntArray:
    """When each answer was known; the last ones of a log without finish times never are."""
    never = np.iinfo(np.int64).max
    later = np.full(rows.count, never)
    later[: max(0, rows.count - DELAY_ROWS)] = arrived[DELAY_ROWS:]
    ended = rows.column("ended_at_us")
    known = np.isfinite(ended)
    found: IntArray = np.where(known, np.where(known, ended, 0.0).astype(np.int64), later)
    return found


def _chunks(rows: LengthRows) -> Iterator[LengthRows]:
    for start in range(0, rows.count, CHUNK_ROWS):
        yield rows.at(np.arange(start, min(rows.count, start + CHUNK_ROWS)))
