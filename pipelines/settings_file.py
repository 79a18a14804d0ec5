"""routecal.toml as it is written: every key with its unit, bounds and default. `pipelines.settings` is what code uses.

The docstrings and descriptions here become data/schemas/settings.json.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from pipelines.settings_pool_file import (
    DAY_MS,
    INT32,
    EngineFile,
    KvFile,
    NodesFile,
    RouterFile,
    Strict,
    UplinkFile,
    When,
)

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Frac = Annotated[float, Field(gt=0, lt=1)]


class StorageFile(Strict):
    """Where things are kept. Relative paths start at the folder of routecal.toml."""

    lake: str = Field("data/lake", description="folder of the Parquet lake")
    store: str = Field("data/store", description="folder of the policy store")
    runs: str = Field("data/runs", description="folder of MLflow's database and artifacts, search journals and reports")
    mlflow_uri: str | None = Field(None, description="an MLflow server; none = a SQLite file in `runs`")


class KeysFile(Strict):
    """Ed25519 keys in PEM files. A key never stands in this file."""

    private_key: str | None = Field(None, description="path of the key that signs policies")
    trusted_keys: tuple[str, ...] = Field((), description="paths of public keys whose signatures count")


class ScheduleFile(Strict):
    """When the night runs, UTC. Yesterday's logs must be there by then."""

    hour_utc: int = Field(3, ge=0, le=23)
    minute: int = Field(10, ge=0, le=59)


class ClassRuleFile(Strict):
    """Class of a request whose log names none: the first rule whose conditions all hold (none: every request)."""

    name: Name = Field(description="the SLO class")
    min_prompt_tokens: int | None = Field(None, ge=0, description="inclusive")
    max_prompt_tokens: int | None = Field(None, ge=1, description="exclusive")
    priority: int | None = None
    tenant: str | None = None
    app: str | None = None
    model: str | None = None
    header: tuple[str, str] | None = Field(None, description="[name, value] of a captured request header")


class ClassFile(Strict):
    """One SLO class. A target that is left out does not count."""

    objective: Literal["slo_goodput", "deadline", "token_throughput"] = Field(
        "slo_goodput",
        description="what a request must meet: TTFT and TPOT, a deadline, or an output rate (worth its tokens)",
    )
    deadline_ms: float | None = Field(None, gt=0, le=DAY_MS, description="from arrival to the last token")
    tokens_per_s: float | None = Field(None, gt=0, description="output tokens over that time at least")
    ttft_target_ms: float | None = Field(None, gt=0, le=DAY_MS)
    tpot_target_ms: float | None = Field(None, gt=0, le=DAY_MS)
    weight: float = Field(1.0, gt=0, description="what a request of this class is worth")
    quantile: Frac = Field(0.9, description="level of the output length that is booked")
    reserve_blocks: float = Field(0.0, ge=0, description="blocks of D that stay free; the search moves a multiplier")
    priority: int = Field(0, ge=0, le=INT32, description="lower first, where engines queue by priority")


class SourceFile(Strict):
    """Logs that the night ingests."""

    paths: tuple[str, ...] = Field(min_length=1, description="files, folders or patterns; {day} is the UTC day")
    format: Name = Field("auto", description="a reader's name, or `auto`")
    starts_at: AwareDatetime | None = Field(None, description="start of traces whose clock is relative")


class AliasFile(Strict):
    """Names that logs use for one node: URLs, instance labels, pod names, worker ids."""

    node: str = Field(min_length=1, description="a node, or a worker (then ranks carry over)")
    names: tuple[str, ...] = Field(min_length=1)
    valid_from: When | None = None
    valid_to: When | None = Field(None, description="exclusive")


class BreakFile(Strict):
    """History does not reach across this moment: a new model build, engine version or topology."""

    at: When
    reason: str = Field(min_length=1)


class IncumbentFile(Strict):
    """The router algorithm that runs now, with its parameters: what a new policy must beat."""

    family: Name
    same_rack: Literal["none", "prefill_first", "decode_first"] = "none"
    when_full: Literal["queue", "reject"] = "queue"
    unknown: Literal["worst", "exclude"] = "worst"
    weights: tuple[float, ...] | None = Field(
        None, description="w1..w9 of the family `routecal`, or the first seven; none = the default policy's"
    )
    params: dict[str, float | bool | str] | None = Field(
        None, description="the family's own parameters, all of them; none = its defaults (`routecal policy import`)"
    )
    high_water: Frac = 0.85
    horizon_s: float = Field(30.0, gt=0)
    wait_cap_s: float = Field(30.0, gt=0)
    release_floor: float = Field(1.0, gt=0, description="blocks/s")
    temperature_p_s: float = Field(0.0, ge=0)
    temperature_d_s: float = Field(0.0, ge=0)
    decode_moment: Literal["arrival", "decode_first", "handoff", "recheck"] = "arrival"
    draws_p: int = Field(0, ge=0, description="0 = all")
    draws_d: int = Field(0, ge=0)
    hysteresis_s: float = Field(0.0, ge=0)
    dwell_s: float = Field(0.0, ge=0)
    half_life_s: float = Field(0.0, ge=0, description="of sampled rates; 0 = the last ones alone")


