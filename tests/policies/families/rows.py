"""Random parameters of any family, as rows of a policy."""

from __future__ import annotations

import dataclasses
import random
from typing import Literal, get_args, get_origin, get_type_hints

from features.errors import PolicyError
from policies.families.params import Row, from_json, names, to_json, to_row
from policies.families.registry import BY_NAME


def random_row(rng: random.Random, family: str) -> Row:
    """() half of the time, else parameters of which some are far from their defaults."""
    described = BY_NAME.get(family)
    if described is None or not names(described.params) or rng.random() < 0.3:
        return ()
    bounds = {knob.name: (knob.low, knob.high) for knob in described.knobs}
    values = to_json(described.params())
    for name, value in values.items():
        choices = _choices(described.params, name)
        if choices:
            values[name] = rng.choice(choices)
        elif rng.random() < 0.6:
            low, high = bounds.get(name, (float(value) * 0.5, float(value) * (2.0 if value > 1 else 1.0)))
            values[name] = rng.choice([low, rng.uniform(low, high), float(value)])
    try:
        return to_row(from_json(described.params, values))
    except PolicyError:
        return ()


def _choices(kind: type, name: str) -> tuple[str | bool, ...]:
    for part in name.split("."):
        kind = get_type_hints(kind)[part]
        if not dataclasses.is_dataclass(kind):
            break
    if kind is bool:
        return False, True
    return get_args(kind) if get_origin(kind) is Literal else ()
