"""What a router of the plain reference remembers: samples, bookings, its last pairs."""

from __future__ import annotations

from dataclasses import dataclass

from policies.twin.reference.decode_state import DecodeState
from policies.twin.reference.prefill import PrefillState
from policies.twin.reference.request import Request


@dataclass(frozen=True, slots=True)
class Sample:
    """The pool at `taken_ns`. `growth` and `release` of every D in blocks/s, None = unknown."""

    taken_ns: int
    prefill: list[PrefillState]
    decode: list[DecodeState]
    growth: list[float | None]
    release: list[float | None]


@dataclass(slots=True, eq=False)
class Booking:
    """What a router remembers of a request that it placed at `booked_ns`."""

    request: Request
    booked_ns: int
    new_tokens: int  # on P
    blocks: int  # on D, estimated
    on_d_ns: int | None = None  # when D was booked
    counted_as_expired: bool = False


@dataclass(frozen=True, slots=True)
class LastPair:
    """The pair that a router chose last for a class, and since when."""

    pair: tuple[int, int]
    since_ns: int
