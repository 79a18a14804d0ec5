"""Steps of a P, rebuilt from when its prompts started and finished.

A P fills each step with at most `chunk_tokens` new tokens, first in first out, so at most one prompt is cut and comes
first in the next step. Every start is the start of a step and every finish the end of one. From these and the tokens of
each prompt follows the make-up of every step between two known times; what contradicts it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt on one P. `new` tokens are computed after `cached` ones; new 0 = unknown."""

    started_us: int
    finished_us: int
    new: int
    cached: int


@dataclass(frozen=True, slots=True)
class Run:
    """Steps between two known times. All but the last have chunk_tokens new tokens, the last has `last_tokens`."""

    started_us: int
    ended_us: int
    n_steps: int
    prompts: int
    new_tokens: int
    sum_t2: int
    sum_chunk_context: int
    last_tokens: int


@dataclass(frozen=True, slots=True)
class _Cut:
    """The prompt that goes on alone: tokens to come, tokens before them, and the start of its next step."""

    rest: int
    done: int
    finished_us: int
    next_us: int


class _ContradictionError(Exception):
    """The log does not fit the discipline."""


def runs(prompts: Sequence[Prompt], chunk_tokens: int) -> list[Run]:
    """The runs of one P, by start. `prompts` in any order."""
    ordered = sorted(prompts, key=lambda p: (p.started_us, p.finished_us, p.new, p.cached))
    found: list[Run] = []
    cut: _Cut | None = None
    unclear_until = free_at = 0
    for started_us, group in groupby(ordered, key=lambda p: p.started_us):
        fresh = list(group)
        try:
            if started_us < max(unclear_until, free_at):
                raise _ContradictionError
            if cut is not None:
                alone, cut = _until(cut, started_us, chunk_tokens)
                found += alone
            step, cut, free_at = _shared_step(fresh, cut, chunk_tokens)
            found += step
        except _ContradictionError:
            ends = [p.finished_us for p in fresh] + ([cut.finished_us] if cut is not None else [])
            unclear_until = max(unclear_until, *ends)
            cut = None
    if cut is not None:
        found.append(_alone(cut, cut.finished_us, _steps(cut.rest, chunk_tokens), chunk_tokens))
    return [run for run in found if run.ended_us > run.started_us]


def _steps(tokens: int, chunk: int) -> int:
    return -(-tokens // chunk)


def _alone(cut: _Cut, ended_us: int, n_steps: int, chunk: int) -> Run:
    """The next `n_steps` steps of a prompt that nothing else runs beside."""
    tokens = min(cut.rest, n_steps * chunk)
    last = tokens - (n_steps - 1) * chunk
    context = sum(chunk * (cut.done + i * chunk) for i in range(n_steps - 1)) + last * (cut.done + tokens - last)
    t2 = (n_steps - 1) * chunk * chunk + last * last
    return Run(cut.next_us, ended_us, n_steps, 1, tokens, t2, context, last)


def _until(cut: _Cut, started_us: int, chunk: int) -> tuple[list[Run], _Cut | None]:
    """What the cut prompt did alone before others started at `started_us`, and what is left of it then."""
    if started_us >= cut.finished_us:
        return [_alone(cut, cut.finished_us, _steps(cut.rest, chunk), chunk)], None
    # Others start beside it: only in its last step is there room for them.
    full = (cut.rest - 1) // chunk
    if (full == 0) != (started_us == cut.next_us):
        raise _ContradictionError
    left = _Cut(cut.rest - full * chunk, cut.done + full * chunk, cut.finished_us, started_us)
    return ([_alone(cut, started_us, full, chunk)] if full else []), left


def _shared_step(fresh: list[Prompt], cut: _Cut | None, chunk: int) -> tuple[list[Run], _Cut | None, int]:
    """The step in which `fresh` started, the prompt that it cut, and the time up to which nothing else can start."""
    if any(p.new < 1 for p in fresh):
        raise _ContradictionError
    started_us = fresh[0].started_us
    parts = [(cut.rest, cut.done)] if cut is not None else []
    ended_us = cut.finished_us if cut is not None else fresh[0].finished_us
    whole = [p for p in fresh if p.finished_us == ended_us]
    longer = [p for p in fresh if p.finished_us != ended_us]
    if cut is None and len(fresh) == 1 and fresh[0].new > chunk:
        lone = fresh[0]
        return [], _Cut(lone.new, lone.cached, lone.finished_us, started_us), started_us
    parts += [(p.new, p.cached) for p in whole]
    room = chunk - sum(tokens for tokens, _ in parts)
    following: _Cut | None = None
    if longer:
        (first,) = longer if len(longer) == 1 else (None,)
        if first is None or first.finished_us < ended_us or not 0 < room < first.new:
            raise _ContradictionError
        parts.append((room, first.cached))
        following = _Cut(first.new - room, first.cached + room, first.finished_us, ended_us)
        room = 0
    if room < 0:
        raise _ContradictionError
    total = sum(tokens for tokens, _ in parts)
    context = sum(tokens * before for tokens, before in parts)
    run = Run(started_us, ended_us, 1, len(parts), total, total * total, context, total)
    return [run], following, ended_us


def rows(by_node: dict[str, list[Prompt]], chunk_tokens: int) -> Iterator[tuple[str, Run]]:
    """The runs of every P, node by node."""
    for node in sorted(by_node):
        for run in runs(by_node[node], chunk_tokens):
            yield node, run
