"""Random views, policies and laws, and one call of the compiled decision for all tests of the decision."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from models.portable import Estimators, LengthTable, RiskSigma, StepLaw, TransferLaw
from policies.families.choose_kernel import choose
from policies.families.registry import law_arrays_of, policy_arrays, pool_arrays_of, to_view_arrays
from policies.kernel_types import Scratch
from policies.policy import SAME_RACK, UNKNOWN, WHEN_FULL, ClassPolicy, Policy
from policies.risk import risk_table
from policies.view import DecodeView, PrefillView, RequestView, RouterView, UplinkView

LENGTH = LengthTable(levels=(0.5, 0.9), prompt_edges=(), tokens={"*": ((100.0, 400.0),)}, offset={"*": (1.0, 1.0)})


def estimators(**changes) -> Estimators:
    made = Estimators(
        length=LENGTH,
        prefill=StepLaw((0.01, 5e-5, 1e-9, 2e-10), {"p1": 1.3}, (512, 4096), (1.1, 1.0, 0.95)),
        decode=StepLaw((0.008, 2e-5, 3e-8, -1e-15), {"d0": 1.25}, (8, 64), (1.0, 1.05, 1.1), token_cap=4e6),
        transfer=TransferLaw({"local": 0.002, "cross": 0.004}, {"local": 0.9, "cross": 0.8}),
        risk=RiskSigma(),
    )
    return replace(made, **changes)


# Few distinct values, so that ties and empty nodes are common.
def amounts(top: float):
    return st.one_of(st.sampled_from([0.0, top / 8, top / 2]), st.floats(0, top, allow_subnormal=False))


def maybe(values):
    return st.one_of(values, values, values, st.none())


@st.composite
def prefill_views(draw, index: int, racks: int, prompt: int, block: int):
    hits = max(0, (prompt - 1) // block)
    return PrefillView(
        name=f"p{index}",
        rack=draw(st.integers(0, racks - 1)),
        accepting=draw(st.sampled_from([True, True, True, False])),
        compatible=draw(st.sampled_from([True, True, True, True, False])),
        total_blocks=draw(st.sampled_from([2_000, 400, 40])),
        port_bytes_per_s=draw(st.sampled_from([5e10, 1.25e10])),
        hit_tokens=block * draw(st.one_of(st.just(0), st.integers(0, hits))),
        backlog_tokens=draw(maybe(amounts(60_000))),
        backlog_requests=draw(maybe(st.integers(0, 20).map(float))),
        available_blocks=draw(maybe(amounts(2_000))),
        sending_requests=draw(maybe(st.integers(0, 5).map(float))),
        age_s=draw(maybe(amounts(2.0))),
    )


@st.composite
def decode_views(draw, index: int, racks: int, prompt: int, block: int):
    return DecodeView(
        name=f"d{index}",
        rack=draw(st.integers(0, racks - 1)),
        accepting=draw(st.sampled_from([True, True, True, False])),
        compatible=draw(st.sampled_from([True, True, True, True, False])),
        port_bytes_per_s=draw(st.sampled_from([5e10, 1.25e10])),
        resident_tokens=block * draw(st.one_of(st.just(0), st.integers(0, prompt // block))),
        usable_blocks=draw(st.sampled_from([4_000.0, 1_500.0, 90.0])),
        active_blocks=draw(maybe(amounts(3_000))),
        reserved_blocks=draw(maybe(amounts(200))),
        inflight_blocks=draw(maybe(amounts(400))),
        reclaimable_blocks=draw(maybe(amounts(100))),
        booked_blocks=draw(amounts(400)),
        queued_blocks=draw(maybe(amounts(800))),
        running_requests=draw(maybe(st.integers(0, 90).map(float))),
        running_tokens=draw(maybe(amounts(5e6))),
        receiving_requests=draw(maybe(st.integers(0, 9).map(float))),
        receiving_tokens=draw(maybe(amounts(60_000))),
        booked_requests=draw(st.integers(0, 4).map(float)),
        booked_tokens=draw(amounts(60_000)),
        growth_blocks_per_s=draw(maybe(amounts(300))),
        release_blocks_per_s=draw(maybe(amounts(300))),
        age_s=draw(maybe(amounts(2.0))),
    )


@st.composite
def router_views(draw, classes: int = 2):
    block = draw(st.sampled_from([16, 64]))
    prompt = draw(st.one_of(st.integers(1, 30_000), st.sampled_from([1, block, block + 1, 1024])))
    racks = draw(st.integers(1, 3))
    n_prefill, n_decode = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    pairs = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), unique=True, max_size=4))
    uplinks = tuple(
        UplinkView(a, b, draw(st.sampled_from([1.25e10, 3e9])), float(draw(st.integers(0, 3)))) for a, b in pairs
    )
    return RouterView(
        request=RequestView(
            prompt_tokens=prompt,
            estimated_output_tokens=draw(st.integers(0, 3_000)),
            expected_output_tokens=draw(st.integers(0, 900)),
            class_index=draw(st.integers(0, classes - 1)),
            waited_s=draw(amounts(3.0)),
            tie_seed=draw(st.integers(0, 2**64 - 1)),
        ),
        prefill=tuple(draw(prefill_views(i, racks, prompt, block)) for i in range(n_prefill)),
        decode=tuple(draw(decode_views(j, racks, prompt, block)) for j in range(n_decode)),
        uplinks=uplinks,
        block_tokens=block,
        kv_bytes_per_token=draw(st.sampled_from([327_680, 70_272])),
        chunk_tokens=draw(st.sampled_from([512, 8192])),
        turn=draw(st.integers(0, 1000)),
    )


@st.composite
def policies(draw, families):
    weight = st.sampled_from([0.0, 0.5, 1.0, 3.0])
    classes = tuple(
        ClassPolicy(
            name=name,
            ttft_target_s=draw(st.sampled_from([None, 0.5, 4.0])),
            tpot_target_s=draw(st.sampled_from([None, 0.02, 0.05])),
            weights=tuple(draw(weight) for _ in range(7)),
            reserve_blocks=draw(st.sampled_from([0.0, 50.0])),
        )
        for name in ("chat", "batch")
    )
    return Policy(
        family=draw(st.sampled_from(families)),
        classes=classes,
        high_water=draw(st.sampled_from([0.5, 0.85])),
        horizon_s=draw(st.sampled_from([1.0, 30.0])),
        wait_cap_s=draw(st.sampled_from([2.0, 30.0])),
        unknown=draw(st.sampled_from(UNKNOWN)),
        when_full=draw(st.sampled_from(WHEN_FULL)),
        same_rack=draw(st.sampled_from(SAME_RACK)),
        temperature_p_s=draw(st.sampled_from([0.0, 0.0, 0.2])),
        temperature_d_s=draw(st.sampled_from([0.0, 0.0, 0.1])),
        risk_ttft=risk_table(draw(st.sampled_from([0.25, 0.0]))),
        risk_tpot=risk_table(0.1),
    )


def run_kernel(policy: Policy, laws: Estimators, view: RouterView) -> tuple[int, Scratch]:
    shape = (len(view.prefill), len(view.decode))
    # Leftovers of an earlier decision must not matter.
    scratch = Scratch(*(np.full((*shape, *more), 7.0) for more in ((), (7,), (), ())))
    request = view.request
    chosen = choose(
        policy_arrays(policy),
        law_arrays_of(view, laws),
        pool_arrays_of(view),
        to_view_arrays(view),
        request.prompt_tokens,
        request.estimated_output_tokens,
        request.expected_output_tokens,
        request.class_index,
        request.waited_s,
        np.uint64(request.tie_seed),
        view.turn,
        scratch,
    )
    return int(chosen), scratch


def same_bits(plain: float | None, compiled: float) -> bool:
    """Equal floats, None = NaN."""
    if plain is None:
        return math.isnan(compiled)
    return np.float64(plain).tobytes() == np.float64(compiled).tobytes()
