"""What output lengths are guessed by without a model: recent answers, answers to prompts of a like size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.length.online import answers_seen
from models.length.rows import LengthRows
from models.metrics import FloatArray, IntArray

WINDOWS = (200, 500, 1000, 3000)
BUCKETS, BUCKET_WINDOW, BUCKET_LEAST = 20, 200, 20


def baselines(rows: LengthRows, first: int, levels: tuple[float, ...]) -> Mapping[str, FloatArray]:
    """Quantiles of the rows from `first` on by method, shape (tested rows, levels); answers count once they ended."""
    order, seen = answers_seen(rows)
    found = {f"trailing window {size}": _trailing(rows.output, order, seen, first, size, levels) for size in WINDOWS}
    prompt = rows.column("prompt_tokens")
    edges = np.quantile(prompt[:first], np.arange(1, BUCKETS) / BUCKETS)
    bucket = np.searchsorted(edges, prompt, side="right")
    old = rows.output[:first]
    static = np.stack(
        [
            np.quantile(old[bucket[:first] == at] if (bucket[:first] == at).any() else old, levels)
            for at in range(BUCKETS)
        ]
    )
    found[f"input bucket ({BUCKETS}) static"] = static[bucket[first:]]
    found[f"input bucket ({BUCKETS}) trailing {BUCKET_WINDOW}"] = _by_bucket(
        rows.output, order, seen, bucket, static, first, levels
    )
    longest = float(old.max())
    found["longest answer so far"] = np.full((rows.count - first, len(levels)), longest)
    return found


def _trailing(
    output: FloatArray, order: IntArray, seen: IntArray, first: int, size: int, levels: tuple[float, ...]
) -> FloatArray:
    answers = output[order]
    return np.stack([np.quantile(answers[max(0, at - size) : at], levels) for at in seen[first:].tolist()])


def _by_bucket(
    output: FloatArray,
    order: IntArray,
    seen: IntArray,
    bucket: IntArray,
    static: FloatArray,
    first: int,
    levels: tuple[float, ...],
) -> FloatArray:
    """The last answers of the request's bucket; a bucket with few of them takes its static quantiles."""
    found = static[bucket[first:]].copy()
    for at in range(BUCKETS):
        places = np.flatnonzero(bucket[order] == at)
        answers = output[order][places]
        for row in np.flatnonzero(bucket[first:] == at):
            until = int(np.searchsorted(places, seen[first + row]))
            if until >= BUCKET_LEAST:
                found[row] = np.quantile(answers[max(0, until - BUCKET_WINDOW) : until], levels)
    return found
