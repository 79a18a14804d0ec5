"""splitmix64, the source of every tie and draw of a decision: plain Python form."""

from __future__ import annotations

MASK = 0xFFFF_FFFF_FFFF_FFFF
DECODE_DRAW = 1 << 33  # keeps D's draws apart from P's
DECODE_TIE = 1 << 32
PAIR_TIE = 1 << 40
PREFILL_DRAWN = 1 << 42
DECODE_DRAWN = 1 << 43


def mix(x: int) -> int:
    """One splitmix64 step of an unsigned 64-bit number."""
    z = (x + 0x9E37_79B9_7F4A_7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & MASK
    return z ^ (z >> 31)


def unit(x: int) -> float:
    """`mix(x)` as a number in [0, 1), a multiple of 2⁻⁵³."""
    return (mix(x) >> 11) * 2.0**-53


def prefill_draw(tie_seed: int, prefill: int) -> float:
    """u(P) of the jitter."""
    return unit(tie_seed ^ (2 * prefill + 1))


def decode_draw(tie_seed: int, decode: int) -> float:
    """u(D) of the jitter."""
    return unit(tie_seed ^ (2 * decode + 2 + DECODE_DRAW))


def pair_tie(tie_seed: int, prefill: int, decode: int) -> int:
    """Rank of a pair among equals: the smallest wins."""
    return mix(tie_seed ^ (prefill * 65536 + decode + PAIR_TIE))


def node_tie(tie_seed: int, index: int, *, decode: bool) -> int:
    """Rank of one node among equals, for families that choose P and D apart."""
    return mix(tie_seed ^ (index + 1 + (DECODE_TIE if decode else 0)))


def prefill_drawn(tie_seed: int, prefill: int) -> int:
    """Rank of P among the nodes that may be drawn: the smallest are."""
    return mix(tie_seed ^ (prefill + PREFILL_DRAWN))


def decode_drawn(tie_seed: int, decode: int) -> int:
    """Rank of D among the nodes that may be drawn."""
    return mix(tie_seed ^ (decode + DECODE_DRAWN))
