"""Mixed steps of llmservingsim: a level of one input left out, a GPU left out, decode batches beyond all measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.estimators.bars import Bar, Part
from benchmarks.estimators.step_baselines import affine, forest, plain_lightgbm
from benchmarks.estimators.step_data import llmservingsim
from benchmarks.estimators.step_errors import Errors, bars, error, rows
from models.metrics import BoolArray, FloatArray
from models.portable.mixed import MIXED_INPUTS
from models.portable.steps import ANY, DECODE_INPUTS, outside_text
from models.steps.fit import fit_decode
from models.steps.mixed import MixedSteps, fit_mixed, predict_mixed, scaled

GPUS = ("RTX4090", "RTXPRO6000")
OURS = "mixed law"
MOST_SEQUENCES = 256


@dataclass(frozen=True, slots=True)
class _Set:
    """Steps of one GPU, and each input as its grid has it."""

    gpu: str
    steps: MixedSteps
    levels: dict[str, FloatArray]


def measure(data: Path) -> Part:
    """Levels, the other GPU, and what is said of a batch that nobody measured."""
    sets = []
    for name in GPUS:
        steps, kv_each = llmservingsim(data, name)
        levels = {"chunk": steps.chunk, "n_decode": steps.sequences, "kv_decode": kv_each}
        sets.append(_Set(name, steps, levels | {"kv_prefill": steps.kv_prefill}))
    found, demands = [], []
    for one in sets:
        for name, level in one.levels.items():
            errors = _levels_left_out(one.steps, level)
            found += rows(f"llmservingsim {one.gpu}", f"level of {name} left out", errors)
            demands += bars(f"llmservingsim {one.gpu}, interior level of {name} left out", errors[OURS], 3.0, 20.0)
    for new, known in ((sets[0], sets[1]), (sets[1], sets[0])):
        law = scaled(fit_mixed(known.steps), f"{new.gpu}/tp1".lower(), f"{known.gpu}/tp1".lower())
        zero: Errors = {OURS: [error(predict_mixed(law, new.steps), new.steps.seconds)]}
        found += rows(f"llmservingsim {new.gpu}", "GPU never measured", zero)
        demands += bars(f"llmservingsim, {new.gpu} never measured", zero[OURS], 15.0)
    for one in sets:
        errors, said = _beyond(one.steps)
        found += rows(f"llmservingsim {one.gpu}", f"n_decode {MOST_SEQUENCES} left out", errors)
        demands += said_bars(one.gpu, said)
    return Part("llmservingsim", tuple(found), tuple(demands))


def said_bars(gpu: str, said: dict[str, float]) -> list[Bar]:
    """Of `said`: form -> share of right answers to whether an estimate is extrapolated."""
    name = f"llmservingsim {gpu}, n_decode {MOST_SEQUENCES} left out"
    return [
        Bar(f"{name}: {form} says so there and nowhere else, share", share, 1.0, "at least")
        for form, share in said.items()
    ]


def _levels_left_out(steps: MixedSteps, level: FloatArray) -> Errors:
    errors: Errors = {}
    values = np.unique(level[level > 0])
    for value in values[1:-1]:
        out = level == value
        for method, piece in _errors(steps, out).items():
            errors.setdefault(method, []).append(piece)
    return errors


def _errors(steps: MixedSteps, out: BoolArray) -> dict[str, FloatArray]:
    train, test = steps.take(~out), steps.take(out)
    x, at = train.inputs(), test.inputs()

    def work(part: MixedSteps) -> FloatArray:
        """What an affine law has: tokens, arithmetic of attention, KV that is read."""
        attention = part.chunk * (part.kv_prefill + part.chunk / 2.0)
        return np.stack([part.chunk + part.sequences, attention, part.kv_prefill + part.kv_decode], axis=1)

    group, group_at = np.zeros(train.seconds.size), np.zeros(test.seconds.size)
    predicted = {
        OURS: predict_mixed(fit_mixed(train), test),
        "mixed law, no trees": predict_mixed(fit_mixed(train, trees=False), test),
        "affine": affine(work(train), train.seconds, work(test), group, group_at),
        "LightGBM": plain_lightgbm(x, train.seconds, at),
        "random forest": forest(x, train.seconds, at),
    }
    return {method: error(seconds, test.seconds) for method, seconds in predicted.items()}


def _beyond(steps: MixedSteps) -> tuple[Errors, dict[str, float]]:
    """The largest batch left out: errors there, and the share of right answers of both forms of law."""
    out = steps.sequences == MOST_SEQUENCES
    law = fit_mixed(steps.take(~out))
    errors = {OURS: [error(predict_mixed(law, steps.take(out)), steps.seconds[out])]}
    told = np.array(
        [
            any("sequences" in text for text in outside_text("step", MIXED_INPUTS, tuple(row), law.measured))
            for row in steps.inputs()[:, :4].tolist()
        ]
    )
    pure = (steps.chunk == 0) & (steps.sequences > 0)
    frame = pl.DataFrame(
        {
            "node": ["d"] * int(pure.sum()),
            "n_steps": [1] * int(pure.sum()),
            "busy_us": steps.seconds[pure] * 1e6,
            "sequences": steps.sequences[pure],
            "tokens": steps.kv_decode[pure],
        }
    )
    decode = fit_decode(frame.filter(pl.col("sequences") < MOST_SEQUENCES)).laws.by_type[ANY]
    pairs = frame.select("sequences", "tokens").rows()
    said = [
        any("sequences" in text for text in outside_text("decode", DECODE_INPUTS, pair, decode.measured))
        for pair in pairs
    ]
    right = [text == (n == MOST_SEQUENCES) for text, (n, _) in zip(said, pairs, strict=True)]
    return errors, {"mixed law": float(np.mean(told == out)), "decode law": float(np.mean(right))}
