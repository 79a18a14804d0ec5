"""What the firewall knows of a pool besides its logs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """None = unknown: the rules that need it are not applied.

    `line_bytes_per_s`: of the fastest port of the pool; `kv_bytes_per_token`: all layers and ranks of one token;
    `chunk_tokens`: new tokens that a P step takes at most; `tensor_parallel`: ranks that share a node's KV.
    """

    line_bytes_per_s: float | None = None
    kv_bytes_per_token: float | None = None
    chunk_tokens: int | None = None
    tensor_parallel: int | None = None
