"""Compiled keys of `policies.families.random_choice`."""

from __future__ import annotations

from policies.compiled import keys_kernel
from policies.kernel_types import Side


@keys_kernel
def keys(side: Side) -> None:
    """Candidates keep the 0 that marks them."""
