"""Errors that people read: rule, value, place, hint.

RoutecalError
├── SettingsError   routecal.toml, a cluster file or a command's option breaks a rule
├── SourceError     a log cannot be read at all (a bad row is quarantined instead)
├── LakeError       a partition is missing, damaged or being written by somebody else
├── ModelError      an estimator has too little data, or its portable form is damaged
├── TwinError       a workload and a cluster do not fit each other
└── PolicyError     a policy file, signature or store breaks a rule
"""

from __future__ import annotations


class RoutecalError(Exception):
    """A rule was broken by somebody's input.

    `rule` says what must hold, `value` what was found, `place` where (file, row, key), `hint` what to do.
    """

    def __init__(self, rule: str, *, value: object = None, place: str = "", hint: str = "") -> None:
        self.rule = rule
        self.value = value
        self.place = place
        self.hint = hint
        text = rule
        if value is not None:
            text += f", got {value!r}"
        if place:
            text += f" at {place}"
        if hint:
            text += f"; hint: {hint}"
        super().__init__(text)


class SettingsError(RoutecalError):
    """Settings, a cluster file or a command's option break a rule."""


class SourceError(RoutecalError):
    """A log cannot be read at all."""


class LakeError(RoutecalError):
    """A partition is missing, damaged or locked."""


class ModelError(RoutecalError):
    """An estimator cannot be fitted or its portable form is damaged."""


class TwinError(RoutecalError):
    """A workload and a cluster do not fit each other."""


class PolicyError(RoutecalError):
    """A policy file, a signature or the policy store breaks a rule."""
