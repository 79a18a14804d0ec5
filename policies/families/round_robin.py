"""`round_robin`: every P in turn; D's turn shifts by one after each round of P, so that all pairs come up."""

from __future__ import annotations

from policies.families.apart import NodeKeys
from policies.view import RouterView


def round_robin_keys(view: RouterView) -> NodeKeys:
    """Places after the node whose turn it is."""
    n_prefill, n_decode = len(view.prefill), len(view.decode)
    first_p = view.turn % n_prefill
    first_d = (view.turn + view.turn // n_prefill) % n_decode
    prefill = [float((i - first_p) % n_prefill) for i in range(n_prefill)]
    return prefill, [float((j - first_d) % n_decode) for j in range(n_decode)]
