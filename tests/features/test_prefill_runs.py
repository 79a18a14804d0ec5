from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.prefill_runs import Prompt, Run, runs

CHUNK = 100


def step_us(tokens: int, context: int) -> int:
    """A law in whole microseconds that adds up over steps."""
    return 50 + 3 * tokens + 2 * tokens * tokens + 7 * context


def simulate(arrivals: list[tuple[int, int, int]]) -> tuple[list[Prompt], int]:
    """First in, first out with a token budget, written apart from the code under test. Returns prompts and steps."""
    waiting = sorted(arrivals)
    running: list[list[int]] = []  # started, new, cached, done
    prompts: list[Prompt] = []
    now = steps = 0
    while waiting or running:
        if not running and waiting[0][0] > now:
            now = waiting[0][0]
        budget, parts = CHUNK, []
        for prompt in running:
            part = min(budget, prompt[1] - prompt[3])
            parts.append((prompt, part))
            budget -= part
        while budget and waiting and waiting[0][0] <= now:
            _, new, cached = waiting.pop(0)
            prompt = [now, new, cached, 0]
            running.append(prompt)
            parts.append((prompt, min(budget, new)))
            budget -= parts[-1][1]
        context = sum(part * (prompt[2] + prompt[3]) for prompt, part in parts)
        now += step_us(sum(part for _, part in parts), context)
        steps += 1
        for prompt, part in parts:
            prompt[3] += part
        prompts += [Prompt(p[0], now, p[1], p[2]) for p in running if p[3] == p[1]]
        running = [p for p in running if p[3] < p[1]]
    return prompts, steps


arrivals = st.lists(
    st.tuples(st.integers(0, 60_000), st.integers(1, 350), st.sampled_from([0, 0, 16, 400])), min_size=1, max_size=12
)


@settings(deadline=None, max_examples=300)
@given(arrivals)
def test_runs_rebuild_every_step_of_a_busy_node(given_arrivals: list[tuple[int, int, int]]) -> None:
    prompts, steps = simulate(given_arrivals)
    found = runs(prompts, CHUNK)
    for run in found:
        law = 50 * run.n_steps + 3 * run.new_tokens + 2 * run.sum_t2 + 7 * run.sum_chunk_context
        assert run.ended_us - run.started_us == law
        assert run.new_tokens == (run.n_steps - 1) * CHUNK + run.last_tokens
    assert sum(run.n_steps for run in found) == steps
    assert sum(run.new_tokens for run in found) == sum(new for _, new, _ in given_arrivals)


def test_a_cut_prompt_goes_first_into_the_next_step() -> None:
    found = runs([Prompt(0, 10, 60, 0), Prompt(0, 20, 70, 5), Prompt(10, 20, 40, 0)], CHUNK)
    assert found == [
        Run(0, 10, 1, 2, 100, 10_000, 40 * 5, 100),
        Run(10, 20, 1, 2, 70, 4_900, 30 * 45, 70),
    ]


@pytest.mark.parametrize(
    "prompts",
    [
        [Prompt(0, 10, 60, 0), Prompt(0, 10, 60, 0)],  # more than a step holds
        [Prompt(0, 10, 60, 0), Prompt(0, 20, 30, 0)],  # cut though there was room
        [Prompt(0, 10, 60, 0), Prompt(0, 20, 70, 0), Prompt(0, 30, 70, 0)],  # two cut at once
        [Prompt(0, 10, 0, 0)],  # unknown
    ],
)
def test_contradictions_are_left_out(prompts: list[Prompt]) -> None:
    assert runs(prompts, CHUNK) == []


def test_after_a_contradiction_the_next_quiet_moment_counts_again() -> None:
    found = runs([Prompt(0, 50, 10, 0), Prompt(40, 90, 10, 0), Prompt(60, 70, 10, 0), Prompt(90, 95, 10, 0)], CHUNK)
    assert [run.started_us for run in found] == [0, 90]
