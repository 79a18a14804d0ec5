"""Closer looks made by hand, for the tests of flows and slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from policies.search.cases import Case
from policies.search.detail import Detail
from policies.twin.cluster import Node
from tests.policies.stub import outcome

PREFILL = (Node("p0", "a", 100, 100.0), Node("p1", "b", 100, 100.0))
DECODE = (Node("d0", "a", 100, 100.0), Node("d1", "b", 100, 100.0))


def detail(prefill: Sequence[int], decode: Sequence[int], *, every_s: float = 1.0, **more: Any) -> Detail:
    """Requests of 1,000 tokens and class chat, one every so many seconds, all met; no decision was measured."""
    n = len(prefill)
    made = Detail(
        case=Case("d1"),
        classes=("chat", "batch"),
        prefill=PREFILL,
        decode=DECODE,
        arrival_ns=np.round(np.arange(n) * every_s * 1e9).astype(np.int64) + 7_000_000_000,
        class_index=np.zeros(n, np.int32),
        prompt_tokens=np.full(n, 1000, np.int32),
        weight=np.ones(n),
        met=np.ones(n, np.bool_),
        prefill_node=np.array(prefill, np.int32),
        decode_node=np.array(decode, np.int32),
        high_water=0.85,
        above_high_water_frac=0.25,
        regret_class=np.zeros(0, np.int32),
        regret_ttft_s=np.zeros(0),
        regret_missed=np.zeros(0, np.bool_),
        outcome=outcome(0.9),
    )
    return replace(made, **more)
