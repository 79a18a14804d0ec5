"""Emulated traffic: deterministic, within its bounds, with prefixes that are shared the way sessions share them."""

from dataclasses import replace

import numpy as np

from policies.twin.traffic import App, DayTraffic, TrafficSpec, day_traffic

SPEC = TrafficSpec(
    apps=(
        App("chat", 0.7, 2, 500, 0.8, 200, 0.6, 3.0, 10),
        App("documents", 0.3, 1, 6000, 0.6, 300, 0.5, 1.5, 20),
    ),
    rate_per_s=8.0,
    window_s=120,
    swing_frac=0.2,
    day_swing_frac=0.05,
    prompt_max_tokens=20_000,
    output_max_tokens=800,
    block_tokens=128,
)


def blocks(traffic: DayTraffic, row: int) -> list[int]:
    """A request's hashes."""
    return traffic.hashes[traffic.hash_offset[row] : traffic.hash_offset[row + 1]].tolist()


def test_same_seed_same_traffic() -> None:
    first, second = day_traffic(SPEC, day=3, seed=5), day_traffic(SPEC, day=3, seed=5)
    assert np.array_equal(first.arrival_s, second.arrival_s)
    assert np.array_equal(first.hashes, second.hashes)
    other = day_traffic(SPEC, day=4, seed=5)
    assert not np.array_equal(first.arrival_s[:10], other.arrival_s[:10])


def test_bounds_and_rate() -> None:
    traffic = day_traffic(SPEC, day=0, seed=1)
    assert np.all(np.diff(traffic.arrival_s) >= 0)
    assert traffic.arrival_s.min() >= 0
    assert traffic.arrival_s.max() < SPEC.window_s
    assert traffic.prompt_tokens.min() >= 1
    assert traffic.prompt_tokens.max() <= SPEC.prompt_max_tokens
    assert traffic.output_tokens.min() >= 1
    assert traffic.output_tokens.max() <= SPEC.output_max_tokens
    assert np.array_equal(np.diff(traffic.hash_offset), traffic.prompt_tokens // SPEC.block_tokens)
    wide = day_traffic(replace(SPEC, rate_per_s=16.0), day=0, seed=1)
    assert 1.6 < len(wide.arrival_s) / len(traffic.arrival_s) < 2.4


def test_a_turn_begins_with_the_turn_before_and_apps_share_their_prefix() -> None:
    traffic = day_traffic(SPEC, day=0, seed=2)
    last: dict[int, list[int]] = {}
    grown = 0
    for row in range(len(traffic.arrival_s)):
        mine, session = blocks(traffic, row), int(traffic.session[row])
        if session in last:
            assert mine[: len(last[session])] == last[session]
            grown += 1
        last[session] = mine
    assert grown > 50
    for app, spec in enumerate(SPEC.apps):
        rows = [r for r in np.flatnonzero(traffic.app == app) if len(blocks(traffic, r)) > spec.prefix_blocks]
        starts = {tuple(blocks(traffic, r)[: spec.prefix_blocks]) for r in rows}
        assert len(starts) == 1
        nexts = {(int(traffic.session[r]), blocks(traffic, r)[spec.prefix_blocks]) for r in rows}
        assert len({block for _, block in nexts}) == len(nexts)
