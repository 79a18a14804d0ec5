"""One thing of a policy changed: what is on or differs and nothing else, on the winner's scale."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.evidence.changes import Change, ablations, neighbours
from policies.families.params import names, to_row
from policies.families.registry import BY_NAME
from policies.kernel_types import TERMS
from policies.policy import ClassPolicy, Policy, default_policy


def default() -> Policy:
    return default_policy((ClassPolicy("chat", reserve_blocks=8.0), ClassPolicy("batch", quantile=0.8)))


def weighted(policy: Policy, **by_term: float) -> Policy:
    def of(old: ClassPolicy) -> ClassPolicy:
        weights = tuple(by_term.get(name, w) for name, w in zip(TERMS, old.weights, strict=True))
        return replace(old, weights=weights)

    return replace(policy, classes=tuple(of(c) for c in policy.classes))


def told(changes: list[Change]) -> list[tuple[str, str, str, str]]:
    return [(c.name, c.kind, c.before, c.after) for c in changes]


def test_the_default_can_only_lose_its_terms() -> None:
    on = ["PrefillWait", "PrefillCompute", "TransferTime", "DecodeWait", "SloRisk", "PrefixBenefit"]
    assert told(ablations(default(), default())) == [(name, "off", "1", "0") for name in on]


def test_a_term_goes_off_and_back_and_nothing_else_moves() -> None:
    winner = weighted(default(), SloRisk=3.0, Crowd=0.25)
    found = ablations(winner, default())
    mine = [c for c in found if c.name in ("SloRisk", "Crowd")]
    # The default has no Crowd: back at the default is off.
    assert told(mine) == [("SloRisk", "off", "3", "0"), ("SloRisk", "default", "3", "1"), ("Crowd", "off", "0.25", "0")]
    assert [c.policy for c in mine] == [
        weighted(winner, SloRisk=0.0),
        weighted(winner, SloRisk=1.0),
        weighted(winner, Crowd=0.0),
    ]


def test_a_term_that_the_winner_left_comes_back() -> None:
    winner = weighted(default(), PrefixBenefit=0.0)
    assert [t for t in told(ablations(winner, default())) if t[0] == "PrefixBenefit"] == [
        ("PrefixBenefit", "default", "0", "1")
    ]


def test_defaults_are_taken_on_the_winners_scale() -> None:
    doubled = {name: 2.0 * w for name, w in zip(TERMS, default().classes[0].weights, strict=True)}
    winner = replace(weighted(default(), **doubled), temperature_p_s=0.02, hysteresis_s=0.5)
    reference = replace(default(), temperature_p_s=0.01, hysteresis_s=0.5)
    back = [c for c in ablations(winner, reference) if c.kind == "default"]
    assert told(back) == [("hysteresis_s", "default", "0.5", "1")]
    assert back[0].policy == replace(winner, hysteresis_s=1.0)


def test_router_knobs_go_back_one_by_one_where_they_differ() -> None:
    classes = tuple(replace(c, quantile=0.5, reserve_blocks=2 * c.reserve_blocks) for c in default().classes)
    winner = replace(
        default(), classes=classes, temperature_d_s=0.001, draws_p=2, half_life_s=4.0, decode_moment="handoff",
        lease_s=9.0,
    )  # fmt: skip
    found = [c for c in ablations(winner, default()) if c.kind == "default"]
    assert told(found) == [
        ("temperature_d_s", "default", "0.001", "0"),
        ("draws_p", "default", "2", "0"),
        ("half_life_s", "default", "4", "0"),
        ("decode_moment", "default", "handoff", "arrival"),
        ("lease_s", "default", "9", "none"),
        ("quantile", "default", "0.5", "0.9/0.8"),
        ("reserve_blocks", "default", "16/0", "8/0"),
    ]
    assert found[0].policy == replace(winner, temperature_d_s=0.0)
    assert [c.quantile for c in found[-2].policy.classes] == [0.9, 0.8]
    assert found[-2].policy.classes[0].reserve_blocks == 16.0


def test_a_family_without_weights_goes_back_to_its_own_defaults() -> None:
    kind = BY_NAME["sglang_cache_aware"].params
    row = to_row(kind())
    at = names(kind).index("cache_threshold")
    moved = (*row[:at], 0.125, *row[at + 1 :])
    winner = replace(default(), family="sglang_cache_aware", params=moved, same_rack="none")
    found = ablations(winner, default())
    assert told(found) == [("cache_threshold", "default", "0.125", f"{row[at]:.4g}")]
    assert found[0].policy == replace(winner, params=row)
    assert ablations(replace(winner, params=()), default()) == []
    assert neighbours(winner) == []


def test_neighbours_are_half_and_double_of_what_is_on() -> None:
    winner = weighted(default(), NeighbourHarm=0.5)
    found = neighbours(winner)
    assert len(found) == 2 * 7
    assert told(found)[-2:] == [("NeighbourHarm", "half", "0.5", "0.25"), ("NeighbourHarm", "double", "0.5", "1")]
    assert found[-1].policy == weighted(winner, NeighbourHarm=1.0)


def test_a_weight_that_went_through_a_logarithm_is_still_the_defaults() -> None:
    winner = weighted(default(), DecodeWait=1.0 + 1e-12)
    assert [t[1] for t in told(ablations(winner, default())) if t[0] == "DecodeWait"] == ["off"]


@pytest.mark.parametrize("name", ["PrefillWait", "SloRisk"])
def test_classes_keep_weights_of_their_own(name: str) -> None:
    apart = weighted(default(), **{name: 2.0}).classes[0]
    winner = replace(default(), classes=(apart, default().classes[1]))
    found = [c for c in neighbours(winner) if c.name == name]
    assert told(found)[0] == (name, "half", "2/1", "1/0.5")
