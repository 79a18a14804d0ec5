"""Real step times as rows of the estimators: splitwise, llmservingsim, aiconfigurator's measured deployments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from models.gpus import gpu
from models.metrics import FloatArray
from models.steps.deployments import Model, Point
from models.steps.mixed import MixedSteps

LAYERS = 32
"""Of Llama-3.1-8B, whose layers llmservingsim timed one by one."""
ONCE = ("embedding", "final_layernorm")
"""Operators that run once a step, not once a layer."""
DENSE_MOST = 2048
MODELS = {
    "MiniMaxAI/MiniMax-M2.5": Model(230e9, 10e9, 62, 2048),
    "deepseek-ai/DeepSeek-R1": Model(671e9, 37e9, 61, 576),
    "deepseek-ai/DeepSeek-V3": Model(671e9, 37e9, 61, 576),
    "nvidia/DeepSeek-R1-NVFP4": Model(671e9, 37e9, 61, 576),
    "nvidia/DeepSeek-V3.1-NVFP4": Model(671e9, 37e9, 61, 576),
    "Qwen/Qwen3-32B": Model(32.8e9, 32.8e9, 64, 2048),
    "nvidia/Qwen3-32B-NVFP4": Model(32.8e9, 32.8e9, 64, 2048),
    "Qwen/Qwen3-235B-A22B-FP8": Model(235e9, 22e9, 94, 1024),
    "Qwen/Qwen3.5-397B-A17B": Model(397e9, 17e9, 60, 256),
    "meta-llama/Llama-3.1-70B": Model(70.6e9, 70.6e9, 80, 2048),
    "meta-llama/Llama-3.1-8B-Instruct": Model(8e9, 8e9, 32, 2048),
    "openai/gpt-oss-120b": Model(117e9, 5.1e9, 36, 512),
    "moonshotai/Kimi-K2.5": Model(1000e9, 32e9, 61, 576),
    "zhipuai/GLM-5": Model(744e9, 40e9, 78, 576),
}
"""Facts of the model cards; KV elements of linear attention count as a quarter of its layers' share."""
WEIGHT_BYTES = {"fp8": 1.0, "fp4": 0.5, "int4": 0.5, "bf16": 2.0, None: 2.0}
"""By precision; where none is stated, the model's own of 16 bits."""
DEPLOYMENT = (
    "backend", "model_path", "system", "precision", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size",
    "moe_ep_size",
)  # fmt: skip


def splitwise(data: Path) -> pl.DataFrame:
    """Measured rows: `node` (model/gpu/tp, one a group), `setting`, p, b, interior, and what both phases need."""
    rows = pl.read_csv(_found(data / "splitwise-perf-model" / "perf_model.csv"))
    p, b = pl.col("prompt_size"), pl.col("batch_size")
    tokens = (b * p).cast(pl.Int64)
    return (
        rows.filter(pl.col("hardware") != "h100-80gb-pcap")  # derived from other rows
        .select(
            node=pl.concat_str("model", "hardware", pl.format("tp{}", "tensor_parallel"), separator="/"),
            setting=pl.format("{}x{}", b, p),
            interior=~(p.is_in([128, 8192]) | (b == 64)),
            n_steps=pl.lit(1),
            prefill_us=pl.col("prompt_time") * 1000,
            decode_us=pl.col("token_time") * 1000,
            prompts=b,
            new_tokens=tokens,
            sum_t2=tokens**2,
            sum_chunk_context=pl.lit(0),
            sequences=b,
            tokens=b * (p + pl.col("token_size") / 2),
        )
        .sort("node", "setting", "prefill_us", "decode_us")
    )


