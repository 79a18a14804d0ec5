"""Knobs, points and policies: round trips, frozen knobs, bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from features.errors import PolicyError
from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, one_type
from models.portable.transfer import TransferLaw
from policies.families.registry import params_of
from policies.lengths import constant_length
from policies.objective import ClassTarget, Goal
from policies.policy import DECODE_MOMENTS, ClassPolicy, Policy, default_policy
from policies.search import space as spaces
from policies.search.identify import frozen_knobs
from policies.search.space import Freedom, Space
from policies.twin.cluster import Node, RouterSetup, Uplink
from tests.policies import world

LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95)


def default() -> Policy:
    return default_policy((ClassPolicy("chat", quantile=0.9, reserve_blocks=40.0), ClassPolicy("batch", quantile=0.8)))


def space(frozen: Mapping[str, str] | None = None) -> Space:
    return spaces.space_around(default(), frozen or {}, LEVELS)


def test_the_default_point_is_the_default_policy() -> None:
    assert spaces.apply(space(), space().default_point()) == default()
    assert space().distance(space().default_point()) == 0.0


def test_a_point_moves_every_knob() -> None:
    point = {**space().default_point(), "SloRisk": 3.0, "quantile_step": -2.0, "reserve_multiplier": 2.0}
    point |= {"ProjectedKVPressure": 0.5, "temperature_d_s": 0.002, "NeighbourHarm": 0.02}
    policy = spaces.apply(space(), point)
    assert [c.weights for c in policy.classes] == [(1.0, 1.0, 1.0, 1.0, 0.5, 3.0, 1.0, 0.02, 0.0)] * 2
    assert [c.quantile for c in policy.classes] == [0.7, 0.5]
    assert [c.reserve_blocks for c in policy.classes] == [80.0, 0.0]
    assert (policy.temperature_p_s, policy.temperature_d_s) == (0.0, 0.002)


def test_a_term_can_be_switched_off_and_all_of_off_is_one_place() -> None:
    low = {**space().default_point(), "SloRisk": 0.006}
    high = {**space().default_point(), "SloRisk": 0.019}
    assert spaces.apply(space(), low) == spaces.apply(space(), high)
    assert spaces.apply(space(), low).classes[0].weights[5] == 0.0
    assert space().distance(low) == space().distance(high) > 0


def test_policy_to_point_and_back() -> None:
    point = {**space().default_point(), "DecodeWait": 0.3, "PrefixBenefit": 4.0, "quantile_step": -1.0}
    policy = spaces.apply(space(), point)
    assert spaces.point_of(space(), policy) == point


def test_a_warm_start_of_another_scale_means_the_same() -> None:
    policy = default()
    doubled = replace(
        policy, classes=tuple(replace(c, weights=(2.0, 2.0, 2.0, 2.0, 0.0, 2.0, 2.0)) for c in policy.classes)
    )
    assert spaces.point_of(space(), doubled) == space().default_point()


def test_a_warm_start_outside_the_bounds_is_clipped() -> None:
    policy = default()
    wild = replace(policy, classes=tuple(replace(c, weights=(1, 1, 500.0, 1, 0, 1, 1)) for c in policy.classes))
    assert spaces.point_of(space(), wild)["TransferTime"] == 20.0


def test_a_warm_start_of_another_family_is_refused() -> None:
    with pytest.raises(PolicyError, match="warm start"):
        spaces.point_of(space(), replace(default(), family="lmetric"))


def test_a_search_begins_where_the_incumbent_is_if_its_space_can_hold_it() -> None:
    policy = default()
    other = replace(policy, classes=tuple(replace(c, weights=(2, 2, 6.0, 2, 0, 2, 2)) for c in policy.classes))
    assert [point["TransferTime"] for point in spaces.start_at(space(), other)] == [3.0]
    renamed = replace(other, classes=tuple(replace(c, name=f"{c.name}2") for c in other.classes))
    uneven = replace(other, classes=(replace(other.classes[0], weights=(1.0,) * 7), *other.classes[1:]))
    alien = replace(other, family="lmetric"), replace(other, same_rack="prefill_first"), renamed, uneven
    for none in (default(), *alien, replace(other, classes=other.classes[:1])):
        assert spaces.start_at(space(), none) == []


def test_bounds_grow_to_hold_the_default() -> None:
    policy = default()
    far = replace(policy, classes=tuple(replace(c, weights=(1, 50.0, 1, 1, 0, 0.001, 1)) for c in policy.classes))
    wide = spaces.space_around(far, {}, LEVELS)
    assert spaces.apply(wide, wide.default_point()) == far


def test_frozen_knobs_stay_and_are_named() -> None:
    part = space({"TransferTime": "all paths have the same rate"})
    assert "TransferTime" not in part.default_point()
    assert part.frozen == (("TransferTime", "all paths have the same rate"),)
    assert spaces.apply(part, part.default_point()) == default()


def test_no_reserve_and_one_level_leave_nothing_to_search_there() -> None:
    bare = spaces.space_around(default_policy((ClassPolicy("chat"),)), {}, (0.9,))
    assert {"reserve_multiplier", "quantile_step"} <= {name for name, _ in bare.frozen}


def test_a_point_must_name_its_knobs() -> None:
    with pytest.raises(PolicyError, match="knobs"):
        spaces.apply(space(), {"SloRisk": 1.0})


def _estimators(factors: Mapping[str, float]) -> Estimators:
    return Estimators(
        length=constant_length(100.0),
        prefill=one_type(StepLaw((0.01, 1e-5, 0.0, 0.0, 0.0)), factors),
        decode=one_type(StepLaw((0.01, 1e-4, 0.0, 0.0))),
        transfer=TransferLaw({"local": 0.001, "cross": 0.001}, {"local": 0.9, "cross": 0.9}),
    )


def test_a_homogeneous_pool_freezes_what_it_cannot_tell() -> None:
    frozen = frozen_knobs(world.cluster(), _estimators({"p0": 1.01}), world.GOAL, [world.workload(10)])
    herding = {"temperature_p_s", "temperature_d_s", "draws_p", "draws_d"}
    assert set(frozen) == {"PrefillCompute", "TransferTime", "PrefixBenefit", *herding}


def test_a_pool_with_structure_freezes_nothing() -> None:
    uneven = replace(
        world.cluster(),
        decode=(Node("d0", "a", 1000, 100.0), Node("d1", "b", 1000, 100.0)),
        uplinks=(Uplink("a", "b", 25.0),),
        routers=RouterSetup(count=2, period_ns=10**9),
    )
    load = replace(world.workload(2), block_ids=np.array([1, 2], np.int32), block_offset=np.array([0, 1, 2], np.int64))
    assert frozen_knobs(uneven, _estimators({"p0": 1.3}), world.GOAL, [load]) == {}


def test_without_targets_there_is_no_risk_to_weigh() -> None:
    frozen = frozen_knobs(world.cluster(), _estimators({}), Goal((ClassTarget("a"), ClassTarget("b"))), [])
    assert "SloRisk" in frozen


FREE = Freedom(moments=DECODE_MOMENTS, prefill=4, decode=16, sampled=True, lease_s=60.0)


def test_the_router_s_own_knobs_move_too() -> None:
    wide = spaces.space_around(default(), {}, LEVELS, FREE)
    assert spaces.apply(wide, wide.default_point()) == default()
    draws = {k.name: k.choices for k in wide.knobs if k.name.startswith("draws")}
    assert draws == {"draws_p": (0.0, 2.0), "draws_d": (0.0, 2.0, 4.0, 8.0)}
    point = {**wide.default_point(), "decode_moment": 2.0, "draws_d": 1.0, "hysteresis_s": 0.05, "dwell_s": 2.0}
    point |= {"half_life_s": 3.0, "lease_s": 5.0}
    policy = spaces.apply(wide, point)
    assert (policy.decode_moment, policy.draws_d, policy.hysteresis_s, policy.dwell_s) == ("handoff", 2, 0.05, 2.0)
    assert (policy.half_life_s, policy.lease_s) == (3.0, 5.0)
    assert spaces.point_of(wide, policy) == point


def test_where_there_is_one_way_only_there_is_no_knob() -> None:
    few = spaces.space_around(default(), {}, LEVELS, Freedom(("arrival",), prefill=2, decode=2))
    assert {k.name for k in few.knobs} == {k.name for k in space().knobs}


def test_a_family_s_parameters_are_knobs() -> None:
    dynamo = replace(default(), family="dynamo_cost")
    moves = spaces.family_space(dynamo, {}, LEVELS)
    name = "params.prefill.overlap_score_credit"
    policy = spaces.apply(moves, {**moves.default_point(), name: 2.5})
    assert params_of("dynamo_cost", policy.params).prefill.overlap_score_credit == 2.5
    off = spaces.apply(moves, {**moves.default_point(), name: 0.01})
    assert params_of("dynamo_cost", off.params).prefill.overlap_score_credit == 0.0
    assert spaces.point_of(moves, policy)[name] == 2.5


def test_weights_of_one_class_are_multiples_of_the_shared_ones() -> None:
    deltas = spaces.delta_space(default(), {"PrefillCompute": "all alike"}, LEVELS)
    names = {k.name for k in deltas.knobs}
    assert names == {f"{c}/{w}" for c in ("chat", "batch") for w in SHARED_WEIGHTS}
    policy = spaces.apply(deltas, {**deltas.default_point(), "batch/SloRisk": 0.5})
    assert [c.weights[5] for c in policy.classes] == [1.0, 0.5]
    assert spaces.point_of(deltas, policy)["batch/SloRisk"] == 0.5
    assert spaces.delta_space(default_policy((ClassPolicy("one"),)), {}, LEVELS).knobs == ()


SHARED_WEIGHTS = ("TransferTime", "DecodeWait", "SloRisk", "PrefixBenefit")


def test_touched_bounds_are_widened_and_others_are_not() -> None:
    wide = {k.name: k for k in spaces.widened(space(), ("DecodeWait", "Crowd", "quantile_step")).knobs}
    was = {k.name: k for k in space().knobs}
    assert (wide["DecodeWait"].low, wide["DecodeWait"].high) == (0.02 / 8, 160.0)
    assert (wide["Crowd"].low, wide["Crowd"].high) == (was["Crowd"].low, 80.0)  # it can be off already
    assert wide["quantile_step"] == was["quantile_step"]
    assert wide["SloRisk"] == was["SloRisk"]
