"""The arrays that kernels work on. Shapes: P, D = number of nodes, U = uplinks, C = SLO classes.

NaN stands for unknown and for "no target". Column orders are those of `policies.view`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

TERMS = (
    "PrefillWait",
    "PrefillCompute",
    "TransferTime",
    "DecodeWait",
    "ProjectedKVPressure",
    "SloRisk",
    "PrefixBenefit",
    "NeighbourHarm",
    "Crowd",
)
RISK_GRID = 257  # x = 0, 1/64 ... 4


CAP, FACTOR, EMPTY, KIND, FIRST_BEND = 5, 6, 7, 8, 9
"""Columns of `StepArrays.law`; before them the coefficients, behind them pairs (at, slope), at = inf: none."""


class StepArrays(NamedTuple):
    """The laws of one kind of step, spread over its nodes (N rows). Trees of all types stand in the same arrays."""

    law: Float64  # (N, 9 + 2 · bends): five coefficients, cap, factor, seconds of an empty step, kind of law, bends
    roots: Int64  # (N, trees) first node of each tree, -1 = no more
    branch: Int64  # (tree nodes, 3): feature (-1 = leaf), left, right
    value: Float64  # (tree nodes,): split of a branch, value of a leaf


class LawArrays(NamedTuple):
    """Step and transfer laws of one estimator set. Ports are at nominal speed × port factor, bytes/s."""

    prefill: StepArrays
    decode: StepArrays
    alpha_s: Float64  # (2,) local, cross
    efficiency: Float64  # (2,)
    egress: Float64  # (P,)
    ingress: Float64  # (D,)
    uplink: Float64  # (max(U, 1),)
    descriptor_s: float
    descriptors_per_block: float
    wire_frac: float
    overlap_frac: float
    last_frac: float
    alone: int  # 1 = transfers do not share


class PoolArrays(NamedTuple):
    """The pool's fixed facts."""

    prefill_rack: Int64  # (P,)
    decode_rack: Int64  # (D,)
    prefill_blocks: Int64  # (P,)
    decode_blocks: Int64  # (D,)
    path_uplink: Int64  # (P, D) index of the uplink, -1 = none
    path_kind: Int64  # (P, D) 0 local, 1 cross
    block_tokens: int
    kv_bytes_per_token: int
    chunk_tokens: int


class PolicyArrays(NamedTuple):
    """A policy's numbers. `family`: index in policies.families.registry.FAMILIES."""

    family: int
    weights: Float64  # (C, 9) in the order of TERMS; w7 is subtracted
    reserve_blocks: Float64  # (C,)
    ttft_target_s: Float64  # (C,) NaN = none
    tpot_target_s: Float64  # (C,)
    high_water: float
    horizon_s: float
    wait_cap_s: float
    release_floor: float  # epsilon, blocks/s
    unknown: int  # 0 worst, 1 exclude
    when_full: int  # 0 queue, 1 reject
    same_rack: int  # 0 none, 1 prefill_first, 2 decode_first
    temperature_p_s: float
    temperature_d_s: float
    risk_ttft: Float64  # (RISK_GRID,)
    risk_tpot: Float64  # (RISK_GRID,)
    capacity: int  # 1 = D must have room
    params: Float64  # the family's own, in its order
    decode_moment: int  # 0 arrival, 1 decode_first, 2 handoff, 3 recheck
    draws_p: int  # 0 = all
    draws_d: int
    hysteresis_s: float


class ViewArrays(NamedTuple):
    """One decision's view. Kernels read it; the engine refills the same arrays for the next decision."""

    prefill: Float64  # (P, len(PREFILL_COLUMNS))
    decode: Float64  # (D, len(DECODE_COLUMNS))
    hit_tokens: Int64  # (P,)
    resident_tokens: Int64  # (D,)
    uplink_flows: Float64  # (U,)
    prefill_open: Int64  # (P,) 1 = accepting and compatible
    decode_open: Int64  # (D,)
    running_by_class: Float64  # (D, C)
    placed: Int64  # (3,) P that has computed the prompt, last pair's P and D; -1 = none


class Side(NamedTuple):
    """What the keys of one side's N nodes are made from, P's or D's."""

    params: Float64  # (K,) the family's
    nodes: Float64  # (N, columns) the view's rows
    cached: Int64  # (N,) tokens of the prompt that the node holds
    prompt: int  # tokens
    output: int  # tokens, estimated
    block: int  # tokens
    turn: int  # the router's earlier decisions
    shift: int  # of D's turn: rounds of P so far
    seed: np.uint64  # of ties and draws
    decode: int  # 0 = P, 1 = D
    out: Float64  # (N,) the keys: inf = no candidate, to be left as it is; NaN = unknown


class Scratch(NamedTuple):
    """What a decision leaves behind for records: per pair, valid after `choose`."""

    scores: Float64  # (P, D) inf = not a candidate
    terms: Float64  # (P, D, 9)
    predicted_ttft_s: Float64  # (P, D)
    predicted_tpot_s: Float64  # (P, D)
    own: Float64  # (D, 2) pressure at the horizon and 1 - met_TPOT: what D alone has of these terms
    keys_p: Float64  # (P,) of families that choose P and D apart: NaN = unknown, inf = no candidate
    keys_d: Float64  # (D,)
