"""Blocks of D nodes that sequences share, and full ones that stay until their room is needed (docs/twin.md). Kernels.

`cache[d, block]`: next and previous retained block, and the block's state: -1 = not there or a running sequence's own,
0 = retained, else the sequences that use it. The last row is the sentinel of the retained ones, oldest first.
"""

from __future__ import annotations

from policies.compiled import kernel
from policies.twin.engine.columns import (
    D_BOOKED,
    D_INFLIGHT_BLOCKS,
    D_RETAINED,
    D_RUNNING_BLOCKS,
    Q_ESTIMATED,
    Q_MADE0,
    Q_OFFSET,
    Q_OFFSET_END,
    Q_PROMPT,
)
from policies.twin.engine.parts import Decode, Int32, Int64


@kernel
def blocks_of(tokens: int, block: int) -> int:
    """Blocks that hold so many tokens."""
    return (tokens + block - 1) // block


@kernel
def book_on_d(dec: Decode, ds: Int64, q: Int64, d: int, r: int, made: int, sign: int) -> None:
    """r, booked when so many tokens were made, has a place on D from now on (sign 1), or has none any longer (-1)."""
    if dec.books > 0:
        ds[d, D_BOOKED] += sign * booked_blocks(dec, q, r, made)


@kernel
def booked_blocks(dec: Decode, q: Int64, r: int, made: int) -> int:
    """Blocks of r if its answer is as long as its router booked, or in stages to the end of the one at hand."""
    answer = max(q[r, Q_ESTIMATED], 0) if dec.books == 1 else stage_end(dec, made)
    return blocks_of(q[r, Q_PROMPT] + answer, dec.block_tokens)


@kernel
def stage_end(dec: Decode, made: int) -> int:
    """Answer tokens at the end of the stage that begins with so many, or is under way then."""
    return int(dec.stage_tokens * (made // dec.stage_tokens + 1))


@kernel
def booking_fits(dec: Decode, ds: Int64, q: Int64, d: int, r: int) -> bool:
    """D has room for what r books beside all that is booked there."""
    if dec.books == 0 or ds[d, D_BOOKED] == 0:
        return True
    return bool(ds[d, D_BOOKED] + booked_blocks(dec, q, r, q[r, Q_MADE0]) <= dec.blocks[d])


@kernel
def _listed(dec: Decode, q: Int64, r: int) -> int:
    """Leading blocks of r's prompt that others may use too."""
    return int(min(q[r, Q_PROMPT] // dec.block_tokens, q[r, Q_OFFSET_END] - q[r, Q_OFFSET]))


@kernel
def _key(dec: Decode, q: Int64, r: int, k: int, listed: int) -> int:
    if k < listed:
        return int(dec.ids[q[r, Q_OFFSET] + k])
    return int(dec.own_first[r] + k - listed)


@kernel
def leading(dec: Decode, q: Int64, d: int, r: int, most: int, least: int) -> int:
    """The longest run of r's first blocks that others use (least = 1), or that are retained (least = 0)."""
    if dec.share == 0:
        return 0
    listed = _listed(dec, q, r)
    if least == 1 or dec.retain == 0:
        most = min(most, listed)
    k = 0
    while k < most and dec.cache[d, _key(dec, q, r, k, listed), 2] >= least:
        k += 1
    return k


@kernel
def _unlink(cache: Int32, d: int, block: int) -> None:
    following = cache[d, block, 0]
    before = cache[d, block, 1]
    cache[d, before, 0] = following
    cache[d, following, 1] = before


@kernel
def trim(dec: Decode, ds: Int64, d: int) -> None:
    """Evict retained blocks whose room is in use."""
    sentinel = dec.cache.shape[1] - 1
    room = dec.blocks[d] - ds[d, D_RUNNING_BLOCKS] - ds[d, D_INFLIGHT_BLOCKS]
    while ds[d, D_RETAINED] > 0 and ds[d, D_RETAINED] > room:
        victim = dec.cache[d, sentinel, 0]
        _unlink(dec.cache, d, victim)
        dec.cache[d, victim, 2] = -1
        ds[d, D_RETAINED] -= 1


@kernel
def find_held(dec: Decode, ds: Int64, q: Int64, r: int, held: Int64) -> None:
    """Tokens of r's prompt whose KV every D has, in leading full blocks."""
    for d in range(len(held)):
        trim(dec, ds, d)
        held[d] = leading(dec, q, d, r, q[r, Q_PROMPT] // dec.block_tokens, 0) * dec.block_tokens


@kernel
def refer(dec: Decode, ds: Int64, q: Int64, d: int, r: int, blocks: int) -> int:
    """r uses its first blocks, which are in use or retained; how many came into use."""
    if blocks == 0:
        return 0
    cache = dec.cache
    listed = _listed(dec, q, r)
    more = 0
    for k in range(blocks):
        block = _key(dec, q, r, k, listed)
        if cache[d, block, 2] == 0:
            _unlink(cache, d, block)
            ds[d, D_RETAINED] -= 1
            more += 1
        cache[d, block, 2] = cache[d, block, 2] + 1 if k < listed else -1
    return more


@kernel
def take(dec: Decode, ds: Int64, d: int, column: int, held: int, tokens: int) -> None:
    """A sequence that holds `held` blocks takes what it lacks for so many tokens; `column` of ds counts them."""
    ds[d, column] += blocks_of(tokens, dec.block_tokens) - held
    if dec.share == 1:
        trim(dec, ds, d)


@kernel
def share(dec: Decode, ds: Int64, q: Int64, d: int, r: int, had: int, tokens: int) -> None:
    """The full blocks of r's prompt from `had` tokens to `tokens` are computed: others may use them from now on.

    What others use already stays a copy of r's own.
    """
    if dec.share == 0:
        return
    cache = dec.cache
    for k in range(had // dec.block_tokens, min(tokens // dec.block_tokens, _listed(dec, q, r))):
        block = dec.ids[q[r, Q_OFFSET] + k]
        if cache[d, block, 2] > 0:
            dec.copies[q[r, Q_OFFSET] + k] = 1
            continue
        if cache[d, block, 2] == 0:
            _unlink(cache, d, block)
            ds[d, D_RETAINED] -= 1
        cache[d, block, 2] = 1


@kernel
def release(dec: Decode, ds: Int64, q: Int64, d: int, r: int, held: int, tokens: int) -> int:
    """r gives back the blocks of so many tokens, of `held` in all; how many are free then."""
    if dec.share == 0:
        return held
    cache = dec.cache
    sentinel = cache.shape[1] - 1
    listed = _listed(dec, q, r)
    full = tokens // dec.block_tokens
    freed = held
    for k in range((full if dec.retain == 1 else min(full, listed)) - 1, -1, -1):
        block = _key(dec, q, r, k, listed)
        if k < listed:
            if dec.copies[q[r, Q_OFFSET] + k] == 1:
                dec.copies[q[r, Q_OFFSET] + k] = 0
                continue
            cache[d, block, 2] -= 1
            if cache[d, block, 2] > 0:
                freed -= 1
                continue
        if dec.retain == 0:
            cache[d, block, 2] = -1
            continue
        last = cache[d, sentinel, 1]
        cache[d, last, 0] = block
        cache[d, block, 1] = last
        cache[d, block, 0] = sentinel
        cache[d, sentinel, 1] = block
        cache[d, block, 2] = 0
        ds[d, D_RETAINED] += 1
    return freed