class SearchFile(Strict):
    """Budget of the weight search."""

    trials: int = Field(96, ge=1, le=100_000)
    batch: int = Field(8, ge=1, le=10_000)
    patience: int = Field(4, ge=1, description="batches without gain before it stops")
    min_gain: float = Field(0.0005, ge=0, description="goodput, as a fraction")
    startup: int = Field(16, ge=1, description="start points and random trials before the model of the search steers")
    class_loss: float | None = Field(
        0.02,
        ge=0,
        lt=1,
        description="goodput that a class may lose against the incumbent on the train days, as a fraction",
    )
    loads: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (1.0, 1.1), min_length=1, description="factors on the arrival rate that every trial is replayed at"
    )
    workers: int = Field(2, ge=1, le=1024, description="processes")
    seed: int = Field(1, ge=0)


class FidelityFile(Strict):
    """Largest accepted differences between the log and the twin, under forced placement and under the policy in force,
    as fractions.
    """

    ttft_p50: float = Field(0.10, gt=0)
    ttft_p99: float = Field(0.20, gt=0)
    tpot_p50: float = Field(0.05, gt=0)
    tpot_p99: float = Field(0.10, gt=0)
    hit_share: float = Field(0.03, gt=0)
    min_requests: int = Field(500, ge=1, description="a class with fewer in the log is not judged")
    replays: int = Field(
        5, ge=1, le=1000, description="of the policy in force, with seeds of their own, taken together"
    )


class GatesFile(Strict):
    """What a policy must pass before it is published."""

    alpha: float = Field(0.025, gt=0, lt=0.5, description="chance of a false `better`")
    margin: float = Field(0.005, ge=0, lt=1, description="least gain in goodput that is a finding, as a fraction")
    drill_margin: float = Field(0.02, ge=0, lt=1, description="loss in goodput that a drill forgives, as a fraction")
    resamples: int = Field(4000, ge=200, le=1_000_000, description="draws of the paired block bootstrap")
    refits: int = Field(
        8,
        ge=0,
        le=1000,
        description="bootstrap refits of the estimators that a gain must survive; under 8 = not judged",
    )
    carried_at: Frac = Field(0.9, description="goodput at which the load carried is read")
    waive: tuple[str, ...] = Field(
        (), description="gates that may stay unrun or undecided; it stands in the policy file"
    )
    fidelity: FidelityFile = FidelityFile()


class PoolFile(Strict):
    """One model served by one P/D fleet behind one kind of router."""

    model: str = Field(min_length=1)
    kv: KvFile
    engine: EngineFile = EngineFile()
    router: RouterFile = RouterFile()
    incumbent: IncumbentFile
    nodes: tuple[NodesFile, ...] = Field(min_length=2)
    uplinks: tuple[UplinkFile, ...] = ()
    aliases: tuple[AliasFile, ...] = ()
    breaks: tuple[BreakFile, ...] = ()
    class_rules: tuple[ClassRuleFile, ...] = ()
    classes: dict[Name, ClassFile] = Field(default_factory=dict)
    sources: tuple[SourceFile, ...] = ()
    tensor_parallel: int | None = Field(
        None, strict=True, ge=1, le=1024, description="ranks that share a node's KV; lets ingest find bytes of one rank"
    )
    history_days: int = Field(14, ge=1, description="days that a night uses: test day, validation days, train days")
    warm_up_s: float = Field(
        3600.0, ge=0, description="traffic before a replayed window that fills its queues and caches and does not count"
    )
    search: SearchFile = SearchFile()
    gates: GatesFile = GatesFile()


class SettingsFile(Strict):
    """routecal.toml."""

    schema_version: Literal[1]
    storage: StorageFile = StorageFile()
    keys: KeysFile = KeysFile()
    schedule: ScheduleFile = ScheduleFile()
    pools: dict[Name, PoolFile] = Field(min_length=1)


def as_us(when: datetime | date | None) -> int | None:
    """Unix microseconds of a moment; a date is its midnight, UTC."""
    if when is None:
        return None
    if isinstance(when, datetime):
        seconds, micro = divmod(when.timestamp() * 1_000_000, 1_000_000)
        return int(seconds) * 1_000_000 + int(micro)
    return (when - date(1970, 1, 1)).days * 86_400_000_000
