"""A policy and a plain view as the arrays that the compiled decision works on."""

from __future__ import annotations

import math

import numpy as np

from models.portable.estimators import Estimators
from policies.families.params import to_row
from policies.families.registry import FAMILIES, capacity, check_family, params_of
from policies.kernel_types import Float64, LawArrays, PolicyArrays, PoolArrays, ViewArrays
from policies.law_arrays import law_arrays
from policies.policy import DECODE_MOMENTS, SAME_RACK, UNKNOWN, WHEN_FULL, Policy
from policies.view import DECODE_COLUMNS, PREFILL_COLUMNS, RouterView


def policy_arrays(policy: Policy) -> PolicyArrays:
    """The policy's numbers for kernels. PolicyError if its family does not exist."""
    check_family(policy.family)
    classes = policy.classes
    return PolicyArrays(
        family=FAMILIES.index(policy.family),
        weights=np.array([c.weights for c in classes], np.float64),
        reserve_blocks=np.array([c.reserve_blocks for c in classes], np.float64),
        ttft_target_s=_with_nan([c.ttft_target_s for c in classes]),
        tpot_target_s=_with_nan([c.tpot_target_s for c in classes]),
        high_water=float(policy.high_water),
        horizon_s=float(policy.horizon_s),
        wait_cap_s=float(policy.wait_cap_s),
        release_floor=float(policy.release_floor),
        unknown=UNKNOWN.index(policy.unknown),
        when_full=WHEN_FULL.index(policy.when_full),
        same_rack=SAME_RACK.index(policy.same_rack),
        temperature_p_s=float(policy.temperature_p_s),
        temperature_d_s=float(policy.temperature_d_s),
        risk_ttft=np.array(policy.risk_ttft, np.float64),
        risk_tpot=np.array(policy.risk_tpot, np.float64),
        decode_moment=DECODE_MOMENTS.index(policy.decode_moment),
        draws_p=policy.draws_p,
        draws_d=policy.draws_d,
        hysteresis_s=float(policy.hysteresis_s),
        capacity=int(capacity(policy.family)),
        params=np.array(to_row(params_of(policy.family, policy.params)), np.float64),
    )


def to_view_arrays(view: RouterView) -> ViewArrays:
    """A plain view's values for kernels; nodes and uplinks in the view's order."""
    computed, last = view.request.prefilled_on, view.last_pair or (-1, -1)
    classes = max(len(d.running_by_class or ()) for d in view.decode)
    return ViewArrays(
        prefill=np.array([_with_nan([getattr(p, c) for c in PREFILL_COLUMNS]) for p in view.prefill]),
        decode=np.array([_with_nan([getattr(d, c) for c in DECODE_COLUMNS]) for d in view.decode]),
        hit_tokens=np.array([p.hit_tokens for p in view.prefill], np.int64),
        resident_tokens=np.array([d.resident_tokens for d in view.decode], np.int64),
        uplink_flows=np.array([u.flows for u in view.uplinks] or [0.0], np.float64),
        prefill_open=np.array([p.accepting and p.compatible for p in view.prefill], np.int64),
        decode_open=np.array([d.accepting and d.compatible for d in view.decode], np.int64),
        running_by_class=np.array([d.running_by_class or (math.nan,) * max(classes, 1) for d in view.decode]),
        placed=np.array([-1 if computed is None else computed, *last], np.int64),
    )


def pool_arrays_of(view: RouterView) -> PoolArrays:
    """The pool's facts as a plain view states them. Of two uplinks between the same racks the first counts."""
    link = {(u.from_rack, u.to_rack): at for at, u in reversed(list(enumerate(view.uplinks)))}
    paths = [[(p.rack, d.rack) for d in view.decode] for p in view.prefill]
    return PoolArrays(
        prefill_rack=np.array([p.rack for p in view.prefill], np.int64),
        decode_rack=np.array([d.rack for d in view.decode], np.int64),
        prefill_blocks=np.array([p.total_blocks for p in view.prefill], np.int64),
        decode_blocks=np.array([math.floor(d.usable_blocks) for d in view.decode], np.int64),
        path_uplink=np.array([[-1 if a == b else link.get((a, b), -1) for a, b in row] for row in paths], np.int64),
        path_kind=np.array([[int(a != b) for a, b in row] for row in paths], np.int64),
        block_tokens=view.block_tokens,
        kv_bytes_per_token=view.kv_bytes_per_token,
        chunk_tokens=view.chunk_tokens,
    )


def law_arrays_of(view: RouterView, estimators: Estimators) -> LawArrays:
    """The laws for the view's nodes and uplinks."""
    return law_arrays(
        estimators,
        [(p.name, p.port_bytes_per_s) for p in view.prefill],
        [(d.name, d.port_bytes_per_s) for d in view.decode],
        [(u.name, u.bytes_per_s) for u in view.uplinks],
    )


def _with_nan(values: list[float | None]) -> Float64:
    return np.array([math.nan if value is None else value for value in values], np.float64)
