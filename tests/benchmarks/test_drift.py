"""The closed loop once: a node gets slower, its first day alarms, and one night later the estimates are right again."""

from pathlib import Path

import pytest

from benchmarks.estimators.drift import drift, history, recovered, slower_nodes

pytestmark = pytest.mark.slow


def test_a_slower_node_alarms_at_once_and_is_right_after_one_night(tmp_path: Path) -> None:
    found = drift(history(tmp_path / "pool"), slower_nodes)
    assert any("p1/dp0" in alarm for alarm in found.alarms)
    assert any("d1/dp0" in alarm for alarm in found.alarms)
    assert found.before.prefill["p1/dp0"] > 0.15
    assert found.before.decode["d1/dp0"] > 0.2
    missed = [bar for bar in recovered("slower nodes", found.after) if not bar.met]
    assert not missed
