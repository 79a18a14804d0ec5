"""The law that ships: groups, inputs, caps, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import ModelError
from models.portable.length import ALL, INPUTS, Arrival, quantiles
from models.portable.length_online import LengthTracker
from models.portable.trees import Trees
from tests.models.length.samples import small_law


@pytest.mark.parametrize(
    ("slo_class", "app", "prompt", "group"),
    [
        ("chat", "a", 999, "chat/a"),
        ("chat", "a", 1000, "chat/a|1"),
        ("chat", "b", 2000, "chat"),
        ("chat", None, 10, "chat"),
        ("new", "a", 5000, ALL),
    ],
)
def test_a_request_counts_to_the_finest_group(slo_class: str, app: str | None, prompt: int, group: str) -> None:
    assert small_law().group(Arrival(slo_class, prompt, app=app)) == group


def test_the_table_reads_the_prompt() -> None:
    law = small_law()
    assert law.base(Arrival("chat", 402)) == (100.0, 200.0)
    assert law.base(Arrival("chat", 403)) == (300.0, 600.0)
    assert law.quantile(Arrival("chat", 402), 0.9) == 200.0
    with pytest.raises(ModelError, match="level"):
        law.quantile(Arrival("chat", 402), 0.7)


def test_no_answer_is_longer_than_its_limit() -> None:
    law = small_law(limit_tokens=250.0)
    assert law.quantiles(Arrival("chat", 1000)) == (250.0, 250.0)
    assert law.quantiles(Arrival("chat", 1000, max_output_tokens=120)) == (120.0, 120.0)
    assert small_law().cap(Arrival("chat", 1)) == math.inf


def test_unknown_inputs_are_nan_and_unknown_names_add_nothing() -> None:
    law = replace(small_law(), tenant_effect={"t": 0.5}, model_effect={"m": -0.25})
    by_name = dict(zip(INPUTS, law.inputs(Arrival("chat", 100)), strict=True))
    assert [name for name, value in by_name.items() if math.isnan(value)] == [
        "cached_frac", "log_max_output", "turn", "log_previous", "log_session_mean", "hour", "log_recent", "log_new",
    ]  # fmt: skip
    known = law.inputs(Arrival("chat", 100, tenant="t", model="m", cached_frac=0.25))
    assert known[INPUTS.index("log_new")] == math.log1p(75.0)
    assert known[-2:] == (0.5, -0.25)
    assert law.inputs(Arrival("chat", 100, tenant="new", model="new"))[-2:] == (0.0, 0.0)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(1e-3, 1e3)), min_size=1, max_size=6), st.floats(1, 1e7))
def test_quantiles_never_cross(pairs: list[tuple[float, float]], cap: float) -> None:
    base, offset = (tuple(values) for values in zip(*pairs, strict=True))
    found = quantiles(base, offset, cap)
    assert list(found) == sorted(found)
    assert max(found) <= cap


def test_an_answer_moves_its_group_only() -> None:
    tracker = LengthTracker(small_law(pace=0.1))
    arrival = Arrival("chat", 100, app="a")
    tracker.observe(arrival, 150)
    assert tracker.offset["chat/a"] == pytest.approx([1.0 + 0.1 * 0.5, 1.0 - 0.1 * 0.1])
    assert tracker.offset["chat"] == tracker.offset[ALL] == [1.0, 1.0]
    assert tracker.quantiles(arrival) == pytest.approx((105.0, 198.0))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"offset": {"chat": (1.0, 1.0)}}, "same groups"),
        ({"rows": ((1.0,), (2.0,))}, "one value a level"),
        ({"levels": (0.9, 0.5)}, "ascend inside"),
        ({"rows": ((1.0, 2.0),)}, "places in `rows`"),
        ({"table": Trees()}, "one tree"),
        ({"table": Trees((0,), (99, -1, -1), (0.0,) * 3, (1, 0, 0), (2, 0, 0), (0.0, 0.0, 1.0))}, "known inputs"),
        ({"pace": dict.fromkeys(["*", "chat", "chat/a", "chat/a|1"], (1.0, 0.0))}, "pace < 1"),
        ({"prompt_edges": (5.0, 5.0)}, "edges must ascend"),
    ],
)
def test_a_damaged_law_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        replace(small_law(), **change)
