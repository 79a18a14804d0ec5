"""KV geometry: bytes of a token, blocks of a sequence, seconds of a transfer."""

from __future__ import annotations

from dataclasses import dataclass

from features.errors import SettingsError

BITS_PER_BYTE = 8
GIGA = 1_000_000_000


@dataclass(frozen=True, slots=True)
class KvGeometry:
    """KV bytes of one token over all layers, and the block that a pool allocates in.

    Build it with `gqa` or `mla`; `block_tokens` 1 is a token-granular engine.
    """

    bytes_per_token: int
    block_tokens: int

    def __post_init__(self) -> None:
        for name in ("bytes_per_token", "block_tokens"):
            _positive(name, getattr(self, name))

    @classmethod
    def gqa(
        cls, *, layers: int, kv_heads: int, head_dim: int, bytes_per_element: float, block_tokens: int
    ) -> KvGeometry:
        """Grouped-query attention (MHA and MQA are its ends): K and V of every KV head."""
        values = 2 * _positive("layers", layers) * _positive("kv_heads", kv_heads) * _positive("head_dim", head_dim)
        return cls(_whole_bytes(values * bytes_per_element), block_tokens)

    @classmethod
    def mla(
        cls, *, layers: int, kv_lora_rank: int, rope_dim: int, bytes_per_element: float, block_tokens: int
    ) -> KvGeometry:
        """Multi-head latent attention: one latent vector and one rope key a layer."""
        width = _positive("kv_lora_rank", kv_lora_rank) + _positive("rope_dim", rope_dim)
        return cls(_whole_bytes(_positive("layers", layers) * width * bytes_per_element), block_tokens)

    @property
    def block_bytes(self) -> int:
        """Bytes of one full block."""
        return self.bytes_per_token * self.block_tokens

    def blocks(self, tokens: int) -> int:
        """Blocks that `tokens` tokens hold; the last one may be partly filled."""
        return -(-tokens // self.block_tokens)

    def full_blocks(self, tokens: int) -> int:
        """Blocks that `tokens` tokens fill to the end: only these can be shared as a prefix."""
        return tokens // self.block_tokens

    def tokens_bytes(self, tokens: int) -> int:
        """KV bytes of `tokens` tokens, without the empty rest of the last block."""
        return tokens * self.bytes_per_token

    def pool_blocks(self, kv_bytes: int) -> int:
        """Whole blocks that fit into `kv_bytes` of memory."""
        return kv_bytes // self.block_bytes


def bytes_per_s(gbps: float) -> float:
    """Bytes a second of a link of `gbps` · 10⁹ bits a second."""
    if gbps <= 0:
        raise SettingsError("a link's speed must be above 0 Gb/s", value=gbps)
    return gbps * GIGA / BITS_PER_BYTE


def transfer_s(size_bytes: float, gbps: float, *, alpha_s: float = 0.0, efficiency: float = 1.0) -> float:
    """Seconds until `size_bytes` bytes are across a link that nothing else uses."""
    return alpha_s + size_bytes / (bytes_per_s(gbps) * efficiency)


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise SettingsError(f"`{name} >= 1` must hold", value=value)
    return value


def _whole_bytes(value: float) -> int:
    whole = round(value)
    if whole < 1 or abs(whole - value) > 1e-6:
        raise SettingsError(
            "KV bytes of a token must be a whole number", value=value, hint="is bytes_per_element right?"
        )
    return whole
