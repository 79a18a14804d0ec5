"""Compiled pieces of the decision: parts of P and of D, ties. `policies.terms`, operation by operation.

NaN is unknown; comparisons are written so that it passes through them. No libm, no allocation. Arguments are numbers
and single arrays: a kernel that takes whole views compiles far longer than its work is worth.
"""

from __future__ import annotations

import math

import numpy as np

from policies.compiled import kernel
from policies.kernel_types import EMPTY, Float64, StepArrays
from policies.law_kernel import prefill_of_type_s, prefill_s
from policies.mixing import DECODE_DRAW, DECODE_TIE, PAIR_TIE
from policies.view import DECODE_COLUMNS, PREFILL_COLUMNS

BACKLOG_TOKENS = PREFILL_COLUMNS.index("backlog_tokens")
BACKLOG_REQUESTS = PREFILL_COLUMNS.index("backlog_requests")
AVAILABLE = PREFILL_COLUMNS.index("available_blocks")
SENDING = PREFILL_COLUMNS.index("sending_requests")
PREFILL_AGE = PREFILL_COLUMNS.index("age_s")
WAITING_ON_P = PREFILL_COLUMNS.index("waiting_requests")
RUNNING_ON_P = PREFILL_COLUMNS.index("running_requests")
TOTAL = PREFILL_COLUMNS.index("total_blocks")
OWN_TOKENS = PREFILL_COLUMNS.index("own_tokens")
OWN_PROMPTS = PREFILL_COLUMNS.index("own_prompts")
OWN_ON_P = PREFILL_COLUMNS.index("own_requests")

USABLE = DECODE_COLUMNS.index("usable_blocks")
ACTIVE = DECODE_COLUMNS.index("active_blocks")
RESERVED = DECODE_COLUMNS.index("reserved_blocks")
INFLIGHT = DECODE_COLUMNS.index("inflight_blocks")
RECLAIMABLE = DECODE_COLUMNS.index("reclaimable_blocks")
BOOKED_BLOCKS = DECODE_COLUMNS.index("booked_blocks")
QUEUED = DECODE_COLUMNS.index("queued_blocks")
RUNNING = DECODE_COLUMNS.index("running_requests")
RUNNING_TOKENS = DECODE_COLUMNS.index("running_tokens")
RECEIVING = DECODE_COLUMNS.index("receiving_requests")
RECEIVING_TOKENS = DECODE_COLUMNS.index("receiving_tokens")
BOOKED = DECODE_COLUMNS.index("booked_requests")
BOOKED_TOKENS = DECODE_COLUMNS.index("booked_tokens")
GROWTH = DECODE_COLUMNS.index("growth_blocks_per_s")
RELEASE = DECODE_COLUMNS.index("release_blocks_per_s")
DECODE_AGE = DECODE_COLUMNS.index("age_s")
WAITING_ON_D = DECODE_COLUMNS.index("waiting_requests")
OWN_ON_D = DECODE_COLUMNS.index("own_requests")
OWN_BLOCKS = DECODE_COLUMNS.index("own_blocks")
NEW_BLOCKS = DECODE_COLUMNS.index("new_blocks")

GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
MIX_A = np.uint64(0xBF58_476D_1CE4_E5B9)
MIX_B = np.uint64(0x94D0_49BB_1331_11EB)
SHIFT_11 = np.uint64(11)
SHIFT_27 = np.uint64(27)
SHIFT_30 = np.uint64(30)
SHIFT_31 = np.uint64(31)
RISK_LAST = 256


@kernel
def mix(x: np.uint64) -> np.uint64:
    """One splitmix64 step."""
    z = np.uint64(x) + GOLDEN
    z = (z ^ (z >> SHIFT_30)) * MIX_A
    z = (z ^ (z >> SHIFT_27)) * MIX_B
    return z ^ (z >> SHIFT_31)


@kernel
def prefill_draw(tie_seed: np.uint64, i: int) -> float:
    """u(P) of the jitter."""
    return float(mix(tie_seed ^ np.uint64(2 * i + 1)) >> SHIFT_11) * 2.0**-53


@kernel
def decode_draw(tie_seed: np.uint64, j: int) -> float:
    """u(D) of the jitter."""
    return float(mix(tie_seed ^ np.uint64(2 * j + 2 + DECODE_DRAW)) >> SHIFT_11) * 2.0**-53


@kernel
def pair_tie(tie_seed: np.uint64, i: int, j: int) -> np.uint64:
    """Rank of a pair among equals."""
    return mix(tie_seed ^ np.uint64(i * 65536 + j + PAIR_TIE))


@kernel
def node_tie(tie_seed: np.uint64, at: int, side: int) -> np.uint64:
    """Rank of one node among equals; side 0 = P, 1 = D."""
    return mix(tie_seed ^ np.uint64(at + 1 + side * DECODE_TIE))


@kernel
def compute_s(laws: StepArrays, i: int, prompt: int, cached: int, budget: int) -> float:
    """C(h) of one P, of node factor 1."""
    total = 0.0
    position = cached
    while position < prompt:
        chunk = min(budget, prompt - position)
        total += prefill_of_type_s(laws, i, float(chunk), float(chunk) * float(position), 1.0)
        position += chunk
    return total