def llmservingsim(data: Path, name: str) -> tuple[MixedSteps, FloatArray]:
    """Steps of Llama-3.1-8B on one GPU, and kv_decode a sequence: sums of operators that were timed one by one.

    Left out: steps of more new tokens than dense operators were timed with.
    """
    folder = data / "llmservingsim" / "perf" / name / "meta-llama" / "Llama-3.1-8B" / "bf16" / "tp1"
    attention, dense, each = (
        pl.read_csv(_found(folder / f"{part}.csv")) for part in ("attention", "dense", "per_sequence")
    )
    attention = attention.filter(pl.col("prefill_chunk") + pl.col("n_decode") <= DENSE_MOST)
    chunk, kv_prefill, n, kv_each, attention_us = (
        attention[column].cast(pl.Float64).to_numpy() for column in attention.columns
    )
    size = chunk + n
    repeated = [layer for layer in dense["layer"].unique().sort().to_list() if layer not in ONCE]
    us = LAYERS * (attention_us + _timed(dense, repeated, "tokens", size)) + _timed(dense, ONCE, "tokens", size)
    ending = np.minimum(n + (chunk > 0), float(each["sequences"].max()))  # type: ignore[arg-type]  # whole numbers
    us = us + _timed(each, each["layer"].unique().sort().to_list(), "sequences", ending)
    return MixedSteps(chunk, kv_prefill, n, n * kv_each, us * 1e-6), kv_each


@dataclass(frozen=True, slots=True)
class Silicon:
    """Measured deployments: points, seconds a token, and names by row of operating point, deployment, system, and
    model with engine."""

    points: tuple[Point, ...]
    tpot_s: FloatArray
    operating: np.typing.NDArray[np.str_]
    deployment: np.typing.NDArray[np.str_]
    system: np.typing.NDArray[np.str_]
    served: np.typing.NDArray[np.str_]


def silicon(data: Path) -> Silicon:
    """Aggregated deployments with a stated concurrency; equal operating points have one name."""
    table = pl.read_csv(
        _found(data / "aiconfigurator" / "silicon_sample.without_h200.csv"), infer_schema_length=None
    ).with_columns(concurrency=pl.col("silicon_data_source").str.extract(r"silicon_concurrency=(\d+)").cast(pl.Float64))
    table = table.filter((pl.col("mode") == "agg") & pl.col("concurrency").is_not_null())
    parts = [pl.col(name).cast(pl.String).fill_null("-") for name in DEPLOYMENT]
    table = table.with_columns(
        deployment=pl.concat_str(parts, separator="|"), served=pl.concat_str("model_path", "backend", separator="|")
    ).with_columns(operating=pl.concat_str("deployment", "isl", "osl", "concurrency", separator="|"))
    names = [table[column].to_numpy().astype(str) for column in ("operating", "deployment", "system", "served")]
    points = tuple(_point(row) for row in table.iter_rows(named=True))
    return Silicon(points, table["silicon_tpot_ms"].to_numpy() * 1e-3, *names)


def _point(row: dict[str, object]) -> Point:
    def number(name: str) -> int:
        value = row[name]
        return 1 if value is None else int(str(value))  # 0 stays as it is stated

    found = gpu(str(row["system"]))
    assert found is not None, row["system"]
    precision = row["precision"]
    return Point(
        gpu=found,
        model=MODELS[str(row["model_path"])],
        engine=str(row["backend"]),
        weight_bytes=WEIGHT_BYTES[None if precision is None else str(precision)],
        tensor_parallel=number("tp_size"),
        attention_dp=max(number("attention_dp_size"), 1),
        expert_tp=number("moe_tp_size"),
        expert_parallel=number("moe_ep_size"),
        concurrency=float(str(row["concurrency"])),
        prompt=float(number("isl")),
        output=float(number("osl")),
        groups=(str(row["system"]), f"{row['system']}|{row['served']}", str(row["deployment"])),
    )


def _timed(table: pl.DataFrame, layers: tuple[str, ...] | list[str], size: str, at: FloatArray) -> FloatArray:
    """Microseconds of some operators together, straight lines between the timed sizes."""
    total = np.zeros_like(at)
    for layer in layers:
        one = table.filter(pl.col("layer") == layer).sort(size)
        total += np.interp(at, one[size].to_numpy(), one["time_us"].to_numpy())
    return total


def _found(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(path)
    return path
