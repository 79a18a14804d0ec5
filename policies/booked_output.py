"""What a router expects of every answer's length, from the shipped length table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from models.portable import LengthTable
from policies.twin.workload import Int32, Workload

MEDIAN = 0.5


def booked_output(table: LengthTable, classes: Sequence[str], levels: Sequence[float], workload: Workload) -> Int32:
    """Output tokens of every request at its class's quantile level, rounded up, at least 1; shape (requests,).

    `classes` and `levels` go by class index. Raises ModelError where the table lacks a level.
    """
    bins = len(table.prompt_edges) + 1
    # One prompt length that falls into each bin: edges are the first lengths of the next one.
    inside = [*(edge - 1 for edge in table.prompt_edges), (table.prompt_edges[-1] if table.prompt_edges else 1)]
    assert [bisect_right(table.prompt_edges, n) for n in inside] == list(range(bins))
    by_cell = np.array(
        [[table.quantile(name, n, level) for n in inside] for name, level in zip(classes, levels, strict=True)]
    )
    at = np.searchsorted(np.array(table.prompt_edges, np.int64), workload.prompt_tokens, side="right")
    tokens: Int32 = np.maximum(np.ceil(by_cell[workload.class_index, at]), 1).astype(np.int32)
    return tokens


def expected_output(table: LengthTable, classes: Sequence[str], workload: Workload) -> Int32:
    """`booked_output` at the median of every class."""
    return booked_output(table, classes, [MEDIAN] * len(classes), workload)
