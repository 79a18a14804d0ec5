"""Gates: what must hold before a policy is believed, each with its value, threshold and interval."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from features.errors import SettingsError

Status: TypeAlias = Literal["pass", "fail", "not_run", "waived"]

FORCED_PLACEMENT = "forced_placement"
POLICY_REPLAY = "policy_replay"
VALIDATION = "validation"
REFITS = "estimator_refits"
DRILLS = "drills"
TEST_DAY = "test_day"
GATES = (FORCED_PLACEMENT, POLICY_REPLAY, VALIDATION, REFITS, DRILLS, TEST_DAY)
"""In the order in which they are read."""

_NOT_RUN = {
    FORCED_PLACEMENT: "no forced placement was replayed",
    POLICY_REPLAY: "the declared router family was not replayed against its log",
    VALIDATION: "no validation day was replayed",
    REFITS: "the estimators were not fitted again",
    DRILLS: "no drill was run",
    TEST_DAY: "no test day was replayed",
}


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate. `value` is judged against `threshold`; `interval` of an estimate; `numbers` behind it by name.

    A gate that is not run has no value. With one it was run and cannot tell: it counts as not run, and its detail says
    "undecided" and why.
    """

    name: str
    status: Status
    detail: str
    value: float | None = None
    threshold: float | None = None
    interval: tuple[float, float] | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def undecided(self) -> bool:
        """It was run and cannot tell."""
        return self.status == "not_run" and self.value is not None


def not_run(name: str, detail: str = "") -> Gate:
    """A gate that was not run, and why."""
    return Gate(name, "not_run", detail or _NOT_RUN[name])


def complete(gates: Sequence[Gate], waivers: Collection[str] = ()) -> tuple[Gate, ...]:
    """All of `GATES` in order: those that are missing as `not_run`, and those of `waivers` as `waived`.

    A waiver covers a gate that was not run or is undecided, never one that failed. Raises SettingsError for a waiver of
    no gate.
    """
    unknown = sorted(set(waivers) - set(GATES))
    if unknown:
        raise SettingsError("a waiver names a gate", value=unknown[0], hint=f"one of {', '.join(GATES)}")
    given = {gate.name: gate for gate in gates}
    whole = [given.get(name) or not_run(name) for name in GATES]
    return tuple(
        replace(gate, status="waived", detail=f"waived by settings: {gate.detail}")
        if gate.status == "not_run" and gate.name in waivers
        else gate
        for gate in whole
    )
