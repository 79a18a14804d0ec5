"""Scenarios with other rules of D nodes."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from tests.policies.twin.scenario import Scenario


def vary_decode(rng: Generator, scenario: Scenario) -> Scenario:
    """The scenario with rules of this part drawn anew."""
    reserve_first = bool(rng.random() < 0.4)
    discipline = scenario.cluster.discipline
    shares = bool(rng.random() < 0.4)
    discipline = replace(
        discipline,
        chunk_tokens=int(rng.choice([16, 40])) if reserve_first and rng.random() < 0.4 else discipline.chunk_tokens,
        boundary_order="reserve_first" if reserve_first else "readmit_first",
        growth_lag=1 if reserve_first else int(rng.random() < 0.3),
        share_prompt_blocks=shares,
        recompute="steps" if reserve_first and rng.random() < 0.6 else "prefill",
        preemption="swap" if rng.random() < 0.2 else "recompute",
        swap_gbps=float(rng.choice([0.01, 1.0])),
        readmission="first_preempted" if rng.random() < 0.3 else "last_preempted",
        admission_reserve_blocks=int(rng.choice([0, 0, 0, 2, 10])),
        admission=str(rng.choice(["blocks", "blocks", "booked", "staged"])),
        stage_tokens=int(rng.choice([1, 3, 8, 30])),
        first_token="prefill" if rng.random() < 0.25 else "decode",
        decode_prefix_reuse=shares and bool(rng.random() < 0.5),
    )
    return replace(scenario, cluster=replace(scenario.cluster, discipline=discipline))
