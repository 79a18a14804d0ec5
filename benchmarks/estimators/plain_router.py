"""A router in plain Python: reads estimators from stdin, decides, and prints how long it took, as JSON.

A program of its own, so that nothing but what a router imports is loaded; `heavy` names what should not be.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

from models.portable.length import Arrival
from models.portable.length_online import LengthTracker
from models.portable_json import from_dict
from policies.families.registry import decide
from policies.policy import ClassPolicy, default_policy
from policies.terms import decode_parts, pair_terms, prefill_parts
from policies.view import DecodeView, PrefillView, RequestView, RouterView, UplinkView

HEAVY = ("numpy", "lightgbm", "numba", "polars", "scipy", "sklearn", "pandas")
NODES, REPEATS = 8, 300
ARRIVAL = Arrival("class-1", 9000, app="app-2", turn=3, previous_output=250.0, session_mean_output=400.0, hour=14.5)


def main() -> None:
    """Measure and print."""
    began = time.perf_counter()
    laws = from_dict(json.load(sys.stdin))
    read_ms = (time.perf_counter() - began) * 1e3
    policy = default_policy((ClassPolicy("any", ttft_target_s=2.0, tpot_target_s=0.05),))
    view, tracker = _view(), LengthTracker(laws.length)

    def estimates() -> None:
        prefill = [prefill_parts(view, node, laws) for node in view.prefill]
        decode = [decode_parts(view, node, laws, policy) for node in view.decode]
        for i, p in enumerate(prefill):
            for j, d in enumerate(decode):
                pair_terms(view, (i, j), (p, d), laws, policy)

    found = {
        "read_ms": read_ms,
        "length_ms": _ms(lambda: tracker.quantiles(ARRIVAL)),
        "estimates_ms": _ms(estimates),
        "decision_ms": _ms(lambda: decide(policy, laws, view)),
        "heavy": [name for name in HEAVY if name in sys.modules],
    }
    sys.stdout.write(json.dumps(found))


def _ms(call: Callable[[], object]) -> float:
    """Median process time of a call, in milliseconds."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return statistics.median(times) * 1e3


def _view() -> RouterView:
    """Two racks, 8 P and 8 D, a prompt of two chunks with a hit on every other P."""
    prefill = tuple(
        PrefillView(f"p{k}/dp0", k % 2, True, True, 2048, 25e9, 4096 * (k % 2), 3000.0 * k, float(k), 900.0, 1.0, 0.3)
        for k in range(NODES)
    )
    decode = tuple(
        DecodeView(
            f"d{k}/dp0", k % 2, True, True, 25e9, 0, 1536.0, 100.0 * k, 3.0, 10.0, 5.0, 20.0, 0.0, 12.0 * k, 5e4 * k,
            2.0, 9000.0, 1.0, 9000.0, 3.0, 2.0, 0.3,
        )
        for k in range(NODES)
    )  # fmt: skip
    uplinks = (UplinkView("up:a>b", 0, 1, 12.5e9, 1.0), UplinkView("up:b>a", 1, 0, 12.5e9, 0.0))
    return RouterView(RequestView(9000, 900, 300, 0, 0.01, 7), prefill, decode, uplinks, 512, 327_680, 8192, 5)


if __name__ == "__main__":
    main()
