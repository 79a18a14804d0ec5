"""Closed loop: nights of an emulated pool that is quiet, and of one whose truth changes.

Quiet days count false alarms. For every drift: whether its first day alarms, and how far the estimates are off on that
day and on the next one, when one night has seen it. Errors are against the truth where it is known (steps, transfers),
else against the day's log (lengths with offsets that follow the answers, cached tokens).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.estimators.bars import Bar, Part, Row
from benchmarks.estimators.days import Emulation, log_day, night, prepare, serve_day
from benchmarks.estimators.offs import Offs, offs
from models.portable.cache import CacheLaw
from models.portable.transfer import egress, uplink
from pipelines.demo.world import World

QUIET_DAYS = 30
HISTORY = 6
"""Days before the first one that is judged."""
P, D, P_PORT, P_CACHE, NEW_APP = "p1/dp0", "d1/dp0", "p2/dp0", "p0/dp0", "reports"
STEP_BAR, TRANSFER_BAR, CACHE_BAR = 0.05, 0.08, 0.05


def new_app(world: World) -> World:
    """An application of its own name whose answers are three times as long as the others'."""
    assert world.file.traffic is not None
    chat = world.file.traffic.apps[0]
    # Short sessions: with long ones its prompts would fill the pool, and that is another drift.
    own = {"name": NEW_APP, "share": 0.8, "turns_mean": 4.0, "output_median": 3 * chat.output_median}
    app = chat.model_copy(update=own)
    traffic = world.file.traffic.model_copy(update={"apps": (*world.file.traffic.apps, app)})
    return replace(world, file=world.file.model_copy(update={"traffic": traffic}))


def slower_nodes(world: World) -> World:
    """One P takes 1.25 times as long, one D 1.4 times."""
    laws = world.laws
    slow = {"prefill": (P, 1.25), "decode": (D, 1.4)}
    changed = {
        kind: replace(law, node_factor={**law.node_factor, node: law.factor(node) * times})
        for kind, (node, times) in slow.items()
        for law in (getattr(laws, kind),)
    }
    return replace(world, laws=replace(laws, **changed))


def slower_port(world: World) -> World:
    """A P sends at 40 % of its port's speed."""
    return _with_port(world, egress(P_PORT))


def slower_uplink(world: World) -> World:
    """Rack a sends to rack b at 40 % of the uplink's speed."""
    return _with_port(world, uplink("a", "b"))


def half_cache(world: World) -> World:
    """A P's prefix cache holds half of the blocks; its telemetry says what it always said."""
    law = CacheLaw(capacity_blocks=512.0)
    return replace(world, laws=replace(world.laws, cache={**world.laws.cache, P_CACHE: law}))


def _with_port(world: World, port: str) -> World:
    transfer = world.laws.transfer
    law = replace(transfer, port_factor={**transfer.port_factor, port: 0.4})
    return replace(world, laws=replace(world.laws, transfer=law))


DRIFTS: Mapping[str, Callable[[World], World]] = {
    "new app": new_app,
    "slower nodes": slower_nodes,
    "slower port": slower_port,
    "slower uplink": slower_uplink,
    "half a cache": half_cache,
}


@dataclass(frozen=True, slots=True)
class Drifted:
    """A drift: alarms of its first day, and how far estimates were off on that day and on the next one."""

    alarms: tuple[str, ...]
    before: Offs
    after: Offs


def measure(_: Path, quiet_days: int = QUIET_DAYS) -> Part:
    """Quiet days and every drift."""
    rows: list[Row] = []
    bars: list[Bar] = []
    notes: list[str] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        start = history(folder / "history")
        for what, change in DRIFTS.items():
            found = drift(start.copy_to(folder / what.replace(" ", "-")), change)
            rows.append(Row("emulated", what, "on its first day", found.before.figures()))
            rows.append(Row("emulated", what, "after one night", found.after.figures()))
            bars.append(Bar(f"{what}: alarms on its first day", len(found.alarms), 1, "at least"))
            bars += recovered(what, found.after)
            notes += [f"{what}: {alarm}" for alarm in found.alarms]
        told = quiet(start, quiet_days)
        alarms = sum(len(day) for day in told)
        rows.append(Row("emulated", f"{quiet_days} quiet days", "alarms", {"alarms": alarms}))
        bars.append(Bar(f"false alarms in {quiet_days} quiet days", alarms, 1))
        notes += [f"quiet day {k}: {alarm}" for k, day in enumerate(told) for alarm in day]
    return Part("drift", tuple(rows), tuple(bars), tuple(notes))


def history(folder: Path) -> Emulation:
    """A pool with quiet days and the night of the last one."""
    start = prepare(folder)
    for k in range(HISTORY):
        log_day(start, serve_day(start, k, start.world))
    night(start, HISTORY - 1)
    return start


def quiet(emulation: Emulation, days: int) -> list[tuple[str, ...]]:
    """Alarms of each of the days after the history, judged under the estimators of the night before."""
    told = []
    for k in range(HISTORY, HISTORY + days):
        log_day(emulation, serve_day(emulation, k, emulation.world))
        told.append(tuple(alarm.sentence for alarm in night(emulation, k).alarms))
    return told


def drift(emulation: Emulation, change: Callable[[World], World]) -> Drifted:
    """Two days after the history under a changed truth, with one night between them."""
    world = change(emulation.world)
    in_force = emulation.kept.before(emulation.day(HISTORY), not_before=emulation.day(0))
    assert in_force is not None
    first = serve_day(emulation, HISTORY, world)
    log_day(emulation, first)
    before = offs(emulation, first, in_force.last.estimators)
    found = night(emulation, HISTORY)
    second = serve_day(emulation, HISTORY + 1, world)
    log_day(emulation, second)
    after = offs(emulation, second, found.fitted.estimators)
    return Drifted(tuple(alarm.sentence for alarm in found.alarms), before, after)


def recovered(name: str, after: Offs) -> list[Bar]:
    """The bars of the day after one night."""
    found = [
        Bar(f"{name}: prefill of the worst node, median", max(after.prefill.values()), STEP_BAR),
        Bar(f"{name}: decode of the worst node, median", max(after.decode.values()), STEP_BAR),
        Bar(f"{name}: transfers over the worst port, median", max(after.transfer.values()), TRANSFER_BAR),
        Bar(f"{name}: cached tokens of the worst node", max(after.cache.values(), default=math.nan), CACHE_BAR),
    ]
    # Every group has a bar of its own by its size: the worst one is that which is farthest over or nearest to its bar.
    excess = {group: abs(covered - 0.9) - allowed(rows) for group, (covered, rows) in after.coverage.items()}
    worst = max(excess, key=lambda group: excess[group])
    covered, rows = after.coverage[worst]
    return [*found, Bar(f"{name}: coverage of q0.9 off by, {worst}", abs(covered - 0.9), allowed(rows))]


def allowed(rows: int) -> float:
    """How far the coverage of the 0.9 quantile of a group may be off."""
    return 0.03 + 2.0 * math.sqrt(0.09 / rows)
