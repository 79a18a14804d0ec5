"""KV transfers: measured tables of real links, and emulated pools with contention, descriptors, overlap and caches."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.estimators import emulated_caches, emulated_links
from benchmarks.estimators.bars import Bar, Part, Row
from benchmarks.estimators.emulated_links import BLOCK_TOKENS, FACTS, KV_BYTES_PER_TOKEN, UPLINKS, Links, Prompts
from features.transfers import FLOW_COLUMNS, transfers
from models.cache.fit import fit_cache
from models.cache.score import score_cache
from models.portable.transfer import TransferLaw
from models.transfer.fit import fit_transfer
from models.transfer.score import score_transfers

Float64 = npt.NDArray[np.float64]
Predict = Callable[[Float64], Float64]
"""Seconds of sizes in bytes."""
Method = Callable[[Float64, Float64, float], Predict]
"""From sizes, seconds and the line's bytes/s to a prediction."""

PROMPTS = 6_000
MOONCAKE_BAR, VIDUR_BAR = 0.06, 0.05
VIDUR_LINES = {"a100_dgx": 25e9, "h100_dgx": 50e9}
VIDUR_LEAST_BYTES = 1e6
FOLDS = 10


def measure(data: Path) -> Part:
    """All of it. FileNotFoundError if the real tables are not in `data`."""
    rows: list[Row] = []
    bars: list[Bar] = []
    for name, size, seconds, line in _mooncake(data):
        rows += _compared(name, "leave one out", size, seconds, line, np.arange(len(size)))
        bars.append(Bar(f"{name}, leave one out, mean error", _ours(rows), MOONCAKE_BAR))
    for name, size, seconds, line in _vidur(data):
        fold = np.random.default_rng(0).permutation(len(size)) % FOLDS
        rows += _compared(name, f"{FOLDS} folds", size, seconds, line, fold)
        bars.append(Bar(f"{name}, {FOLDS} folds, mean error", _ours(rows), VIDUR_BAR))
    for more_rows, more_bars in (*map(_links, SCENES), _caches()):
        rows += more_rows
        bars += more_bars
    notes = (
        "real tables are of single transfers: no contention, no tail",
        "emulated links: seconds exposed after prefill, by the law and by the truth without noise, on unseen traffic",
        "the descriptors' baseline still knows that bytes grow with them",
    )
    return Part("transfers", tuple(rows), tuple(bars), notes)


def _mooncake(data: Path) -> Iterator[tuple[str, Float64, Float64, float]]:
    table = pl.read_csv(data / "mooncake-kv-transfer" / "kv_transfer_pd_mooncake.csv")
    for (model,), rows in table.group_by(["model"], maintain_order=True):
        line = float(rows["theoretical_gbytes_per_s"][0]) * 1e9
        size, seconds = rows["kv_bytes_nominal"].cast(pl.Float64), rows["transfer_ms"] * 1e-3
        yield f"mooncake {str(model)[:10]}", size.to_numpy(), seconds.to_numpy(), line


def _vidur(data: Path) -> Iterator[tuple[str, Float64, Float64, float]]:
    for name, line in VIDUR_LINES.items():
        table = pl.read_csv(data / "vidur-profiles" / "network" / name / "send_recv.csv")
        across = table.filter(pl.col("devices_per_node") == 1, pl.col("size") >= VIDUR_LEAST_BYTES)
        seconds = across["time_stats.send_recv.mean"] * 1e-3
        yield f"vidur {name}", across["size"].cast(pl.Float64).to_numpy(), seconds.to_numpy(), line


def _law(size: Float64, seconds: Float64, line: float) -> Predict:
    frame = pl.DataFrame(
        {
            "path": ["cross"] * len(size),
            "bytes": size,
            "share_bytes_per_s": [line] * len(size),
            "duration_us": seconds * 1e6,
        }
    )
    law = fit_transfer(frame, min_rows=5).law
    return lambda asked: np.array([law.seconds("cross", one, line) for one in asked.tolist()])


def _bandwidth(size: Float64, seconds: Float64, _line: float) -> Predict:
    slope = float(np.sum(size / seconds) / np.sum(np.square(size / seconds)))
    return lambda asked: asked * slope


def _nominal(_size: Float64, _seconds: Float64, line: float) -> Predict:
    return lambda asked: asked / line


def _affine(size: Float64, seconds: Float64, _line: float) -> Predict:
    slope, constant = np.polyfit(size, seconds, 1)
    return lambda asked: np.maximum(constant + slope * asked, 1e-9)


