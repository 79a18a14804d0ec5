"""Law of a KV transfer: seconds until the KV is visible on D."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from features.errors import ModelError
from models.portable.steps import NO_TAIL, Tail
from models.portable.values import STRICT, Fraction, NotNegative, Positive

PATHS = ("local", "cross")
"""Kinds of P -> D path: inside one rack, and over the racks' uplink."""


def egress(node: str) -> str:
    """Name of a P's sending port in `port_factor`."""
    return f"out:{node}"


def ingress(node: str) -> str:
    """Name of a D's receiving port in `port_factor`."""
    return f"in:{node}"


def uplink(from_rack: str, to_rack: str) -> str:
    """Name of one direction between two racks in `port_factor`."""
    return f"up:{from_rack}>{to_rack}"


@dataclass(frozen=True, slots=True)
class TransferLaw:
    """alpha + alpha of a descriptor × descriptors + bytes on the wire / (share × efficiency), by kind of path.

    `share`: what ports and uplink leave to this transfer, bytes/s: the least of nominal speed × `port_factor` / flows
    over its egress, uplink and ingress (names: `egress`, `ingress`, `uplink`; a port that is not named has factor 1).
    `descriptors_per_block`: of KV that is sent. `wire_frac`: bytes on the wire / KV bytes that D lacks; below 1 =
    compressed. `overlap_frac`: part of the prompt's compute during which its KV already travels; `last_frac`: part of
    the bytes that cannot leave before the compute ended (the last layer). `handshake_s`: what the first transfer of a
    pair waits before its bytes leave. `tail`: by KV bytes. `contention` "none": a transfer has its path's speed,
    whatever else runs, so that flows count as 1 in `share`.
    """

    __pydantic_config__ = STRICT

    alpha_s: Mapping[str, NotNegative]
    efficiency: Mapping[str, Annotated[float, Field(gt=0, le=1)]]
    descriptor_s: NotNegative = 0.0
    descriptors_per_block: NotNegative = 0.0
    wire_frac: Positive = 1.0
    port_factor: Mapping[str, Positive] = field(default_factory=dict)
    overlap_frac: Fraction = 0.0
    handshake_s: NotNegative = 0.0
    sigma: NotNegative = 0.0
    tail: Tail = NO_TAIL
    last_frac: Fraction = 0.0
    # Left out where it is the default, so that files from before it keep their hashes.
    contention: Annotated[Literal["share", "none"], Field(exclude_if=lambda value: value == "share")] = "share"

    def __post_init__(self) -> None:
        if set(self.alpha_s) != set(PATHS) or set(self.efficiency) != set(PATHS):
            raise ModelError(
                f"alpha_s and efficiency must name {PATHS}", value=sorted({*self.alpha_s, *self.efficiency})
            )

    def seconds(self, path: str, kv_bytes: float, share: float, blocks: float = 0.0) -> float:
        """Seconds of a transfer of `kv_bytes` in `blocks` at `share` bytes/s, nothing of it hidden."""
        return self.fixed_s(path, blocks) + self.wire_s(path, kv_bytes, share)

    def fixed_s(self, path: str, blocks: float = 0.0) -> float:
        """Seconds that do not depend on bytes: after the last byte left, until the KV is visible."""
        return self.alpha_s[path] + self.descriptor_s * (self.descriptors_per_block * blocks)

    def wire_s(self, path: str, kv_bytes: float, share: float) -> float:
        """Seconds during which the bytes leave."""
        return kv_bytes * self.wire_frac / (share * self.efficiency[path])

    def exposed_s(
        self, path: str, kv_bytes: float, share: float, compute_s: float, blocks: float = 0.0, handshake_s: float = 0.0
    ) -> float:
        """Seconds from the end of the prompt's compute, which took `compute_s`, until the KV is visible.

        `handshake_s`: the law's, if this is the first transfer of its pair, else 0.
        """
        wire = self.wire_s(path, kv_bytes, share)
        left = handshake_s + wire - self.overlap_frac * compute_s
        last = self.last_frac * wire
        return self.fixed_s(path, blocks) + (last if left < last else left)

    def port(self, name: str) -> float:
        """Factor on a port's or uplink's nominal speed."""
        return self.port_factor.get(name, 1.0)
