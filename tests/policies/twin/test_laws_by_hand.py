"""What the portable laws do to a replay, computed by hand; both forms of the twin run it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from features.errors import ModelError, TwinError
from models.portable.cache import CacheLaw
from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, StepLaws
from models.portable.transfer import TransferLaw
from models.portable.trees import table_of
from policies.lengths import constant_length
from policies.policy import ClassPolicy, Policy
from policies.twin.cluster import Cluster, RouterSetup
from policies.twin.outcomes import Replay
from policies.twin.reference.pool import replay_reference
from policies.twin.replay import replay
from policies.twin.workload import NUMBERS, Arrivals, Workload
from tests.policies.twin import tiny
from tests.policies.twin.tiny import MS

BY = pytest.mark.parametrize("function", [replay_reference, replay])
POLICY = Policy("round_robin", (ClassPolicy("chat", quantile=0.9), ClassPolicy("batch", quantile=0.5)))


def ms(times_ns: np.ndarray) -> list[float]:
    return np.round(times_ns / MS, 6).tolist()


def run(function, load: Workload, laws: Estimators, pool: Cluster | None = None, **fixed) -> Replay:
    return function(pool or tiny.cluster(), laws, POLICY, load, seed=0, **fixed)


@BY
def test_prompts_bends_trees_and_types_make_a_step_longer(function):
    law = StepLaw((10e-3, 1e-4, 0.0, 0.0, 1e-3), bends=((40.0, 1e-4),), trees=table_of(2, (2.0,), (1.0, 2.0)))
    laws = replace(tiny.laws(), prefill=StepLaws({"*": StepLaw((0.0,) * 5), "x": law}, {"p-0": "x"}, {"p-0": 0.5}))
    load = tiny.workload((0, 50, 1), (100, 20, 1), (100, 30, 1), pairs=[(0, 0)] * 3)
    # Alone: 10 + 5 + 1 + 1 of the bend; two prompts: 10 + 5 + 2 + 1, twice as long by the tree. Half of all that.
    assert ms(run(function, load, laws).prefill_finished_ns) == [8.5, 118.0, 118.0]


@BY
def test_decode_follows_its_type_and_the_tree_over_growing_tokens(function):
    law = StepLaw((5e-3, 0.0, 0.0, 0.0), trees=table_of(1, (18.0,), (1.0, 3.0)))
    laws = replace(tiny.laws(), decode=StepLaws({"*": StepLaw((1.0, 0.0, 0.0, 0.0)), "x": law}, {"d-0": "x"}))
    result = run(function, tiny.workload((0, 16, 4), pairs=[(0, 0)]), laws)
    # Steps at 16, 17, 18 and 19 tokens.
    assert ms(result.finished_ns - result.activated_ns) == [5 + 5 + 15 + 15]


@BY
def test_ports_wire_and_descriptors_make_a_transfer(function):
    transfer = TransferLaw(
        {"local": 1e-3, "cross": 0.0},
        {"local": 1.0, "cross": 1.0},
        descriptor_s=1e-3,
        descriptors_per_block=2.0,
        wire_frac=0.5,
        port_factor={"out:p-0": 0.5, "in:d-0": 0.25},
    )
    laws = replace(tiny.laws(), transfer=transfer)
    result = run(function, tiny.workload((0, 40, 1), pairs=[(0, 0)]), laws)
    # 20 tokens on the wire at a quarter of a token a ms, then 1 ms and 2 ms a block of three.
    assert ms(result.transfer_drained_ns - result.transfer_started_ns) == [80]
    assert ms(result.transfer_finished_ns - result.transfer_drained_ns) == [7]


@BY
def test_a_small_effective_cache_evicts_but_never_blocks(function):
    blocks = [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]
    load = tiny.workload((0, 64, 1), (1_000, 64, 1), (2_000, 64, 1), pairs=[(0, 0)] * 3, blocks=blocks)
    whole = run(function, load, tiny.laws())
    assert whole.cached_tokens.tolist() == [0, 48, 48]
    small = run(function, load, replace(tiny.laws(), cache={"p-0": CacheLaw(2.9)}))
    # Four blocks are pinned while a prompt is there; two of them stay, its first ones.
    assert small.cached_tokens.tolist() == [0, 32, 32]
    assert small.counters.evictions == 2 + 2 + 2
    none = run(function, load, replace(tiny.laws(), cache={"p-0": CacheLaw(0.0)}))
    assert none.cached_tokens.tolist() == [0, 0, 0]
    assert none.counters.blocked == 0
    assert (none.finished_ns >= 0).all()


def lengths():
    """Expects 4 tokens, books 8; a longer answer than expected moves the median by a half, a shorter one likewise."""
    law = replace(constant_length(0.0), rows=((4.0, 8.0),), limit_tokens=10.0)
    return replace(law, pace={"*": (1.0 - 2.0**-20, 0.5)})


@BY
def test_each_router_learns_from_its_own_answers_that_ended_before(function):
    laws = replace(tiny.laws(), length=lengths())
    # Two routers take turns. The third and fourth request come after both first answers, the last two before theirs.
    rows = [(0, 16, 20), (0, 16, 1), (1_000, 16, 1), (1_000, 16, 1), (1_010, 16, 1), (1_011, 16, 1)]
    load = tiny.workload(*rows, pairs=[(-1, -1)] * 6)
    result = run(function, load, laws, tiny.cluster(routers=RouterSetup(count=2)))
    # Router 0 saw an answer of 20 tokens: 4 -> 6 (· 1.5), 8 -> 11.6 (· 1.45), the limit is 10. Router 1 saw one of 1
    # token: 4 -> 2 (· 0.5), 8 -> 7.6 (· 0.95). Both round up; paces are a hair below the 1 that must not be reached.
    assert result.expected_output.tolist() == [4, 4, 6, 3, 6, 3]
    assert result.estimated_output.tolist() == [8, 8, 10, 8, 10, 8]


@BY
def test_what_must_not_teach_does_not_and_limits_and_classes_bind(function):
    numbers = np.full((3, len(NUMBERS)), np.nan)
    numbers[1, NUMBERS.index("max_output_tokens")] = 3.0
    arrivals = Arrivals(np.array(["app"]), np.full((3, 3), -1, np.int32), numbers, np.array([False, True, True]))
    load = tiny.workload((0, 16, 20), (1_000, 16, 2), (2_000, 16, 1), pairs=[(0, 0), (-1, -1), (-1, -1)])
    load = replace(load, arrivals=arrivals, class_index=np.array([0, 0, 1], np.int32))
    result = run(function, load, replace(tiny.laws(), length=lengths()))
    # The first answer teaches nothing; the second, of 2 tokens, halves the median. The last class books the median.
    assert result.expected_output.tolist() == [4, 3, 3]
    assert result.estimated_output.tolist() == [8, 3, 3]


@BY
def test_fixed_estimates_stay(function):
    load = tiny.workload((0, 16, 20), (1_000, 16, 1), pairs=[(0, 0)] * 2)
    fixed = np.array([7, 9], np.int32)
    result = run(
        function, load, replace(tiny.laws(), length=lengths()), estimated_output=fixed, expected_output=fixed - 5
    )
    assert result.estimated_output.tolist() == [7, 9]
    assert result.expected_output.tolist() == [2, 4]


def test_half_of_the_fixed_estimates_and_unknown_levels_are_refused():
    load = tiny.workload((0, 16, 1), pairs=[(0, 0)])
    for fixed in (
        {"estimated_output": np.ones(1, np.int32)},
        dict.fromkeys(("estimated_output", "expected_output"), np.ones(2)),
    ):
        with pytest.raises(TwinError, match="one estimate of both kinds"):
            run(replay, load, tiny.laws(), **fixed)
    with pytest.raises(ModelError, match="quantile level"):
        run(replay, load, replace(tiny.laws(), length=constant_length(4.0, (0.5, 0.8))))
