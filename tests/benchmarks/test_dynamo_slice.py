"""The twin equals a pool that is not ours, stage by stage, on 2,000 self-made requests. Runs without the pool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.fidelity.fitting import fit_first_half
from benchmarks.fidelity.logs import Logged, read
from benchmarks.fidelity.scores import equal_share
from benchmarks.fidelity.twin import cluster, run_twin, true_laws
from features.ingest import ingest
from features.lake import Lake
from features.readers.lines import read_lines
from tests.benchmarks.dynamo_slice import BLOCKS, RUNS, report
from tests.benchmarks.self_made_trace import REQUESTS, trace, write

ROUTERS = tuple(RUNS)


@pytest.fixture(scope="module")
def trace_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("dynamo") / "trace.jsonl")


def logged(router: str, path: Path) -> Logged:
    return read(report(router), path, in_turn=RUNS[router].prefill if router == "round_robin" else 0)


@pytest.mark.parametrize("router", ROUTERS)
def test_the_slice_holds_what_makes_replays_hard(router: str, trace_path: Path) -> None:
    log = logged(router, trace_path)
    work = log.workload
    assert work.requests == REQUESTS
    assert np.count_nonzero(work.prompt_tokens - log.reused > 8_192) > 50  # cut into chunks
    starts = np.stack([log.prefill, log.stage_ns["prefill_admit"]], axis=1)
    assert REQUESTS - len(np.unique(starts, axis=0)) > 200  # several in a step
    assert np.count_nonzero(log.reused > 512) > 500
    assert len(np.unique(work.block_ids)) > 4 * 2 * BLOCKS  # evicted on P
    assert np.count_nonzero(work.output_tokens > 512) > 50  # grow on D
    waited = log.stage_ns["reserve"] - log.stage_ns["source_held"]
    assert np.count_nonzero(waited > 1_000_000_000) > 50  # no room on D
    counts = pl.concat([part.frame for part in read_lines(report(router), {"readmission_count": pl.Int64()})])
    assert int(counts["readmission_count"].sum()) > 10


@pytest.mark.parametrize("router", ROUTERS)
def test_every_stage_time_of_every_request_is_the_pool_s(router: str, trace_path: Path) -> None:
    log = logged(router, trace_path)
    result = run_twin(cluster(RUNS[router], BLOCKS), true_laws(BLOCKS), log, forced=True)
    assert equal_share(log, result) == dict.fromkeys([*log.stage_ns, "reused"], 1.0)


def test_round_robin_chooses_as_the_pool_does(trace_path: Path) -> None:
    log = logged("round_robin", trace_path)
    result = run_twin(cluster(RUNS["round_robin"], BLOCKS), true_laws(BLOCKS), log, forced=False)
    assert equal_share(log, result) == dict.fromkeys([*log.stage_ns, "reused"], 1.0)
    assert np.array_equal(result.decode_node, log.decode)


@pytest.mark.parametrize("router", ROUTERS)
def test_the_lake_knows_the_hashes_of_every_request(router: str, trace_path: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    told = ingest(
        report(router), format="auto", pool="p", lake=lake, starts_at_us=1_767_571_200_000_000, trace=trace_path
    )
    assert (told.format, told.accepted, told.quarantined) == ("dynamo-replay", REQUESTS, 0)
    assert set(told.told) <= {"one of several alike in the trace"}
    (day,) = lake.days("requests", "p")
    rows = pl.read_parquet(lake.path("requests", day, "p")).sort("request_id")
    hashes = [row["hash_ids"][: row["input_length"] // 512] for row in trace()]  # type: ignore[index, operator]
    if router == "round_robin":
        assert rows["block_hashes"].to_list() == hashes


def test_laws_follow_from_the_first_half_of_the_log(trace_path: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "requests.jsonl").write_bytes(report("round_robin").read_bytes())
    nodes, true = cluster(RUNS["round_robin"], BLOCKS), true_laws(BLOCKS)
    fitted = fit_first_half(tmp_path / "logs", trace_path, nodes, tmp_path / "lake").laws
    for tokens in (200.0, 2_000.0, 8_192.0):
        assert fitted.prefill.prefill_s("x", tokens, 0.0) == pytest.approx(
            true.prefill.prefill_s("x", tokens, 0.0), rel=1e-3
        )
    for share in (0.1, 0.5, 1.0):
        tokens = share * BLOCKS * 512
        assert fitted.decode.decode_s("x", 10.0, tokens) == pytest.approx(
            true.decode.decode_s("x", 10.0, tokens), rel=5e-3
        )
    kv_bytes = 4_000.0 * nodes.kv_bytes_per_token
    assert fitted.transfer.seconds("local", kv_bytes, 20e9) == pytest.approx(
        true.transfer.seconds("local", kv_bytes, 20e9), rel=0.01
    )
