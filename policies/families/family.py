"""What a router algorithm is to the rest of the project. docs/adding-a-family.md adds one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from policies.families.params import NoParams
from policies.policy import DecodeMoment
from policies.view import RouterView

Keys: TypeAlias = Callable[[Any, RouterView, Sequence[int], bool], list[float]]
"""(parameters, view, candidate nodes by index, whether they are D) -> one key a candidate: the smallest wins.

NaN = unknown; never infinite. Keys may depend on the other candidates, never on nodes that are none.
"""


@dataclass(frozen=True, slots=True)
class Knob:
    """A parameter that the search moves: its bounds, and the values that it tries first beside the default.

    `names`: those values and the default are the only ones. A lower bound of 0 is a parameter that can be off.
    """

    name: str
    low: float
    high: float
    tried: tuple[float, ...] = ()
    names: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """One router algorithm that chooses P and D apart, by a key a node.

    `kernel`: the module that holds the compiled form of `keys`. `capacity`: D must have room (docs/decision.md).
    `racks`: a router can bind P and D to one rack. `shares_blocks`: whether, under these parameters, a block of several
    own requests on a D is one. `moment`: when its router chooses D. `router`: whose algorithm it is, "" = any.
    """

    name: str
    keys: Keys
    kernel: str
    params: type = NoParams
    capacity: bool = False
    racks: bool = False
    shares_blocks: Callable[[Any], bool] = lambda _: False
    knobs: tuple[Knob, ...] = ()
    moment: DecodeMoment = "arrival"
    router: str = ""
