"""The cluster file of `routecal replay`: a fleet, its routers and the laws of its hardware, TOML or JSON.

It is a pool of routecal.toml without what a night needs, with laws beside it. Its docstrings and descriptions become
data/schemas/cluster.json.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from features.errors import ModelError, SettingsError
from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, one_type
from models.portable.transfer import TransferLaw
from pipelines.settings import Pool
from pipelines.settings_build import build_pool
from pipelines.settings_cluster import to_cluster
from pipelines.settings_errors import validated
from pipelines.settings_file import ClassFile, ClassRuleFile, Name, PoolFile
from pipelines.settings_pool_file import EngineFile, KvFile, NodesFile, RouterFile, Strict, UplinkFile
from policies.lengths import MEDIAN, constant_length
from policies.objective import ClassTarget
from policies.policy import ClassPolicy
from policies.twin.cluster import Cluster

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_POOL = "cluster"
PathKind = Literal["local", "cross"]
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Efficiency = Annotated[float, Field(gt=0, le=1)]


class PrefillLawFile(Strict):
    """Seconds of a prefill step: coef · (1, T, T², sum of chunk·context, prompts), T = new tokens of its prompts."""

    coef: tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat]
    node_factor: dict[str, Factor] = Field(default_factory=dict, description="factor by node; 1 where none stands here")


class DecodeLawFile(Strict):
    """Seconds of a decode step: coef · (1, n, t, t²), n = running sequences, t = their context tokens."""

    coef: tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat]
    token_cap: Factor | None = Field(None, description="t counts up to here")
    node_factor: dict[str, Factor] = Field(default_factory=dict, description="factor by node; 1 where none stands here")


class TransferLawFile(Strict):
    """Seconds until KV is visible on D: alpha + descriptor_s·descriptors + bytes / (share of ports · efficiency)."""

    alpha_s: dict[PathKind, NotNegative] = Field(
        default={"local": 0.0, "cross": 0.0}, description="inside a rack, and between two"
    )
    efficiency: dict[PathKind, Efficiency] = Field(default={"local": 1.0, "cross": 1.0})
    descriptor_s: NotNegative = 0.0
    descriptors_per_block: NotNegative = 0.0
    wire_frac: Factor = Field(1.0, description="bytes sent / bytes of KV; below 1 = compressed")
    overlap_frac: Share = Field(0.0, description="part of the prompt's compute during which its KV already travels")
    last_frac: Share = Field(0.0, description="part of the bytes that cannot leave before the compute ended")
    handshake_s: NotNegative = Field(0.0, description="what the first transfer of a pair waits")


class LawsFile(Strict):
    """How long the hardware takes."""

    prefill: PrefillLawFile
    decode: DecodeLawFile
    transfer: TransferLawFile = TransferLawFile()
    output_tokens: Factor = Field(description="what a router expects of every answer; a policy file knows better")


class ClusterFile(Strict):
    """The cluster of `routecal replay --cluster`."""

    schema_version: Literal[1]
    kv: KvFile
    engine: EngineFile = EngineFile()
    router: RouterFile = RouterFile()
    nodes: tuple[NodesFile, ...] = Field(min_length=2)
    uplinks: tuple[UplinkFile, ...] = ()
    class_rules: tuple[ClassRuleFile, ...] = ()
    classes: dict[Name, ClassFile] = Field(default_factory=dict)
    laws: LawsFile | None = Field(None, description="none = those of the policy file")


@dataclass(frozen=True, slots=True)
class ReplayCluster:
    """A cluster file as the twin takes it. `pool` holds classes, targets and class rules; `laws` None = none given.

    `described`: the file describes classes of its own.
    """

    pool: Pool
    cluster: Cluster
    laws: Estimators | None
    described: bool
    notices: tuple[str, ...]

    def with_classes(self, classes: tuple[ClassPolicy, ...]) -> ReplayCluster:
        """The cluster under a policy file's classes, in their order.

        Targets stay the cluster file's own where it describes classes. Raises SettingsError if those are others.
        """
        own = {target.name: target for target in self.pool.goal.classes}
        names = [c.name for c in classes]
        if not self.described:
            own = {c.name: ClassTarget(c.name, c.ttft_target_s, c.tpot_target_s) for c in classes}
        elif set(own) != set(names):
            hint = f"the policy file has {', '.join(names)}"
            raise SettingsError("cluster file and policy file must have the same classes", value=sorted(own), hint=hint)
        goal = replace(self.pool.goal, classes=tuple(own[name] for name in names))
        return replace(self, pool=replace(self.pool, classes=classes, goal=goal))


def load_cluster(path: Path) -> ReplayCluster:
    """The cluster of a file.

    Raises SettingsError with the key, the value, the rule and a hint for the first thing that is wrong.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "data/demo/cluster.toml is a commented example"
        raise SettingsError("a cluster file must be readable", value=str(error), place=str(path), hint=hint) from error
    return parse_cluster(text, place=path.name)


def parse_cluster(text: str, *, place: str) -> ReplayCluster:
    """The cluster of a text: JSON if it begins with a brace, else TOML. Errors as `load_cluster`."""
    try:
        table = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError("a cluster file must be TOML or JSON", value=str(error), place=place) from error
    file = validated(table, place, ClusterFile)
    described = PoolFile(
        model="any",
        incumbent={"family": file.router.families[0] if file.router.families else "routecal"},
        **{key: getattr(file, key) for key in ClusterFile.model_fields if key not in ("schema_version", "laws")},
    )
    notices: list[str] = []
    try:
        pool = build_pool(_POOL, described, place, notices)
        cluster = to_cluster(pool)
    except SettingsError as error:
        at = error.place.replace(f"pools.{_POOL}.", "").replace(f"pools.{_POOL}", "").removesuffix(": ")
        at = at if at.startswith(place) else f"{place}: {at}"
        raise SettingsError(error.rule, value=error.value, place=at, hint=error.hint) from error
    told = tuple(notice.replace(f"pools.{_POOL}.", "").replace(f"pool {_POOL}: ", "") for notice in notices)
    laws = None if file.laws is None else _laws(file.laws, pool, place)
    return ReplayCluster(pool, cluster, laws, bool(file.classes), told)


def _laws(file: LawsFile, pool: Pool, place: str) -> Estimators:
    levels = sorted({MEDIAN, *(c.quantile for c in pool.classes)})
    names = {node.name for node in pool.nodes}
    for kind, law in (("prefill", file.prefill), ("decode", file.decode)):
        for node in law.node_factor:
            if node not in names:
                where = f"{place}: laws.{kind}.node_factor"
                raise SettingsError("a factor must be of a node of the cluster", value=node, place=where)
    decode = StepLaw(file.decode.coef, token_cap=file.decode.token_cap)
    try:
        return Estimators(
            length=constant_length(file.output_tokens, levels),
            prefill=one_type(StepLaw(file.prefill.coef), file.prefill.node_factor),
            decode=one_type(decode, file.decode.node_factor),
            transfer=TransferLaw(**file.transfer.model_dump()),
        )
    except ModelError as error:
        raise SettingsError(error.rule, value=error.value, place=f"{place}: laws", hint=error.hint) from error


def cluster_schema() -> Mapping[str, Any]:
    """JSON Schema of a cluster file; moments are strings, as JSON has no dates."""
    return {"$schema": DIALECT, **ClusterFile.model_json_schema(), "title": "routecal cluster file"}


def cluster_schema_text() -> str:
    """The content of data/schemas/cluster.json."""
    return json.dumps(cluster_schema(), indent=2, ensure_ascii=False) + "\n"
