"""From what stands in routecal.toml to the frozen settings: units, defaults that depend on others, common rules."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from features.errors import RoutecalError, SettingsError
from features.kv import KvGeometry
from features.naming import DEFAULT_CLASS, Alias, ClassRule, NodeNames
from models.gpus import GPUS, gpu, type_name
from pipelines.settings import (
    Break,
    GateSettings,
    Keys,
    Pool,
    PoolNode,
    PoolUplink,
    SearchSettings,
    Settings,
    Source,
    Span,
    Storage,
)
from pipelines.settings_file import ClassFile, PoolFile, SettingsFile, as_us
from pipelines.settings_pool_file import BYTES, EngineFile, KvFile, RouterFile
from pipelines.settings_refused import refuse
from pipelines.settings_rules import check_pool, covers_every_prompt
from policies.evidence.fidelity import FidelityLimits
from policies.evidence.sweep import SweepPlan
from policies.families.registry import SIMPLE, moment_of, params_row
from policies.objective import ClassTarget, Goal
from policies.policy import DEFAULT_WEIGHTS, ClassPolicy, Policy
from policies.search.search import Budget
from policies.twin.cluster import Discipline, RouterSetup
from policies.twin.profiles import PROFILES

NS_PER_MS = 1_000_000
_RULES = {field.name for field in fields(Discipline)}
DEFAULT_TARGETS = ClassFile(ttft_target_ms=2000.0, tpot_target_ms=50.0)
"""Targets of the class `default` where the settings describe none; they are printed."""


def build(file: SettingsFile, *, base: Path, place: str) -> Settings:
    """Checked settings; relative paths start at `base`. SettingsError for a rule across keys."""
    notices: list[str] = []
    pools = {name: build_pool(name, pool, place, notices) for name, pool in file.pools.items()}
    runs = base / file.storage.runs
    return Settings(
        base=base,
        storage=Storage(
            lake=base / file.storage.lake,
            store=base / file.storage.store,
            runs=runs,
            mlflow_uri=file.storage.mlflow_uri or f"sqlite:///{runs / 'mlflow.db'}",
        ),
        keys=Keys(
            private_key=base / file.keys.private_key if file.keys.private_key else None,
            trusted_keys=tuple(base / key for key in file.keys.trusted_keys),
        ),
        hour_utc=file.schedule.hour_utc,
        minute=file.schedule.minute,
        pools=pools,
        notices=tuple(notices),
    )


def build_pool(name: str, file: PoolFile, place: str, notices: list[str]) -> Pool:
    """One pool, checked; `notices` gets what was filled in. SettingsError for a rule across keys."""
    refuse(name, file, place)
    check_pool(name, file, place)
    classes = _classes(name, file, notices)
    unknown = sorted({nodes.gpu for nodes in file.nodes if nodes.gpu is not None and gpu(nodes.gpu) is None})
    if unknown:
        notices.append(
            f"pools.{name}: no data sheet of GPU {', '.join(unknown)}: until its nodes are measured they count as fast "
            f"as the others. Known: {', '.join(sorted(GPUS))}"
        )
    try:
        return _checked_pool(name, file, classes)
    except RoutecalError as error:  # a rule of the package that will use the values
        at = f"{place}: pools.{name}" + (f", {error.place}" if error.place else "")
        raise SettingsError(error.rule, value=error.value, place=at, hint=error.hint) from error


def _discipline(engine: EngineFile) -> Discipline:
    """The profile's rules with the fields that the file gives."""
    rules = Discipline() if engine.profile is None else PROFILES[engine.profile]
    given = {name: getattr(engine, name) for name in engine.model_fields_set & _RULES}
    if "order" in engine.model_fields_set:
        given["queue_order"] = engine.order
    return replace(rules, **given)


def _routers(router: RouterFile) -> RouterSetup:
    return RouterSetup(
        count=router.count,
        loss_frac=router.loss_frac,
        correct_age=router.correct_age,
        cache_loss_frac=router.cache_loss_frac,
        **{
            f"{name}_ns": round(getattr(router, f"{name}_ms") * NS_PER_MS)
            for name in ("period", "delay", "lease", "cache_period", "cache_delay")
        },
    )


