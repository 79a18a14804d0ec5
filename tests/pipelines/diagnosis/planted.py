"""Emulated pools with planted faults: served by the twin, logged in published formats, read back into a lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from features.ingest import ingest
from features.lake import Lake
from models.portable.steps import StepLaws
from pipelines.demo.logs import write_logs
from pipelines.demo.serve import emulated_traffic, serve
from pipelines.demo.workspace import TEMPLATES
from pipelines.demo.world import World, load_world
from pipelines.settings import Pool, Settings, parse_settings

POOL, DAY = "plain", date(2026, 10, 5)
WINDOW_S = 180


@dataclass(frozen=True, slots=True)
class Plant:
    """What is true of a pool, and what routecal is told of it.

    `told`: replacements in the text of data/demo/plain.toml. `truth`: further ones that only the emulator knows.
    `factors`: step time of a node over that of its peers. `traffic`: fields of the world's traffic.
    """

    told: Mapping[str, str] = field(default_factory=dict)
    truth: Mapping[str, str] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    traffic: Mapping[str, float] = field(default_factory=dict)
    window_s: int = WINDOW_S


ROUTER = 'family = "lmetric"'
PERIOD = "period_ms = 1000"
P_NODES = 'names = ["p0/dp0", "p1/dp0", "p2/dp0", "p3/dp0", "p4/dp0"]\nrole = "prefill"\nrack = "a"'
D_NODES = 'names = ["d0/dp0", "d1/dp0", "d2/dp0", "d3/dp0", "d4/dp0"]\nrole = "decode"\nrack = "a"'
D_SIZE = "blocks = 1536\nport_gbps = 200\n"
P_SIZE = "blocks = 2048\nport_gbps = 200\n"
CLASSES = '[[pools.plain.class_rules]]\nname = "interactive"'


def _node(name: str, role: str, rack: str, blocks: int, gbps: int) -> str:
    return (
        f'\n[[pools.plain.nodes]]\nnames = ["{name}"]\nrole = "{role}"\nrack = "{rack}"\n'
        f"blocks = {blocks}\nport_gbps = {gbps}\n\n"
    )


def slow_port(gbps: int) -> Mapping[str, str]:
    """D d2 receives at `gbps`; the others stay at 200."""
    rest = D_NODES.replace('"d2/dp0", ', "")
    # Nodes keep their order by name in no place that matters here.
    return {D_NODES: rest, D_SIZE: D_SIZE + _node("d2/dp0", "decode", "a", 1536, gbps)}


def racks(gbps: int) -> Mapping[str, str]:
    """p3, p4, d3, d4 stand in a second rack; both directions between the racks have `gbps`."""
    links = "".join(
        f'[[pools.plain.uplinks]]\nfrom_rack = "{a}"\nto_rack = "{b}"\ngbps = {gbps}\n\n' for a, b in ("ab", "ba")
    )
    second = {
        "prefill": '[[pools.plain.nodes]]\nnames = ["p3/dp0", "p4/dp0"]\nrole = "prefill"\nrack = "b"\n' + P_SIZE,
        "decode": '\n[[pools.plain.nodes]]\nnames = ["d3/dp0", "d4/dp0"]\nrole = "decode"\nrack = "b"\n' + D_SIZE,
    }
    return {
        P_NODES: P_NODES.replace(', "p3/dp0", "p4/dp0"', ""),
        P_SIZE: P_SIZE + "\n" + second["prefill"],
        D_NODES: D_NODES.replace(', "d3/dp0", "d4/dp0"', ""),
        D_SIZE: D_SIZE + second["decode"],
        CLASSES: links + CLASSES,
    }


PLANTS: Mapping[str, Plant] = {
    "healthy": Plant(),
    "healthy_two_routers": Plant(told={PERIOD: "count = 2\n" + PERIOD}),
    "healthy_light": Plant(traffic={"rate_per_s": 10.0}),
    "healthy_busy": Plant(traffic={"rate_per_s": 24.0}),
    "overloaded_decode": Plant(traffic={"rate_per_s": 28.0}),
    "blind_round_robin": Plant(told={ROUTER: 'family = "round_robin"'}, traffic={"rate_per_s": 12.0}),
    "healthy_racks": Plant(told=racks(1600)),
    "slow_prefill": Plant(factors={"p1/dp0": 1.5}),
    "slow_decode": Plant(factors={"d3/dp0": 1.4}),
    "congested_port": Plant(truth=slow_port(12)),
    "congested_uplink": Plant(told=racks(100)),
    "thrashing_cache": Plant(told={"blocks = 2048": "blocks = 220"}, traffic={"prompt_max_tokens": 60_000}),
    "herding_pair": Plant(told={ROUTER: 'family = "lowest_utilisation"', PERIOD: "count = 2\nperiod_ms = 5000"}),
    "undersized_decode": Plant(told={"blocks = 1536": "blocks = 420"}),
    "undersized_prefill": Plant(factors={f"p{k}/dp0": 3.8 for k in range(5)}),
}


@dataclass(frozen=True, slots=True)
class Planted:
    """A lake with one day of a planted pool, and the settings that routecal is told."""

    lake: Lake
    settings: Settings
    pool: Pool
    text: str


def edited(text: str, changes: Mapping[str, str]) -> str:
    """`text` with every replacement made; each must hold somewhere."""
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def plant(name: str, folder: Path, *, seed: int = 1) -> Planted:
    """Serve, log and ingest one planted pool below `folder`."""
    what = PLANTS[name]
    text = edited((TEMPLATES / "plain.toml").read_text("utf-8"), what.told)
    told = parse_settings(text, base=folder)
    true = parse_settings(edited(text, what.truth), base=folder).pool(POOL)
    world = world_of(what, seed)
    served = serve(world, true, emulated_traffic(world, true.kv.block_tokens))
    lake = Lake(folder / "lake")
    pool = told.pool(POOL)
    report = ingest(
        list(write_logs(served, true, folder / "logs")), format="auto", pool=POOL, lake=lake,
        class_rules=pool.class_rules,
    )  # fmt: skip
    assert report.read == report.accepted > 0, report
    return Planted(lake, told, pool, text)


def world_of(what: Plant, seed: int) -> World:
    """The world of data/demo/plain.world.toml, one short day of it, with the planted speeds and traffic."""
    world = load_world(TEMPLATES / "plain.world.toml")
    traffic = world.file.traffic
    assert traffic is not None
    file = world.file.model_copy(
        update={
            "days": 1,
            "window_s": what.window_s,
            "seed": seed,
            "traffic": traffic.model_copy(update=dict(what.traffic)),
        }
    )
    slowed: Callable[[StepLaws], StepLaws] = lambda law: replace(law, node_factor=dict(what.factors))  # noqa: E731
    laws = replace(world.laws, prefill=slowed(world.laws.prefill), decode=slowed(world.laws.decode))
    return World(file, laws, world.noise)
