"""The queue's memory, on queues whose memory is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.evidence.relaxation import relaxation_s
from tests.policies import world


def with_sojourn(seconds: float) -> float:
    """Poisson arrivals with exponential sojourn: the number in the system forgets with that same time constant."""
    load = replace(world.workload(40000, rate_per_s=20.0), output_tokens=np.full(40000, 2, np.int32))
    sojourn = np.random.default_rng(1).exponential(seconds, 40000)
    return relaxation_s(load, world.replay_of(load, sojourn, np.zeros(40000)))


@pytest.mark.parametrize("seconds", [3.0, 10.0])
def test_a_known_time_constant_is_recovered(seconds: float) -> None:
    assert with_sojourn(seconds) == pytest.approx(seconds, rel=0.35)


def test_a_queue_that_never_varies_has_none() -> None:
    load = replace(world.workload(1000), arrival_ns=np.arange(1000, dtype=np.int64) * 100_000_000)
    assert relaxation_s(load, world.replay_of(load, np.full(1000, 0.01), np.zeros(1000))) == 0.0


def test_rejected_requests_do_not_wait_for_ever() -> None:
    load = world.workload(1000)
    status = np.ones(1000, np.int64)
    assert relaxation_s(load, world.replay_of(load, np.ones(1000), np.zeros(1000), status)) == 0.0


def test_a_window_too_short_to_tell() -> None:
    load = world.workload(10)
    assert relaxation_s(load, world.replay_of(load, np.ones(10), np.zeros(10))) == 0.0