def _checked_pool(name: str, file: PoolFile, classes: dict[str, ClassFile]) -> Pool:
    aliases = tuple(
        Alias(name=alias, node=entry.node, valid_from_us=as_us(entry.valid_from), valid_to_us=as_us(entry.valid_to))
        for entry in file.aliases
        for alias in entry.names
    )
    NodeNames(aliases)  # raises for a name that means two nodes at one time
    return Pool(
        name=name,
        model=file.model,
        kv=_geometry(file.kv),
        discipline=_discipline(file.engine),
        router=_routers(file.router),
        families=file.router.families or SIMPLE,
        nodes=tuple(
            PoolNode(
                name=n,
                role=e.role,
                rack=e.rack,
                blocks=e.blocks,
                port_gbps=e.port_gbps,
                valid=Span(as_us(e.valid_from), as_us(e.valid_to)),
                kind=type_name(e.gpu, e.tensor_parallel or file.tensor_parallel),
                classes=e.classes,
            )
            for e in file.nodes
            if e.role != "colocated"
            for n in e.names
        ),
        uplinks=tuple(
            PoolUplink(u.from_rack, u.to_rack, u.gbps, Span(as_us(u.valid_from), as_us(u.valid_to)))
            for u in file.uplinks
        ),
        aliases=aliases,
        breaks=tuple(sorted((Break(as_us(b.at) or 0, b.reason) for b in file.breaks), key=lambda b: b.at_us)),
        class_rules=tuple(ClassRule(**rule.model_dump()) for rule in file.class_rules),
        classes=tuple(_class_policy(label, each) for label, each in classes.items()),
        goal=Goal(
            tuple(
                ClassTarget(
                    label,
                    _seconds(each.ttft_target_ms),
                    _seconds(each.tpot_target_ms),
                    each.weight,
                    _seconds(each.deadline_ms),
                    each.tokens_per_s,
                )
                for label, each in classes.items()
            )
        ),
        incumbent=_incumbent(file, classes),
        sources=tuple(Source(s.paths, s.format, as_us(s.starts_at)) for s in file.sources),
        tensor_parallel=file.tensor_parallel,
        history_days=file.history_days,
        warm_up_s=file.warm_up_s,
        search=_search(file),
        gates=GateSettings(
            alpha=file.gates.alpha,
            margin=file.gates.margin,
            drill_margin=file.gates.drill_margin,
            resamples=file.gates.resamples,
            refits=file.gates.refits,
            waivers=file.gates.waive,
            fidelity=FidelityLimits(**file.gates.fidelity.model_dump()),
            sweep=SweepPlan(level=file.gates.carried_at),
        ),
        decode_chosen=file.engine.decode_chosen,
        priority={label: each.priority for label, each in classes.items()},
    )


def _geometry(kv: KvFile) -> KvGeometry:
    size = BYTES[kv.dtype]
    if kv.attention == "mla":
        return KvGeometry.mla(
            layers=kv.layers,
            kv_lora_rank=kv.kv_lora_rank or 0,
            rope_dim=kv.rope_dim or 0,
            bytes_per_element=size,
            block_tokens=kv.block_tokens,
        )
    return KvGeometry.gqa(
        layers=kv.layers,
        kv_heads=kv.kv_heads or 0,
        head_dim=kv.head_dim or 0,
        bytes_per_element=size,
        block_tokens=kv.block_tokens,
    )


def _classes(name: str, file: PoolFile, notices: list[str]) -> dict[str, ClassFile]:
    """The classes in the order of the file; `default` is added where requests may be left without a class."""
    classes = dict(file.classes)
    if DEFAULT_CLASS not in classes and not covers_every_prompt(file.class_rules):
        classes[DEFAULT_CLASS] = DEFAULT_TARGETS
        who = "requests that meet no class rule" if file.class_rules else "no class rules: all requests"
        notices.append(
            f"pool {name}: {who} are of class `{DEFAULT_CLASS}`, TTFT <= {DEFAULT_TARGETS.ttft_target_ms:.0f} ms, "
            f"TPOT <= {DEFAULT_TARGETS.tpot_target_ms:.0f} ms; set [pools.{name}.classes.{DEFAULT_CLASS}] to change it"
        )
    return classes


def _class_policy(name: str, file: ClassFile) -> ClassPolicy:
    return ClassPolicy(
        name=name,
        objective=file.objective,
        ttft_target_s=_seconds(file.ttft_target_ms),
        tpot_target_s=_seconds(file.tpot_target_ms),
        quantile=file.quantile,
        reserve_blocks=file.reserve_blocks,
    )


def _incumbent(file: PoolFile, classes: dict[str, ClassFile]) -> Policy:
    numbers = file.incumbent.model_dump(exclude={"weights", "params"})
    if "decode_moment" not in file.incumbent.model_fields_set:
        numbers["decode_moment"] = file.engine.decode_chosen or moment_of(file.incumbent.family)
    weights = file.incumbent.weights or DEFAULT_WEIGHTS
    family, given = file.incumbent.family, file.incumbent.params
    params = () if given is None else params_row(family, given)
    described = [_class_policy(label, each) for label, each in classes.items()]
    return Policy(
        classes=tuple(
            ClassPolicy(c.name, c.objective, c.ttft_target_s, c.tpot_target_s, weights, c.quantile, c.reserve_blocks)
            for c in described
        ),
        params=params,
        **numbers,
    )


def _search(file: PoolFile) -> SearchSettings:
    search = file.search
    budget = Budget(search.trials, search.batch, search.patience, search.min_gain, search.startup, search.class_loss)
    return SearchSettings(budget, search.loads, search.workers, search.seed)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
