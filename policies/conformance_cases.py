"""Views of the conformance vectors: each shows one rule of docs/decision.md, scaled to the pool's geometry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from models.portable.estimators import Estimators
from models.portable.transfer import egress, ingress
from policies.canonical import Json
from policies.conformance_views import Geometry, base_view, on_all_d, on_d, on_p, on_request
from policies.policy import Policy
from policies.view import DECODE_COLUMNS, PREFILL_COLUMNS, RouterView

UP = "up:"
KNOWN = ("total", "usable", "booked", "own")
"""Starts of the columns that need no sample."""


@dataclass(frozen=True, slots=True)
class Case:
    """One view, the rules that it is decided under, and what it covers."""

    name: str
    view: RouterView
    covers: tuple[str, ...]
    rules: dict[str, Json] = field(default_factory=dict)


PLAIN: dict[str, Json] = {
    "unknown": "worst",
    "when_full": "queue",
    "same_rack": "none",
    "temperature_p_s": 0.0,
    "temperature_d_s": 0.0,
    "decode_moment": "arrival",
    "draws_p": 0,
    "draws_d": 0,
    "hysteresis_s": 0.0,
}


def cases(policy: Policy, estimators: Estimators, geometry: Geometry, family: str) -> Iterator[Case]:
    """All cases of a family, at least 20."""
    base = base_view(policy, estimators, geometry)
    for case in (*_shared(base), *_unknown(base), *_full(base), *_late(base)):
        yield replace(case, rules=PLAIN | case.rules)
    pairs = (*_of_pairs(base, policy), *_of_laws(base, estimators))
    special = pairs if family == "routecal" else _of_nodes(base)
    for case in special:
        yield replace(case, rules=PLAIN | case.rules)


def _equals(view: RouterView) -> RouterView:
    """Every node of a kind the same but for its name."""
    p, d = view.prefill[0], view.decode[0]
    return replace(
        view,
        prefill=tuple(replace(p, name="even", rack=0) for _ in view.prefill),
        decode=tuple(replace(d, name="even", rack=0) for _ in view.decode),
    )


def _shared(base: RouterView) -> Iterator[Case]:
    block, prompt = base.block_tokens, base.request.prompt_tokens
    hit = (prompt - 1) // block * block
    yield Case("plain", base, ("score",))
    yield Case("hit_on_p", on_p(base, 1, hit_tokens=hit), ("prefix_hit",))
    yield Case("resident_on_d", on_d(base, 2, resident_tokens=hit), ("resident",))
    yield Case("p_not_accepting", on_p(base, 0, accepting=False), ("prefill_not_accepting",))
    yield Case("p_incompatible", on_p(base, 0, compatible=False), ("prefill_incompatible",))
    yield Case("p_too_small", on_p(base, 0, total_blocks=prompt // block), ("prefill_too_small",))
    yield Case("d_not_accepting", on_d(base, 0, accepting=False), ("decode_not_accepting",))
    yield Case("d_incompatible", on_d(base, 0, compatible=False), ("decode_incompatible",))
    yield Case("d_too_small", on_d(base, 0, usable_blocks=float(prompt // block)), ("decode_too_small",))
    yield Case("nobody_accepts", on_p(on_p(base, 0, accepting=False), 1, accepting=False), ("refused",))
    yield Case("tie", _equals(base), ("tie",))
    yield Case("tie_of_another_seed", on_request(_equals(base), tie_seed=2), ("tie",))
    yield Case("late_turn", replace(base, turn=1_000_003), ("turn",))


def _unknown(base: RouterView) -> Iterator[Case]:
    p = on_p(base, 0, backlog_tokens=None, backlog_requests=None, age_s=None)
    d = on_d(base, 0, active_blocks=None, running_requests=None, running_tokens=None)
    blind = base
    for i in range(len(base.prefill)):
        blind = on_p(blind, i, **dict.fromkeys(c for c in PREFILL_COLUMNS if not c.startswith(KNOWN)))
    names = [c for c in DECODE_COLUMNS if not c.startswith(KNOWN)]
    blind = on_all_d(blind, **dict.fromkeys(names))
    for rule in ("worst", "exclude"):
        covers = (f"unknown_{rule}",)
        yield Case(f"unknown_on_p_{rule}", p, covers, {"unknown": rule})
        yield Case(f"unknown_on_d_{rule}", d, covers, {"unknown": rule})
        rates = on_d(base, 1, growth_blocks_per_s=None, release_blocks_per_s=None)
        yield Case(f"unknown_rates_{rule}", rates, covers, {"unknown": rule})
        yield Case(f"unknown_everywhere_{rule}", blind, covers, {"unknown": rule})


def _full(base: RouterView) -> Iterator[Case]:
    crowded = base.decode[0].usable_blocks
    yield Case("one_d_full", on_d(base, 0, active_blocks=crowded), ("decode_full",))
    # The reserve and the growth decide: room for the estimate alone is there.
    growing = on_d(base, 0, growth_blocks_per_s=crowded)
    yield Case("d_full_by_growth", growing, ("decode_full",))
    every = on_all_d(base, active_blocks=crowded, queued_blocks=3.0)
    yield Case("all_full_queue", every, ("decode_full", "when_full_queue"), {"when_full": "queue"})
    yield Case("all_full_reject", every, ("decode_full", "when_full_reject"), {"when_full": "reject"})


def _late(base: RouterView) -> Iterator[Case]:
    """A D for a prompt that P 1 has computed, and few of many nodes."""
    computed = on_request(base, prefilled_on=1, waited_s=0.4)
    for moment in ("handoff", "recheck"):
        yield Case(f"at_{moment}", computed, (moment,), {"decode_moment": moment})
    draining = on_p(computed, 1, accepting=False)
    yield Case("computed_on_a_draining_p", draining, ("handoff",), {"decode_moment": "handoff"})
    for rule in ("prefill_first", "decode_first"):
        rules: dict[str, Json] = {"decode_moment": "handoff", "same_rack": rule}
        yield Case(f"at_handoff_{rule}", computed, ("handoff", f"same_rack_{rule}"), rules)
    crowded = on_all_d(computed, active_blocks=base.decode[0].usable_blocks, queued_blocks=3.0)
    yield Case("never_refused", crowded, ("handoff", "when_full_reject"), {"when_full": "reject"})
    for draws in (1, 2):
        yield Case(f"{draws}_drawn", base, ("draws",), {"draws_p": draws, "draws_d": draws})
    closed = on_d(on_p(base, 0, accepting=False), 2, compatible=False)
    yield Case("drawn_among_the_open", closed, ("draws",), {"draws_p": 1, "draws_d": 1})


def _of_pairs(base: RouterView, policy: Policy) -> Iterator[Case]:
    block = base.block_tokens
    yield Case("jitter", base, ("jitter",), {"temperature_p_s": 0.5, "temperature_d_s": 0.25})
    both = on_d(on_p(base, 0, hit_tokens=2 * block), 1, resident_tokens=3 * block)
    for at in range(len(base.prefill)):
        last = replace(base, last_pair=(at, 1))
        yield Case(f"last_pair_{at}", last, ("hysteresis",), {"hysteresis_s": 0.05})
        yield Case(f"last_pair_{at}_kept", last, ("hysteresis",), {"hysteresis_s": 1e6})
    yield Case("decode_first", base, ("decode_first",), {"decode_moment": "decode_first"})
    busy = on_d(base, 0, running_by_class=None, growth_blocks_per_s=None)
    yield Case("decode_first_unknown", busy, ("decode_first", "harm"), {"decode_moment": "decode_first"})
    yield Case("hits_on_both_sides", both, ("prefix_hit", "resident"))
    yield Case("deep_backlog", on_p(base, 0, backlog_tokens=7.5 * base.chunk_tokens), ("queue",))
    yield Case("old_sample", on_p(base, 1, age_s=1e6), ("sample_age",))
    yield Case("p_without_blocks", on_p(base, 0, available_blocks=1.0), ("back_pressure",))
    yield Case("past_the_target", on_request(base, waited_s=1e6), ("risk",))
    yield Case("last_class", on_request(base, class_index=len(policy.classes) - 1), ("class",))
    yield Case("idle_d", on_d(base, 2, running_requests=0.0, running_tokens=0.0), ("idle",))
    yield Case("no_uplink", replace(base, uplinks=()), ("path",))
    crowded = base.decode[0].usable_blocks
    rising = on_all_d(base, active_blocks=crowded, growth_blocks_per_s=3.0, release_blocks_per_s=0.0)
    yield Case("reservation_without_release", rising, ("reservation", "when_full_queue"))


def _of_laws(base: RouterView, estimators: Estimators) -> Iterator[Case]:
    """Every node type, small and large steps (bends, trees, prompts), ports with a factor, descriptors."""
    block, chunk = base.block_tokens, base.chunk_tokens
    usable = base.decode[0].usable_blocks
    for at, p in enumerate(sorted({*estimators.prefill.node_type.values()})):
        name = next(n for n, kind in sorted(estimators.prefill.node_type.items()) if kind == p)
        yield Case(f"p_of_type_{at}", on_p(base, 0, name=name), ("node_type",))
    for at, d in enumerate(sorted({*estimators.decode.node_type.values()})):
        name = next(n for n, kind in sorted(estimators.decode.node_type.items()) if kind == d)
        yield Case(f"d_of_type_{at}", on_d(base, 0, name=name), ("node_type",))
    small = on_request(base, prompt_tokens=1, estimated_output_tokens=1, expected_output_tokens=1)
    small = on_all_d(small, running_requests=1.0, running_tokens=1.0, receiving_requests=0.0, receiving_tokens=0.0)
    yield Case("small_steps", on_p(small, 0, backlog_tokens=1.0, backlog_requests=1.0), ("bends", "trees"))
    large = on_all_d(base, running_requests=500.0, running_tokens=usable * block)
    yield Case("large_steps", on_p(large, 0, backlog_tokens=2.5 * chunk, backlog_requests=90.0), ("bends", "trees"))
    several = on_p(base, 0, backlog_tokens=1.5 * chunk, backlog_requests=6.0)
    yield Case("several_prompts_a_step", several, ("prompts",))
    yield Case("backlog_of_unknown_prompts", on_p(several, 0, backlog_requests=None), ("prompts",))
    yield Case("slow_ports", _with_ports(base, sorted(estimators.transfer.port_factor)), ("port_factor",))
    most = (base.request.prompt_tokens - 1) // block * block
    yield Case("one_block_sent", on_d(on_d(base, 0, resident_tokens=most), 1, resident_tokens=block), ("descriptors",))


def _with_ports(base: RouterView, ports: Sequence[str]) -> RouterView:
    """The first P, D and uplink renamed to ports that have a factor, where there are any."""
    sent, received, between = (
        next((port[len(kind) :] for port in ports if port.startswith(kind)), None)
        for kind in (egress(""), ingress(""), UP)
    )
    view = base if sent is None else on_p(base, 0, name=sent)
    view = view if received is None else on_d(view, 1, name=received)
    if between is None:
        return view
    return replace(view, uplinks=(replace(view.uplinks[0], name=UP + between), *view.uplinks[1:]))


def _of_nodes(base: RouterView) -> Iterator[Case]:
    apart = on_d(on_d(base, 0, rack=1), 2, rack=1)
    for rule in ("prefill_first", "decode_first"):
        yield Case(f"same_rack_{rule}", base, (f"same_rack_{rule}",), {"same_rack": rule})
        yield Case(f"rack_empty_{rule}", on_p(apart, 1, rack=0), (f"same_rack_{rule}",), {"same_rack": rule})
