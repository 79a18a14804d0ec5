"""Scenarios with other faults, cancellations, sessions."""

from __future__ import annotations

from numpy.random import Generator

from tests.policies.twin.scenario import Scenario


def vary_faults(rng: Generator, scenario: Scenario) -> Scenario:
    """The scenario with rules of this part drawn anew."""
    return scenario
