"""Scenarios with other rules of P nodes and their caches."""

from __future__ import annotations

from numpy.random import Generator

from tests.policies.twin.scenario import Scenario


def vary_prefill(rng: Generator, scenario: Scenario) -> Scenario:
    """The scenario with rules of this part drawn anew."""
    return scenario
