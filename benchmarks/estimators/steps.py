"""Step times on real data, whole settings left out: random folds would leak through repeats of one setting.

Forms: splitwise = the shipped laws (coefficients, bends, one tree); llmservingsim = the portable law of mixed steps (40
trees); deployments = roofline × 150 trees × levels. Bars are percent.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.estimators import step_deployments, step_mixed, step_splitwise
from benchmarks.estimators.bars import Part


def measure(data: Path) -> Part:
    """All three sets. FileNotFoundError if one is absent."""
    parts = [module.measure(data) for module in (step_splitwise, step_mixed, step_deployments)]
    return Part(
        "steps",
        tuple(row for part in parts for row in part.rows),
        tuple(bar for part in parts for bar in part.bars),
        tuple(note for part in parts for note in part.notes),
    )
