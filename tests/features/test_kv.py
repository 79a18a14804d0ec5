from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SettingsError
from features.kv import KvGeometry, bytes_per_s, transfer_s

LLAMA_70B = KvGeometry.gqa(layers=80, kv_heads=8, head_dim=128, bytes_per_element=2, block_tokens=16)


def test_a_70b_token_holds_327680_bytes() -> None:
    assert LLAMA_70B.bytes_per_token == 327_680
    assert LLAMA_70B.block_bytes == 5_242_880
    fp8 = KvGeometry.gqa(layers=80, kv_heads=8, head_dim=128, bytes_per_element=1, block_tokens=16)
    assert fp8.bytes_per_token * 2 == LLAMA_70B.bytes_per_token


def test_a_latent_token_is_one_vector_a_layer() -> None:
    geometry = KvGeometry.mla(layers=61, kv_lora_rank=512, rope_dim=64, bytes_per_element=2, block_tokens=64)
    assert geometry.bytes_per_token == 61 * (512 + 64) * 2


@pytest.mark.parametrize(("gbps", "seconds"), [(25, 3.3), (100, 0.8), (200, 0.4), (400, 0.2)])
def test_ten_gigabytes_over_a_link(gbps: float, seconds: float) -> None:
    assert transfer_s(10e9, gbps) == pytest.approx(seconds, abs=0.1)
    assert transfer_s(10e9, gbps) == 10e9 / bytes_per_s(gbps)


def test_latency_and_efficiency_add_to_a_transfer() -> None:
    assert transfer_s(1e9, 8, alpha_s=0.5, efficiency=0.5) == pytest.approx(2.5)


@given(st.integers(0, 10**7), st.integers(1, 512))
def test_blocks_hold_the_tokens_and_not_one_more(tokens: int, block_tokens: int) -> None:
    geometry = KvGeometry(2, block_tokens)
    blocks = geometry.blocks(tokens)
    assert blocks * block_tokens >= tokens > (blocks - 1) * block_tokens or tokens == blocks == 0
    assert geometry.full_blocks(tokens) <= blocks <= geometry.full_blocks(tokens) + 1


def test_pool_blocks_are_whole() -> None:
    assert LLAMA_70B.pool_blocks(10 * LLAMA_70B.block_bytes - 1) == 9


@pytest.mark.parametrize(
    "wrong",
    [
        {"layers": 0, "kv_heads": 8, "head_dim": 128, "bytes_per_element": 2},
        {"layers": 80, "kv_heads": -1, "head_dim": 128, "bytes_per_element": 2},
        {"layers": 1, "kv_heads": 1, "head_dim": 1, "bytes_per_element": 0.3},
    ],
)
def test_a_geometry_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError):
        KvGeometry.gqa(**wrong, block_tokens=16)


def test_a_link_has_a_speed() -> None:
    with pytest.raises(SettingsError, match="above 0"):
        bytes_per_s(0)
