"""A small project folder for tests of the orchestration: settings, and estimators by hand."""

from __future__ import annotations

from pathlib import Path

from models.portable import Estimators, LengthTable, StepLaw, TransferLaw

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
    return Estimators(
        length=LengthTable(
            levels=(0.5, 0.9),
            prompt_edges=(1000,),
            tokens={"*": ((10.0, 20.0), (30.0, 40.0))},
            offset={"*": (1.0, 1.5)},
        ),
        prefill=StepLaw(coef=(0.01, 0.001, 0.0, 0.0), node_factor={"p0": 2.0}),
        decode=StepLaw(coef=(0.02, 0.0, 0.0, 0.0), bucket_edges=(8,), bucket_factor=(1.0, 1.5)),
        transfer=TransferLaw(alpha_s={"local": 0.0, "cross": 0.001}, efficiency={"local": 1.0, "cross": 0.9}),
    )