def _interpolated(size: Float64, seconds: Float64, _line: float) -> Predict:
    x, at = np.unique(np.log(size), return_inverse=True)
    y = np.bincount(at, weights=np.log(seconds)) / np.bincount(at)

    def predict(asked: Float64) -> Float64:
        place = np.clip(np.searchsorted(x, np.log(asked)), 1, len(x) - 1)
        slope = (y[place] - y[place - 1]) / (x[place] - x[place - 1])
        found: Float64 = np.exp(y[place - 1] + slope * (np.log(asked) - x[place - 1]))
        return found

    return predict


METHODS: dict[str, Method] = {
    "law": _law, "bandwidth only": _bandwidth, "nominal bandwidth": _nominal, "affine, least squares": _affine,
    "log-log interpolation": _interpolated,
}  # fmt: skip


def _compared(
    name: str, protocol: str, size: Float64, seconds: Float64, line: float, fold: npt.NDArray[np.int64]
) -> list[Row]:
    """Every method on held-out folds; the law is last."""
    rows = []
    for method, fit in reversed(METHODS.items()):
        error = np.zeros(len(size))
        for held in np.unique(fold):
            out = fold == held
            error[out] = np.abs(fit(size[~out], seconds[~out], line)(size[out]) / seconds[out] - 1.0)
        figures = {"mean": float(error.mean()), "median": float(np.median(error)), "max": float(error.max())}
        rows.append(Row(name, protocol, method, figures))
    return rows


def _ours(rows: list[Row]) -> float:
    """Mean error of the law, which stands last."""
    return rows[-1].figures["mean"]


@dataclass(frozen=True, slots=True)
class Scene:
    """A pool, its load when it is fitted and when it is tested, and what of the truth must be found.

    `found`: name of a bar -> its value from the law, and the bar. `named`: ports that the law must name, no others.
    """

    name: str
    links: Links
    load: float
    higher: float
    found: dict[str, tuple[Callable[[TransferLaw], float], float]]
    named: tuple[str, ...] = ()
    resident: bool = False


def _off(true: float, value: Callable[[TransferLaw], float]) -> Callable[[TransferLaw], float]:
    return lambda law: abs(value(law) / true - 1.0)


DESCRIPTORS = Links(descriptor_s=4e-6, descriptors_per_block=8.0)
EVERYTHING = replace(
    DESCRIPTORS, port_factor={"out:p1": 0.5, "up:a>b": 0.7}, overlap_frac=0.4, last_frac=1 / 40, handshake_s=0.4,
    wire_frac=0.5, stalled_frac=0.01,
)  # fmt: skip
SCENES = (
    Scene("contention", Links(), 18, 24, {}),
    Scene("descriptors", DESCRIPTORS, 18, 24, {
        "descriptor cost off": (_off(4e-6, lambda law: law.descriptor_s), 0.10),
    }),
    Scene("descriptors posted first", replace(DESCRIPTORS, fixed_first=True), 18, 24, {
        "descriptor cost off": (_off(4e-6, lambda law: law.descriptor_s), 0.10),
    }),
    Scene("degraded egress", Links(port_factor={"out:p1": 0.5}), 12, 16, {
        "port factor off": (_off(0.5, lambda law: law.port("out:p1")), 0.05),
    }, ("out:p1",)),
    Scene("degraded uplink", Links(port_factor={"up:a>b": 0.6}), 18, 24, {
        "port factor off": (_off(0.6, lambda law: law.port("up:a>b")), 0.05),
    }, ("up:a>b",)),
    Scene("overlap", Links(overlap_frac=0.7, last_frac=1 / 40), 18, 24, {
        "overlapped part off": (lambda law: abs(law.overlap_frac - 0.7), 0.05),
    }),
    Scene("compressed, first of a pair", Links(handshake_s=0.4, wire_frac=0.5), 26, 33, {
        "bytes on the wire off": (_off(0.5, lambda law: law.wire_frac), 0.02),
        "handshake off": (_off(0.4, lambda law: law.handshake_s), 0.15),
    }, resident=True),
    Scene("everything", EVERYTHING, 26, 33, {
        "descriptor cost off": (_off(4e-6, lambda law: law.descriptor_s), 0.10),
        "egress factor off": (_off(0.5, lambda law: law.port("out:p1")), 0.05),
    }, ("out:p1", "up:a>b"), resident=True),
)  # fmt: skip


