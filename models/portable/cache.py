"""What a P's prefix cache really holds."""

from __future__ import annotations

from dataclasses import dataclass

from models.portable.values import STRICT, NotNegative, Positive


@dataclass(frozen=True, slots=True)
class CacheLaw:
    """Effective prefix cache of a node: `capacity_blocks` of the pool's block size that survive other traffic, and the
    seconds after which an unused block is gone (None = only the capacity ends its life).
    """

    __pydantic_config__ = STRICT

    capacity_blocks: NotNegative
    ttl_s: Positive | None = None