@kernel
def exposed_s(wire_s: float, hidden_s: float, last_frac: float) -> float:
    """Seconds on the wire that are left when the prompt's compute ends."""
    left, last = wire_s - hidden_s, last_frac * wire_s
    return last if left < last else left


@kernel
def step_prompts(tokens: float, backlog: float, requests: float) -> float:
    """Prompts in a step of so many of the backlog's tokens; 1 if the backlog's requests are unknown."""
    share = requests * tokens / backlog
    return share if share > 1.0 else 1.0


@kernel
def queue_s(laws: StepArrays, i: int, backlog: float, requests: float, age: float, budget: float) -> float:
    """Q0 of one P."""
    if math.isnan(backlog):
        return math.nan
    if backlog <= 0.0:
        return 0.0
    first = budget if budget < backlog else backlog
    rest = backlog - first
    full = float(math.floor(rest / budget))
    left = rest - full * budget
    total = prefill_s(laws, i, first, 0.0, step_prompts(first, backlog, requests))
    if full > 0.0:  # then the first step is a full one, too
        total += full * total
    if left > 0.0:
        step = prefill_s(laws, i, left, 0.0, step_prompts(left, backlog, requests))
        total += step - laws.law[i, EMPTY]
    total -= age
    return 0.0 if total < 0.0 else total


@kernel
def blocked_s(prompt: int, hit: int, available: float, block: int, wire_bytes: float, egress: float) -> float:
    """Qb of one P: until unsent KV has left the blocks that the prompt needs; `wire_bytes` of a token."""
    missing = float(-(-prompt // block)) - float(hit) / float(block) - available
    missing = 0.0 if missing < 0.0 else missing
    return missing * float(block) * wire_bytes / egress


@kernel
def free_blocks(decode: Float64, j: int) -> float:
    """Blocks of D j that nobody holds."""
    return float(decode[j, USABLE] - decode[j, ACTIVE] - decode[j, RESERVED] - decode[j, INFLIGHT])


@kernel
def room_blocks(decode: Float64, j: int) -> float:
    """What the capacity rule may give away on D j."""
    return float(free_blocks(decode, j) + decode[j, RECLAIMABLE] - decode[j, BOOKED_BLOCKS])


@kernel
def committed_blocks(decode: Float64, j: int) -> float:
    """Held, promised, under way and booked on D j."""
    return float(decode[j, ACTIVE] + decode[j, RESERVED] + decode[j, INFLIGHT] + decode[j, BOOKED_BLOCKS])


@kernel
def estimated_blocks(tokens: int, resident: int, block: int) -> float:
    """Blocks that a request of so many tokens will take on a D that holds `resident` of them."""
    return float(-(-tokens // block) - resident // block)


@kernel
def reservation_s(decode: Float64, j: int, need: float, release_floor: float, wait_cap: float) -> float:
    """R of one D."""
    missing = need - (free_blocks(decode, j) + decode[j, RECLAIMABLE] - decode[j, QUEUED])
    if missing <= 0.0:
        return 0.0
    rate = decode[j, RELEASE] - decode[j, GROWTH]
    wait = missing / (release_floor if rate < release_floor else rate)
    return float(wait_cap if wait_cap < wait else wait)


@kernel
def capacity_rate(growth: float, release: float) -> float:
    """Blocks/s that the capacity rule adds for growth; an unknown rate counts as 0 here."""
    net = (0.0 if math.isnan(growth) else growth) - (0.0 if math.isnan(release) else release)
    return 0.0 if net < 0.0 else net


@kernel
def lacks_room(
    room: float, estimated: float, rate: float, delta: float, horizon: float, reserve: float, exclude: bool
) -> bool:
    """The capacity rule; `rate` of `capacity_rate`, `delta` NaN = the horizon, `exclude` = what unknown room means."""
    ahead = horizon if math.isnan(delta) else delta
    needed = estimated + rate * ahead + reserve
    if math.isnan(room):
        return exclude
    return room < needed


@kernel
def pressure_of(alone: float, projected: float, high_water: float) -> float:
    """ProjectedKVPressure, of a request's own part of D and of D's projected use."""
    above = (alone if projected < alone else projected) - high_water
    above = (0.0 if above < 0.0 else above) / (1.0 - high_water)
    return above * above


@kernel
def met(target: float, predicted: float, table: Float64) -> float:
    """Probability that a target is met; target NaN = none."""
    if math.isnan(target):
        return 1.0
    if target <= 0.0:
        return 0.0
    if predicted <= 0.0:
        return float(table[RISK_LAST])
    if math.isnan(predicted):
        return math.nan
    position = target / predicted * 64.0
    if position >= 256.0:
        return float(table[RISK_LAST])
    below = math.floor(position)
    return float(table[below] + (position - float(below)) * (table[below + 1] - table[below]))


@kernel
def least(a: float, b: float) -> float:
    """The smaller one; NaN if one is."""
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return b if b < a else a


@kernel
def class_harm(running: Float64, j: int, targets: Float64, before: float, after: float, table: Float64) -> float:
    """NeighbourHarm on D j, whose steps get longer; `running` (D, C), NaN = unknown."""
    harm = 0.0
    for c in range(len(targets)):
        if math.isnan(running[j, c]):
            return math.nan
        if running[j, c] > 0.0:
            rise = met(targets[c], before, table) - met(targets[c], after, table)
            harm += running[j, c] * (0.0 if rise < 0.0 else rise)
    return harm
