"""Random views, policies and laws, and one call of the compiled decision for all tests of the decision."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from models.portable.cache import CacheLaw
from models.portable.estimators import Estimators, RiskSigma
from models.portable.length import LengthLaw
from models.portable.steps import StepLaw, StepLaws, Tail
from models.portable.transfer import TransferLaw
from models.portable.trees import Trees, table_of
from policies.compiled import entry_kernel
from policies.families.arrays import law_arrays_of, policy_arrays, pool_arrays_of, to_view_arrays
from policies.families.choose_kernel import choose
from policies.families.kernels import keys_of
from policies.kernel_types import TERMS, Scratch
from policies.policy import DECODE_MOMENTS, SAME_RACK, UNKNOWN, WHEN_FULL, ClassPolicy, Policy
from policies.risk import risk_table
from policies.view import DecodeView, PrefillView, RequestView, RouterView, UplinkView
from tests.policies.families.rows import random_row

LENGTH = LengthLaw(
    levels=(0.5, 0.9),
    group_level={"*": 5.0, "interactive": 4.5, "interactive/bot": 3.0},
    table=table_of(1, (6.0,), (0.0, 1.0)),
    rows=((60.0, 240.0), (100.0, 400.0)),
    offset={"*": (1.0, 1.0), "interactive": (1.0, 1.25), "interactive/bot": (0.5, 0.5)},
    pace={"*": (0.02, 0.02), "interactive": (0.01, 0.04), "interactive/bot": (0.0, 0.0)},
    limit_tokens=4096.0,
)
# Two trees: of the prompts and tokens of a prefill step, and of its context.
PREFILL_TREES = Trees(
    roots=(0, 5),
    feature=(0, -1, 2, -1, -1, 1, -1, -1),
    split=(512.0, 0.0, 2.5, 0.0, 0.0, 1e7, 0.0, 0.0),
    left=(1, 0, 3, 0, 0, 6, 0, 0),
    right=(2, 0, 4, 0, 0, 7, 0, 0),
    value=(0.0, 1.1, 0.0, 1.0, 0.9, 0.0, 1.0, 1.05),
)
DECODE_TREES = Trees(
    roots=(0,),
    feature=(0, 1, -1, -1, 1, -1, -1),
    split=(16.0, 1e5, 0.0, 0.0, 2e6, 0.0, 0.0),
    left=(1, 2, 0, 0, 5, 0, 0),
    right=(4, 3, 0, 0, 6, 0, 0),
    value=(0.0, 0.0, 1.0, 1.05, 0.0, 1.1, 0.97),
)


def estimators(**changes) -> Estimators:
    made = Estimators(
        length=LENGTH,
        prefill=StepLaws(
            {
                "*": StepLaw((0.01, 5e-5, 1e-9, 2e-10, 1e-3), trees=table_of(0, (512, 4096), (1.1, 1.0, 0.95))),
                "old": StepLaw(
                    (0.02, 8e-5, 0.0, 3e-10, 2e-3),
                    bends=((1024.0, 1e-5), (4096.0, -2e-5)),
                    trees=PREFILL_TREES,
                    sigma=0.1,
                    tail=Tail((0.5, 0.9), (4096.0,), ((1.0, 1.2), (1.0, 1.1))),
                    measured=((1.0, 8192.0), (0.0, 1e8), (1.0, 64.0)),
                ),
            },
            {"p1": "old", "p2": "old"},
            {"p1": 1.3},
        ),
        decode=StepLaws(
            {
                "*": StepLaw((0.008, 2e-5, 3e-8, -1e-15), trees=table_of(0, (8, 64), (1.0, 1.05, 1.1)), token_cap=4e6),
                "old": StepLaw((0.012, 3e-5, 4e-8, 0.0), bends=((32.0, 1e-4),), trees=DECODE_TREES),
            },
            {"d1": "old"},
            {"d0": 1.25},
        ),
        transfer=TransferLaw(
            {"local": 0.002, "cross": 0.004},
            {"local": 0.9, "cross": 0.8},
            descriptor_s=2e-6,
            descriptors_per_block=3.0,
            wire_frac=0.75,
            port_factor={"out:p0": 0.9, "in:d1": 0.8, "up:0>1": 0.7},
            overlap_frac=0.3,
            last_frac=0.1,
        ),
        risk=RiskSigma(),
        cache={"p0": CacheLaw(1500.0, ttl_s=900.0)},
    )
    return replace(made, **changes)


class Draws:
    """Values of a random view from one seed: one draw a view keeps thousands of views cheap."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *values):
        return self.random.choice(values)

    def count(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def amount(self, top: float) -> float:
        """Few distinct values half of the time, so that ties and empty nodes are common."""
        return self.one(self.random.uniform(0, top), self.random.uniform(0, top), 0.0, top / 8, top / 2)

    def known(self, value: float, unknown: float) -> float | None:
        return None if self.random.random() < unknown else value

    def likely(self, often: int) -> bool:
        return self.random.randrange(often) > 0


def prefill_view(draws: Draws, index: int, racks: int, prompt: int, block: int, unknown: float) -> PrefillView:
    return PrefillView(
        name=f"p{index}",
        rack=draws.count(0, racks - 1),
        accepting=draws.likely(6),
        compatible=draws.likely(9),
        total_blocks=draws.one(2_000, 2_000, 400, 40),
        port_bytes_per_s=draws.one(5e10, 1.25e10),
        hit_tokens=block * draws.one(0, draws.count(0, max(0, (prompt - 1) // block))),
        backlog_tokens=draws.known(draws.amount(60_000), unknown),
        backlog_requests=draws.known(float(draws.count(0, 20)), unknown),
        available_blocks=draws.known(draws.amount(2_000), unknown),
        sending_requests=draws.known(float(draws.count(0, 5)), unknown),
        age_s=draws.known(draws.amount(2.0), unknown),
        waiting_requests=draws.known(float(draws.count(0, 9)), unknown),
        running_requests=draws.known(float(draws.count(0, 9)), unknown),
        own_tokens=float(draws.one(0, 512, draws.count(0, 90_000))),
        own_prompts=float(draws.count(0, 9)),
        own_requests=float(draws.one(0, 1, 5, draws.count(0, 200))),
    )


def decode_view(draws: Draws, index: int, racks: int, prompt: int, block: int, unknown: float) -> DecodeView:
    return DecodeView(
        name=f"d{index}",
        rack=draws.count(0, racks - 1),
        accepting=draws.likely(6),
        compatible=draws.likely(9),
        port_bytes_per_s=draws.one(5e10, 1.25e10),
        resident_tokens=block * draws.one(0, draws.count(0, prompt // block)),
        usable_blocks=draws.one(6_000.0, 4_000.0, 1_500.0, 90.0),
        active_blocks=draws.known(draws.amount(3_000), unknown),
        reserved_blocks=draws.known(draws.amount(200), unknown),
        inflight_blocks=draws.known(draws.amount(400), unknown),
        reclaimable_blocks=draws.known(draws.amount(100), unknown),
        booked_blocks=draws.amount(400),
        queued_blocks=draws.known(draws.amount(800), unknown),
        running_requests=draws.known(float(draws.count(0, 90)), unknown),
        running_tokens=draws.known(draws.amount(5e6), unknown),
        receiving_requests=draws.known(float(draws.count(0, 9)), unknown),
        receiving_tokens=draws.known(draws.amount(60_000), unknown),
        booked_requests=float(draws.count(0, 4)),
        booked_tokens=draws.amount(60_000),
        growth_blocks_per_s=draws.known(draws.amount(300), unknown),
        release_blocks_per_s=draws.known(draws.amount(300), unknown),
        age_s=draws.known(draws.amount(2.0), unknown),
        running_by_class=draws.one(None, *((float(draws.count(0, 50)), float(draws.count(0, 9))) for _ in range(4))),
        waiting_requests=draws.known(float(draws.count(0, 9)), unknown),
        own_requests=float(draws.one(0, 1, 5, draws.count(0, 200))),
        own_blocks=draws.known(float(draws.count(0, 400)), unknown),
        new_blocks=draws.known(float(draws.count(0, 60)), unknown),
    )


def router_view(draws: Draws) -> RouterView:
    block, racks = draws.one(16, 64), draws.count(1, 3)
    prompt = draws.one(draws.count(1, 30_000), draws.count(1, 3_000), 1, block, block + 1)
    unknown = draws.one(0.0, 0.02, 0.2)
    even = draws.likely(2)
    racked = [(a, b) for a in range(3) for b in range(3) if draws.likely(2)]
    prefill = [prefill_view(draws, i, racks, prompt, block, unknown) for i in range(draws.count(1, 4))]
    decode = [decode_view(draws, j, racks, prompt, block, unknown) for j in range(draws.count(1, 4))]
    if even:  # equal nodes: ties
        prefill = [replace(prefill[0], name=p.name if draws.likely(3) else "p0") for p in prefill]
        decode = [replace(decode[0], name=d.name if draws.likely(3) else "d0") for d in decode]
    return RouterView(
        request=RequestView(
            prompt_tokens=prompt,
            estimated_output_tokens=draws.count(0, 3_000),
            expected_output_tokens=draws.count(0, 900),
            class_index=draws.count(0, 1),
            waited_s=draws.amount(3.0),
            tie_seed=draws.random.getrandbits(64),
            prefilled_on=draws.one(None, None, None, draws.count(0, len(prefill) - 1)),
        ),
        prefill=tuple(prefill),
        decode=tuple(decode),
        uplinks=tuple(
            UplinkView(f"up:{a}>{b}", a, b, draws.one(1.25e10, 3e9), float(draws.count(0, 3))) for a, b in racked
        ),
        block_tokens=block,
        kv_bytes_per_token=draws.one(327_680, 70_272),
        chunk_tokens=draws.one(512, 8192),
        turn=draws.count(0, 1000),
        last_pair=draws.one(None, (draws.count(0, len(prefill) - 1), draws.count(0, len(decode) - 1))),
    )


def random_policy(draws: Draws, family: str) -> Policy:
    classes = tuple(
        ClassPolicy(
            name=name,
            ttft_target_s=draws.one(None, 0.5, 4.0),
            tpot_target_s=draws.one(None, 0.02, 0.05),
            weights=tuple(draws.one(0.0, 0.5, 1.0, 1.0, 3.0) for _ in range(draws.one(7, 9, 9, 9))),
            reserve_blocks=draws.one(0.0, 50.0),
        )
        for name in ("chat", "batch")
    )
    return Policy(
        family=family,
        classes=classes,
        high_water=draws.one(0.5, 0.85),
        horizon_s=draws.one(1.0, 30.0),
        wait_cap_s=draws.one(2.0, 30.0),
        unknown=draws.one(*UNKNOWN),
        when_full=draws.one(*WHEN_FULL),
        same_rack=draws.one(*SAME_RACK),
        temperature_p_s=draws.one(0.0, 0.0, 0.2),
        temperature_d_s=draws.one(0.0, 0.0, 0.1),
        risk_ttft=draws.one(risk_table(0.25), risk_table(0.0)),
        risk_tpot=risk_table(0.1),
        decode_moment=draws.one(*DECODE_MOMENTS),
        draws_p=draws.one(0, 0, 1, 2, 5),
        draws_d=draws.one(0, 0, 1, 2, 5),
        hysteresis_s=draws.one(0.0, 0.0, 0.2, 5.0),
        params=random_row(draws.random, family),
    )


seeds = st.integers(0, 2**64 - 1).map(Draws)


@entry_kernel
def choose_from_python(keys, policy, laws, pool, view, request, waited_s, tie_seed, turn, scratch):
    prompt_tokens, estimated_output, expected_output, class_index = request
    return choose(
        keys,
        policy,
        laws,
        pool,
        view,
        prompt_tokens,
        estimated_output,
        expected_output,
        class_index,
        waited_s,
        tie_seed,
        turn,
        scratch,
    )


def run_kernel(policy: Policy, laws: Estimators, view: RouterView) -> tuple[int, Scratch]:
    shape = (len(view.prefill), len(view.decode))
    # Leftovers of an earlier decision must not matter.
    scratch = Scratch(
        scores=np.full(shape, 7.0),
        terms=np.full((*shape, len(TERMS)), 7.0),
        predicted_ttft_s=np.full(shape, 7.0),
        predicted_tpot_s=np.full(shape, 7.0),
        own=np.full((shape[1], 2), 7.0),
        keys_p=np.full(shape[0], 7.0),
        keys_d=np.full(shape[1], 7.0),
    )
    request = view.request
    chosen = choose_from_python(
        keys_of(policy.family),
        policy_arrays(policy),
        law_arrays_of(view, laws),
        pool_arrays_of(view),
        to_view_arrays(view),
        (request.prompt_tokens, request.estimated_output_tokens, request.expected_output_tokens, request.class_index),
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
