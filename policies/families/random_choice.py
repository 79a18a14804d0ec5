"""`random`: any P and any D that pass the filters. Every key is the same, so that the tie decides."""

from __future__ import annotations

from collections.abc import Sequence

from policies.families.family import Family
from policies.families.params import NoParams
from policies.view import RouterView


def _keys(_: NoParams, __: RouterView, nodes: Sequence[int], ___: bool) -> list[float]:
    return [0.0] * len(nodes)


FAMILIES = (Family("random", _keys, "policies.families.random_choice_kernel"),)
