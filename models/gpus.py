"""What GPUs can do, as their public data sheets say: the prior of a type of node that has not been measured yet.

Only ratios between GPUs are used, so that a common factor (marketing, clocks under load) does not matter.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

_T, _G = 1e12, 1e9
_SUFFIX = re.compile(r"-(sxm\d?|hbm3e?|\d+gb)(?=-|$)")
_TYPE = re.compile(r"^(?:(?P<family>.+)/)?(?P<gpu>[^/]+)/tp(?P<tp>[1-9]\d*)$")


@dataclass(frozen=True, slots=True)
class Gpu:
    """`flops`: dense BF16 (FP16 where there is none) FLOP/s. `memory` and `link`: bytes/s, links both ways."""

    flops: float
    memory: float
    link: float


def _gpu(tflops: float, memory_gb: float, link_gb: float) -> Gpu:
    return Gpu(tflops * _T, memory_gb * _G, link_gb * _G)


GPUS = {
    "v100": _gpu(125, 900, 300),
    "t4": _gpu(65, 320, 32),
    "l4": _gpu(121, 300, 64),
    "a10": _gpu(125, 600, 64),
    "a10g": _gpu(70, 600, 64),
    "a30": _gpu(165, 933, 200),
    "a40": _gpu(150, 696, 112),
    "a6000": _gpu(155, 768, 112),
    "l40": _gpu(181, 864, 64),
    "l40s": _gpu(362, 864, 64),
    "a100": _gpu(312, 2039, 600),
    "a100-pcie": _gpu(312, 1935, 600),
    "a800": _gpu(312, 2039, 400),
    "h20": _gpu(148, 4000, 900),
    "h100": _gpu(989, 3350, 900),
    "h100-pcie": _gpu(756, 2000, 600),
    "h100-nvl": _gpu(835, 3900, 600),
    "h800": _gpu(989, 3350, 400),
    "h200": _gpu(989, 4800, 900),
    "gh200": _gpu(989, 4000, 900),
    "b200": _gpu(2250, 8000, 1800),
    "b300": _gpu(2250, 8000, 1800),
    "gb200": _gpu(2500, 8000, 1800),
    "gb300": _gpu(2500, 8000, 1800),
    "mi250x": _gpu(383, 3277, 800),
    "mi300x": _gpu(1307, 5300, 896),
    "mi325x": _gpu(1307, 6000, 896),
    "mi355x": _gpu(2500, 8000, 1075),
    "rtx4090": _gpu(165, 1008, 64),
    "rtx5090": _gpu(210, 1792, 128),
    "rtxpro6000": _gpu(504, 1792, 128),
}
"""By name. Boards with more or faster memory that are not named count as the plain board."""

Bound = Literal["flops", "memory"]
"""What a step's time goes with: prefill with arithmetic, decode with reading memory."""


@dataclass(frozen=True, slots=True)
class NodeType:
    """A type's name in parts: `<gpu>/tp<n>`, or `<family>/<gpu>/tp<n>` where types of several models stand together."""

    family: str
    gpu: str
    tensor_parallel: int


def type_name(gpu: str | None, tensor_parallel: int | None) -> str | None:
    """Name of the type of a node, None if its GPU is not told."""
    return None if gpu is None else f"{gpu.lower()}/tp{tensor_parallel or 1}"


def node_type(name: str) -> NodeType | None:
    """Parts of a type's name; None for any other name."""
    found = _TYPE.match(name)
    return NodeType(found["family"] or "", found["gpu"], int(found["tp"])) if found else None


def gpu(name: str) -> Gpu | None:
    """A GPU by a name as people and engines write it; None if it is not in the table."""
    plain = re.sub(r"[ _]+", "-", name.strip().lower())
    for prefix in ("nvidia-", "amd-", "instinct-", "tesla-"):
        plain = plain.removeprefix(prefix)
    plain = _SUFFIX.sub("", plain)
    return GPUS.get(plain) or GPUS.get(plain.replace("-", ""))


def slower(of: str, than: str, bound: Bound) -> float | None:
    """How many times as long type `of` takes as type `than` by their data sheets; None if one is not in the table."""
    rates = [_rate(name, bound) for name in (of, than)]
    return None if rates[0] is None or rates[1] is None else rates[1] / rates[0]


def nearest(of: str, among: list[str], bound: Bound) -> str | None:
    """The type to learn from: of one family, then of equal tensor parallel, then nearest in speed, then by name."""

    def distance(name: str) -> tuple[bool, bool, float, str]:
        one, two, ratio = node_type(of), node_type(name), slower(of, name, bound)
        family = one is None or two is None or one.family != two.family
        parallel = one is None or two is None or one.tensor_parallel != two.tensor_parallel
        return family, parallel, math.inf if ratio is None else abs(math.log(ratio)), name

    return min(among, key=distance, default=None)


def _rate(name: str, bound: Bound) -> float | None:
    parts = node_type(name)
    found = gpu(parts.gpu) if parts else None
    if parts is None or found is None:
        return None
    return parts.tensor_parallel * (found.flops if bound == "flops" else found.memory)
