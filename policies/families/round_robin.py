"""`round_robin`: every P in turn; D's turn shifts by one after each round of P, so that all pairs come up."""

from __future__ import annotations

from collections.abc import Sequence

from policies.families.family import Family
from policies.families.params import NoParams
from policies.view import RouterView


def turn_keys(view: RouterView, nodes: Sequence[int], *, decode: bool) -> list[float]:
    """Places after the node whose turn it is."""
    count = len(view.decode) if decode else len(view.prefill)
    # Ds that are chosen for computed prompts have a turn of their own.
    shifts = decode and view.request.prefilled_on is None
    first = view.turn + view.turn // len(view.prefill) if shifts else view.turn
    return [float((at - first % count) % count) for at in nodes]


def _keys(_: NoParams, view: RouterView, nodes: Sequence[int], decode: bool) -> list[float]:
    return turn_keys(view, nodes, decode=decode)


FAMILIES = (Family("round_robin", _keys, "policies.families.round_robin_kernel"),)
