"""Fits of tests are small: one booster a level, tables from fewer made-up requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from models.length import boost, distil


@pytest.fixture(scope="module", autouse=True)
def small_fits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boost, "SMALL_BOOSTERS", 1)
        patch.setattr(distil, "MADE_UP_ROWS", 6_000)
        yield