def _links(scene: Scene) -> tuple[list[Row], list[Bar]]:
    """Fit on one traffic, replay another one at a higher load."""
    seen = emulated_links.prompts(1, PROMPTS, per_second=scene.load, resident=scene.resident)
    table = _table(seen, emulated_links.run(scene.links, seen, 7))
    law = fit_transfer(table).law
    others = {
        "no descriptors": fit_transfer(table.drop("descriptors")).law,
        "ports as they are rated": fit_transfer(table.drop(FLOW_COLUMNS[:2])).law,
    }
    asked = emulated_links.prompts(2, PROMPTS, per_second=scene.higher, resident=scene.resident)
    true = _exposed(replace(scene.links, noise=0.0, stalled_frac=0.0), asked)
    protocol = "unseen traffic, higher load"
    name = f"links: {scene.name}"
    rows = [Row(name, protocol, "no contention", _errors(_alone(table, asked), true))]
    rows += [
        Row(name, protocol, method, _errors(_exposed(Links.of_law(other), asked), true))
        for method, other in others.items()
    ]
    ours = _errors(_exposed(Links.of_law(law), asked), true)
    scores = score_transfers(law, _table(asked, emulated_links.run(scene.links, asked, 8)))
    count = sum(score.error.count for score in scores)
    covered = sum(score.covered[2] * score.error.count for score in scores) / count
    rows.append(Row(name, protocol, "law", ours | {"within p95": covered}))
    bars = [
        Bar(f"{name}, seconds, median error", ours["median"], 0.05),
        Bar(f"{name}, seconds, 90th percentile of errors", ours["p90"], 0.12),
        Bar(f"{name}, share within the 95 % tail off", abs(covered - 0.95), 0.02),
        Bar(f"{name}, ports named amiss", float(len(set(law.port_factor) ^ set(scene.named))), 0.0),
    ]
    bars += [Bar(f"{name}, {what}", value(law), bar) for what, (value, bar) in scene.found.items()]
    return rows, bars


def _table(asked: Prompts, times: emulated_links.Times) -> pl.DataFrame:
    return transfers(
        emulated_links.log(asked, times),
        FACTS,
        UPLINKS,
        kv_bytes_per_token=KV_BYTES_PER_TOKEN,
        block_tokens=BLOCK_TOKENS,
    )


def _exposed(links: Links, asked: Prompts) -> Float64:
    """Seconds from the end of the prompt's compute until its KV is visible."""
    times = emulated_links.run(links, asked)
    return np.maximum(times.visible_s - asked.computed_s, 1e-6)


def _alone(table: pl.DataFrame, asked: Prompts) -> Float64:
    """A law that takes every transfer to be alone, by its formula."""
    law = fit_transfer(table.drop(FLOW_COLUMNS[:2]).with_columns(share_bytes_per_s=pl.col("alone_bytes_per_s"))).law
    rack = {node: facts[0] for node, facts in FACTS.items()}
    lacking = (asked.tokens - asked.resident).astype(np.float64)
    found = []
    for p, d, tokens, compute in zip(
        asked.prefill.tolist(), asked.decode.tolist(), lacking.tolist(), asked.compute_s.tolist(), strict=True
    ):
        path = "local" if rack[f"p{p}"] == rack[f"d{d}"] else "cross"
        blocks = -(-tokens // BLOCK_TOKENS)
        found.append(law.exposed_s(path, tokens * KV_BYTES_PER_TOKEN, 12.5e9, compute, blocks))
    return np.array(found)


def _errors(predicted: Float64, true: Float64) -> dict[str, float]:
    error = predicted / true - 1.0
    size = np.abs(error)
    return {
        "median": float(np.median(size)), "p90": float(np.quantile(size, 0.9)), "signed": float(np.median(error)),
    }  # fmt: skip


def _caches() -> tuple[list[Row], list[Bar]]:
    """Caches of known capacity and age: found from one log, replayed on the next one."""
    rows: list[Row] = []
    bars: list[Bar] = []
    for name, capacity, ttl_s in (
        ("capacity", 8_000, None), ("capacity and age", 20_000, 240.0), ("age", 10_000_000, 240.0),
    ):  # fmt: skip
        ttl_us = float("inf") if ttl_s is None else ttl_s * 1e6
        tables = [
            emulated_caches.log(
                emulated_caches.prompts(seed, 6_000, per_second=rate),
                emulated_caches.Cache(capacity, ttl_us, OrderedDict()),
                lost_frac=0.01,
                seed=seed,
            )
            for seed, rate in ((1, 3.0), (2, 4.0))
        ]
        law = fit_cache(tables[0]).law
        (score,) = score_cache(law, tables[1])
        found = law["p0"]
        figures = {"tokens off": abs(score.error_frac), "by prompt off": score.off_frac}
        rows.append(Row(f"cache: {name}", "next log", "law", figures))
        bars.append(Bar(f"cache: {name}, replayed cached tokens off", abs(score.error_frac), 0.02))
        if name != "age":
            bars.append(Bar(f"cache: {name}, capacity off", abs(found.capacity_blocks / capacity - 1.0), 0.05))
        if ttl_s is not None:
            off = abs(found.ttl_s / ttl_s - 1.0) if found.ttl_s is not None else float("nan")
            bars.append(Bar(f"cache: {name}, age off", off, 0.10))
        elif found.ttl_s is not None:
            bars.append(Bar(f"cache: {name}, an age where there is none", 1.0, 0.0))
    return rows, bars
