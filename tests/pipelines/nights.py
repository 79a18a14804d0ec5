"""A small project folder for tests of the orchestration: settings, and estimators by hand."""

from __future__ import annotations

import math
from pathlib import Path

from models.portable.cache import CacheLaw
from models.portable.estimators import Estimators
from models.portable.length import LengthLaw
from models.portable.steps import StepLaw, one_type
from models.portable.transfer import TransferLaw
from models.portable.trees import table_of

TOML = """
schema_version = 1
[schedule]
hour_utc = 4
[pools.p]
model = "m"
kv = {layers = 80, kv_heads = 8, head_dim = 128, block_tokens = 16}
incumbent = {family = "gated_utilisation"}
nodes = [
  {names = ["p0"], role = "prefill", blocks = 100, port_gbps = 100},
  {names = ["d0"], role = "decode", blocks = 100, port_gbps = 100},
]
"""


def settings_file(folder: Path, *, pools: tuple[str, ...] = ("p",)) -> Path:
    """routecal.toml in a folder, the same pool under each name."""
    head, pool = TOML.split("[pools.p]")
    path = folder / "routecal.toml"
    path.write_text(head + "".join(f"[pools.{name}]{pool}" for name in pools), "utf-8")
    return path


def estimators() -> Estimators:
    """Laws whose predictions are easy to work out."""
    by_prompt = table_of(1, (math.log1p(1000),), (0.0, 1.0))
    return Estimators(
        length=LengthLaw(
            levels=(0.5, 0.9),
            group_level={"*": 3.0, "chat/a": 3.0},
            table=by_prompt,
            rows=((10.0, 20.0), (30.0, 40.0)),
            offset={"*": (1.0, 1.5), "chat/a": (2.0, 2.0)},
            pace={"*": (0.0, 0.0), "chat/a": (0.0, 0.0)},
        ),
        prefill=one_type(StepLaw((0.01, 0.001, 0.0, 0.0, 0.0)), {"p0": 2.0}),
        decode=one_type(StepLaw((0.02, 0.0, 0.0, 0.0), trees=table_of(0, (8.0,), (1.0, 1.5)))),
        transfer=TransferLaw(alpha_s={"local": 0.0, "cross": 0.001}, efficiency={"local": 1.0, "cross": 0.9}),
        cache={"p0": CacheLaw(80.0)},
    )
