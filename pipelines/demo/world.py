"""The emulated pool's own truth, which routecal never sees: its laws, its noise, its traffic. Read from data/demo."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from features.errors import SettingsError
from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, StepLaws, one_type
from models.portable.transfer import TransferLaw
from models.portable.trees import table_of
from policies.lengths import constant_length
from policies.twin.outcomes import Noise
from policies.twin.traffic import App, TrafficSpec

NOISE_VALUES = 4096


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Law(_Strict):
    coef: tuple[float, float, float, float]
    node_factor: dict[str, float] = {}
    bucket_edges: tuple[int, ...] = ()
    bucket_factor: tuple[float, ...] = (1.0,)
    token_cap: float | None = None


class _Truth(_Strict):
    prefill: _Law
    decode: _Law
    alpha_s: dict[str, float]
    efficiency: dict[str, float]
    step_sigma: float = Field(ge=0)
    transfer_sigma: float = Field(ge=0)


class _App(_Strict):
    name: str
    share: float = Field(gt=0)
    prefix_blocks: int = Field(ge=0)
    prompt_median: float = Field(gt=0)
    prompt_sigma: float = Field(ge=0)
    output_median: float = Field(gt=0)
    output_sigma: float = Field(ge=0)
    turns_mean: float = Field(ge=1)
    think_s: float = Field(ge=0)


class _Traffic(_Strict):
    rate_per_s: float = Field(gt=0)
    swing_frac: float = Field(ge=0, lt=1)
    day_swing_frac: float = Field(ge=0, lt=1)
    prompt_max_tokens: int = Field(ge=1)
    output_max_tokens: int = Field(ge=1)
    apps: tuple[_App, ...] = Field(min_length=1)


class WorldFile(_Strict):
    """data/demo/<kind>.world.toml. `traffic` is left out where a real trace is served."""

    seed: int = Field(ge=0)
    days: int = Field(ge=1)
    first_day: date
    window_start_s: int = Field(ge=0, lt=86_400, description="seconds after midnight UTC")
    window_s: int = Field(ge=1)
    poll_s: int = Field(1, ge=1)
    decision_sample: float = Field(ge=0, le=1, description="share of the decisions whose candidates are logged")
    output_guess_tokens: int = Field(ge=1, description="what the pool's router books for an answer")
    speed_up: float = Field(1.0, gt=0, description="arrivals of a served trace come this much faster")
    truth: _Truth
    traffic: _Traffic | None = None


@dataclass(frozen=True, slots=True)
class World:
    """An emulated pool's truth. `laws` and `noise` drive the twin; `file` holds the rest."""

    file: WorldFile
    laws: Estimators
    noise: Noise

    def traffic(self, block_tokens: int) -> TrafficSpec:
        """The traffic's parameters. Raises SettingsError if the world serves a trace."""
        spec = self.file.traffic
        if spec is None:
            raise SettingsError("a world without a trace must describe its traffic", place="[traffic]")
        share = sum(a.share for a in spec.apps)
        apps = tuple(App(**{**a.model_dump(), "share": a.share / share}) for a in spec.apps)
        return TrafficSpec(
            apps=apps,
            rate_per_s=spec.rate_per_s,
            window_s=self.file.window_s,
            swing_frac=spec.swing_frac,
            day_swing_frac=spec.day_swing_frac,
            prompt_max_tokens=spec.prompt_max_tokens,
            output_max_tokens=spec.output_max_tokens,
            block_tokens=block_tokens,
        )


def load_world(path: Path) -> World:
    """The world of a file. Raises SettingsError with the key and the rule."""
    try:
        file = WorldFile.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SettingsError("a world file must be readable TOML", value=str(error), place=path.name) from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise SettingsError(first["msg"], value=first["input"], place=f"{path.name}: {key}") from error
    truth = file.truth
    laws = Estimators(
        # The true pool has no idea of lengths; its router books a constant (`output_guess_tokens`).
        length=constant_length(float(file.output_guess_tokens)),
        prefill=_laws(truth.prefill, (*truth.prefill.coef, 0.0)),
        decode=_laws(truth.decode, truth.decode.coef),
        transfer=TransferLaw(truth.alpha_s, truth.efficiency),
    )
    steps = lognormal_values(truth.step_sigma)
    return World(file, laws, Noise(steps, steps, lognormal_values(truth.transfer_sigma)))


def lognormal_values(sigma: float) -> npt.NDArray[np.float64]:
    """4,096 equally likely values of a log-normal factor with mean 1."""
    from scipy.special import ndtri

    levels = (np.arange(NOISE_VALUES) + 0.5) / NOISE_VALUES
    values = np.exp(sigma * ndtri(levels))
    return np.asarray(values / values.mean(), np.float64)


def _laws(law: _Law, coef: tuple[float, ...]) -> StepLaws:
    """Nodes of one type; buckets are of new tokens or of sequences, the first input of either kind of step."""
    trees = table_of(0, law.bucket_edges, law.bucket_factor)
    return one_type(StepLaw(coef, trees=trees, token_cap=law.token_cap), law.node_factor)
