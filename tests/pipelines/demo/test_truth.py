"""The emulated pool's truth: outside of what is fitted, yet recovered from its logs on traffic that was kept back."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from features.ingest import ingest
from features.ingest_report import IngestReport
from features.kv import bytes_per_s
from features.lake import Lake
from features.tables import decode_steps, length_table, prefill_steps
from features.transfers import transfers
from models.fit import TrainTables, fit_estimators
from models.length.scores import score_length
from models.portable.estimators import Estimators
from models.steps.fit import fit_decode, fit_prefill
from pipelines.demo.logs import write_logs
from pipelines.demo.run import shared_transfers
from pipelines.demo.serve import Served, emulated_traffic, serve
from pipelines.demo.truth import decode_recovery, prefill_recovery, transfer_recovery
from pipelines.demo.workspace import Workspace, prepare
from pipelines.demo.world import World, load_world

TRAIN_DAYS = 2


@dataclass(frozen=True)
class Emulation:
    """Two days that were logged and one that was kept back."""

    workspace: Workspace
    served: Served
    kept_back: Served
    reports: tuple[IngestReport, ...]
    tables: TrainTables
    held_out: TrainTables


def world_of(workspace: Workspace, days: int) -> World:
    """The demo's world with fewer days."""
    world = load_world(workspace.world_path)
    return World(world.file.model_copy(update={"days": days, "window_s": 400}), world.laws, world.noise)


def logged_tables(served: Served, workspace: Workspace, folder: Path) -> tuple[TrainTables, tuple[IngestReport, ...]]:
    """Training tables of what was served, through logs, readers and the lake."""
    pool = workspace.settings.pool(workspace.pool)
    lake = Lake(folder / "lake")
    reports = tuple(
        ingest([path], format="auto", pool=pool.name, lake=lake, class_rules=pool.class_rules)
        for path in write_logs(served, pool, folder / "logs")
    )
    facts = {n.name: (n.rack, bytes_per_s(n.port_gbps)) for n in pool.nodes}
    uplinks = {(u.from_rack, u.to_rack): bytes_per_s(u.gbps) for u in pool.uplinks}
    requests = [lake.read("requests", day, pool.name) for day in served.days]
    loads = [lake.read("node_loads", day, pool.name) for day in served.days]
    tables = TrainTables(
        lengths=pl.concat([length_table(r) for r in requests]),
        prefill_steps=pl.concat([prefill_steps(r, pool.discipline.chunk_tokens) for r in requests]),
        decode_steps=pl.concat([decode_steps(n) for n in loads]),
        transfers=pl.concat([transfers(r, facts, uplinks) for r in requests]),
        capacity_tokens=1536 * 512.0,
    )
    return tables, reports


@pytest.fixture(scope="module")
def emulation(tmp_path_factory: pytest.TempPathFactory) -> Emulation:
    folder = tmp_path_factory.mktemp("emulation")
    workspace = prepare("demo", root=folder)
    pool = workspace.settings.pool(workspace.pool)
    world = world_of(workspace, TRAIN_DAYS + 1)
    traffic = emulated_traffic(world, pool.kv.block_tokens)
    served = serve(world, pool, traffic[:TRAIN_DAYS])
    kept_back = serve(world, pool, traffic[TRAIN_DAYS:])
    tables, reports = logged_tables(served, workspace, folder / "train")
    held_out, _ = logged_tables(kept_back, workspace, folder / "held-out")
    return Emulation(workspace, served, kept_back, reports, tables, held_out)


@pytest.fixture(scope="module")
def fitted(emulation: Emulation) -> Estimators:
    return fit_estimators(emulation.tables, seed=1)[0]


def test_truth_lies_outside_the_fitted_families(emulation: Emulation) -> None:
    truth = emulation.served.world.file.truth
    for law in (truth.prefill, truth.decode):
        assert max(law.node_factor.values()) >= 1.25
        kinks = [b / a for a, b in zip(law.bucket_factor, law.bucket_factor[1:], strict=False)]
        assert all(abs(np.log(k)) >= np.log(1.05) for k in kinks)
    for values in (emulation.served.world.noise.prefill, emulation.served.world.noise.decode):
        assert np.log(values).std() >= 0.08 - 1e-4
        assert values.mean() == pytest.approx(1.0)
    assert shared_transfers(emulation.served) >= 0.2


def test_logs_enter_like_anyones(emulation: Emulation) -> None:
    formats = {report.format for report in emulation.reports}
    assert formats == {"routecal-requests", "routecal-decisions", "sglang-loads"}
    for report in emulation.reports:
        assert report.read == report.accepted > 0
    accepted = sum(r.accepted for r in emulation.reports if r.format == "routecal-requests")
    assert accepted == emulation.served.workload.requests


def test_steps_and_transfers_are_recovered(emulation: Emulation, fitted: Estimators) -> None:
    for recovery in (
        prefill_recovery(emulation.kept_back, fitted),
        decode_recovery(emulation.kept_back, fitted),
        transfer_recovery(emulation.kept_back, fitted, emulation.held_out.transfers),
    ):
        assert recovery.cells >= 20
        assert recovery.median_abs <= 0.05
        assert recovery.p90_abs <= 0.15
        assert abs(recovery.median_signed) <= 0.02


def test_without_node_effects_the_bar_is_missed(emulation: Emulation, fitted: Estimators) -> None:
    blind = Estimators(
        length=fitted.length,
        prefill=fit_prefill(emulation.tables.prefill_steps, node_effects=False).laws,
        decode=fit_decode(emulation.tables.decode_steps, capacity_tokens=1536 * 512.0, node_effects=False).laws,
        transfer=fitted.transfer,
    )
    for recovery in (prefill_recovery(emulation.kept_back, blind), decode_recovery(emulation.kept_back, blind)):
        assert recovery.p90_abs > 0.15


def test_lengths_are_covered(emulation: Emulation, fitted: Estimators) -> None:
    for score in score_length(fitted.length, emulation.held_out.lengths):
        if score.level != 0.9 or score.rows < 100:
            continue
        allowed = max(0.03, 3 * (0.9 * 0.1 / score.rows) ** 0.5)
        assert abs(score.coverage.covered_frac - 0.9) <= allowed, score
