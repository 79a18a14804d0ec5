"""Compiled pieces of the decision: laws, parts of P and of D, ties. `policies.terms`, operation by operation.

NaN is unknown; comparisons are written so that it passes through them. No libm, no allocation.
"""

from __future__ import annotations

import math

import numpy as np

from policies.compiled import kernel
from policies.kernel_types import Float64, Int64, LawArrays, PolicyArrays, PoolArrays, ViewArrays
from policies.mixing import DECODE_DRAW, DECODE_TIE, PAIR_TIE
from policies.view import DECODE_COLUMNS, PREFILL_COLUMNS

BACKLOG_TOKENS = PREFILL_COLUMNS.index("backlog_tokens")
BACKLOG_REQUESTS = PREFILL_COLUMNS.index("backlog_requests")
AVAILABLE = PREFILL_COLUMNS.index("available_blocks")
SENDING = PREFILL_COLUMNS.index("sending_requests")
PREFILL_AGE = PREFILL_COLUMNS.index("age_s")

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
def bucket(edges: Int64, factor: Float64, value: float) -> float:
    """Factor of the bucket that `value` lies in; an edge belongs to the upper one."""
    at = 0
    while at < len(edges) and edges[at] <= value:
        at += 1
    return float(factor[at])


@kernel
def prefill_s(laws: LawArrays, i: int, tokens: float, chunk_context: float) -> float:
    """Seconds of a prefill step on P i."""
    c = laws.prefill_coef
    poly = c[0] + c[1] * tokens + c[2] * tokens * tokens + c[3] * chunk_context
    return float(poly * laws.prefill_factor[i] * bucket(laws.prefill_edges, laws.prefill_bucket, tokens))


@kernel
def decode_s(laws: LawArrays, j: int, sequences: float, tokens: float) -> float:
    """Seconds of a decode step on D j; NaN if an input is."""
    if math.isnan(sequences) or math.isnan(tokens):
        return math.nan
    c = laws.decode_coef
    x = tokens if tokens < laws.decode_cap else laws.decode_cap
    poly = c[0] + c[1] * sequences + c[2] * x + c[3] * x * x
    return float(poly * laws.decode_factor[j] * bucket(laws.decode_edges, laws.decode_bucket, sequences))


@kernel
def compute_s(laws: LawArrays, i: int, prompt: int, cached: int, budget: int) -> float:
    """C(h) of one P."""
    total = 0.0
    position = cached
    while position < prompt:
        chunk = min(budget, prompt - position)
        total += prefill_s(laws, i, float(chunk), float(chunk) * float(position))
        position += chunk
    return total


@kernel
def queue_s(laws: LawArrays, i: int, backlog: float, age: float, budget: float) -> float:
    """Q0 of one P."""
    if math.isnan(backlog):
        return math.nan
    if backlog <= 0.0:
        return 0.0
    first = budget if budget < backlog else backlog
    rest = backlog - first
    full = float(math.floor(rest / budget))
    left = rest - full * budget
    total = prefill_s(laws, i, first, 0.0) + full * prefill_s(laws, i, budget, 0.0)
    if left > 0.0:
        total += prefill_s(laws, i, left, 0.0) - prefill_s(laws, i, 0.0, 0.0)
    total -= age
    return 0.0 if total < 0.0 else total


@kernel
def prefill_wait_s(laws: LawArrays, pool: PoolArrays, view: ViewArrays, i: int, prompt: int) -> float:
    """Q of one P."""
    row = view.prefill[i]
    b = pool.block_tokens
    need = float(-(-prompt // b)) - float(view.hit_tokens[i]) / float(b)
    missing = need - row[AVAILABLE]
    missing = 0.0 if missing < 0.0 else missing
    blocked = missing * float(b) * float(pool.kv_bytes_per_token) / pool.egress[i]
    return float(queue_s(laws, i, row[BACKLOG_TOKENS], row[PREFILL_AGE], float(pool.chunk_tokens)) + blocked)


@kernel
def free_blocks(view: ViewArrays, j: int) -> float:
    """Blocks of D j that nobody holds."""
    row = view.decode[j]
    return float(row[USABLE] - row[ACTIVE] - row[RESERVED] - row[INFLIGHT])


@kernel
def room_blocks(view: ViewArrays, j: int) -> float:
    """What the capacity rule may give away on D j."""
    row = view.decode[j]
    return float(free_blocks(view, j) + row[RECLAIMABLE] - row[BOOKED_BLOCKS])


@kernel
def committed_blocks(view: ViewArrays, j: int) -> float:
    """Held, promised, under way and booked on D j."""
    row = view.decode[j]
    return float(row[ACTIVE] + row[RESERVED] + row[INFLIGHT] + row[BOOKED_BLOCKS])


@kernel
def estimated_blocks(pool: PoolArrays, view: ViewArrays, j: int, prompt: int, output: int) -> float:
    """Blocks that the request will take on D j."""
    b = pool.block_tokens
    return float(-(-(prompt + output) // b) - view.resident_tokens[j] // b)


@kernel
def reservation_s(policy: PolicyArrays, pool: PoolArrays, view: ViewArrays, j: int, prompt: int) -> float:
    """R of one D."""
    row = view.decode[j]
    room = free_blocks(view, j) + row[RECLAIMABLE] - row[QUEUED]
    missing = float(-(-prompt // pool.block_tokens)) - room
    if missing <= 0.0:
        return 0.0
    rate = row[RELEASE] - row[GROWTH]
    wait = missing / (policy.release_floor if rate < policy.release_floor else rate)
    return policy.wait_cap_s if policy.wait_cap_s < wait else wait


@kernel
def capacity_rate(growth: float, release: float) -> float:
    """Blocks/s that the capacity rule adds for growth; an unknown rate counts as 0 here."""
    net = (0.0 if math.isnan(growth) else growth) - (0.0 if math.isnan(release) else release)
    return 0.0 if net < 0.0 else net


@kernel
def lacks_room(policy: PolicyArrays, room: float, estimated: float, rate: float, delta: float, reserve: float) -> bool:
    """The capacity rule; `rate` of `capacity_rate`, `delta` NaN = the horizon."""
    ahead = policy.horizon_s if math.isnan(delta) else delta
    needed = estimated + rate * ahead + reserve
    if math.isnan(room):
        return policy.unknown == 1
    return room < needed


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
