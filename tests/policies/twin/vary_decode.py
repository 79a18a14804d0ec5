"""Scenarios with other rules of D nodes."""

from __future__ import annotations

from numpy.random import Generator

from tests.policies.twin.scenario import Scenario


def vary_decode(rng: Generator, scenario: Scenario) -> Scenario:
    """The scenario with rules of this part drawn anew."""
    return scenario
