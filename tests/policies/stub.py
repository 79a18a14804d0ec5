"""An evaluator that replays nothing: goodput is a formula of the policy plus noise of the day."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.objective import Outcome, Quantiles
from policies.policy import Policy
from policies.search.cases import PIECES, Case, CaseScore

BLOCKS_A_DAY = 120  # of 5 s


@dataclass(frozen=True, slots=True)
class StubFactory:
    """Goodput by family, for `routecal` best at SloRisk 5, falling above the load `knee`. A day's noise is shared.

    `by_drill`: what a drill takes from `routecal`.
    `refit_gain`: what `routecal` gains with every further refit of the estimators.
    """

    by_family: Mapping[str, float] = field(default_factory=lambda: {"routecal": 0.9, "lmetric": 0.88})
    noise: float = 0.02
    own_noise: float = 0.0
    knee: float = 1.0
    relaxation_s: float = 2.0
    weights_matter: bool = True
    by_drill: Mapping[str, float] = field(default_factory=dict)
    refit_gain: float = 0.0

    def build(self) -> StubFactory:
        return self

    def __call__(self, policy: Policy, case: Case) -> CaseScore:
        day = np.random.default_rng(abs(hash_of(case.day)))
        shared = day.normal(0.0, self.noise, BLOCKS_A_DAY)
        # Every policy has luck of its own; where weights matter it is the family's, so that their effect stays smooth.
        who = "" if self.weights_matter else str(policy.classes)
        own = np.random.default_rng(hash_of(f"{policy.family}/{policy.same_rack}/{who}/{case.day}"))
        level = self.by_family.get(policy.family, 0.8)
        if policy.family == "routecal" and self.weights_matter:
            level -= 0.02 * abs(math.log(max(policy.classes[0].weights[5], 0.01) / 5.0))
        if policy.family == "routecal":
            level += self.refit_gain * case.refit
        if policy.same_rack == "decode_first":
            level += 0.01
        level -= 0.5 * max(0.0, case.load - self.knee)
        if policy.family == "routecal":
            level -= self.by_drill.get(case.drill, 0.0)
        frac = np.clip(level + shared + own.normal(0.0, self.own_noise, BLOCKS_A_DAY), 0.0, 1.0)
        mean = float(frac.mean())
        return CaseScore(
            case=case,
            goodput_frac=mean,
            soft=mean,
            slices=tuple(float(p.mean()) for p in np.array_split(frac, PIECES)),
            block_value=tuple((frac * 50).tolist()),
            block_weight=(50.0,) * BLOCKS_A_DAY,
            relaxation_s=self.relaxation_s,
            outcome=outcome(mean),
        )


def hash_of(text: str) -> int:
    """The same in every process, unlike `hash`."""
    value = 0
    for byte in text.encode():
        value = (value * 131 + byte) % (2**61 - 1)
    return value


def outcome(goodput_frac: float) -> Outcome:
    some = Quantiles(100.0, 300.0, 500.0)
    return Outcome(
        requests=6000,
        completed=5990,
        rejected=10,
        cancelled=0,
        failed=0,
        preemptions=3,
        goodput_frac=goodput_frac,
        goodput_frac_by_class={"chat": goodput_frac},
        ttft_ms=some,
        tpot_ms=Quantiles(20.0, 25.0, 30.0),
        e2e_ms=some,
        reused_tokens=1000,
        transferred_bytes=10**12,
        output_tokens_per_s=5000.0,
        simulated_s=600.0,
        prefill_share=(0.5, 0.5),
        decode_share=(0.5, 0.5),
    )
