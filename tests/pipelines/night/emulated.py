"""A small emulated pool: five days of logs, served by the twin under laws that the fitted families do not hold."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from features.readers.published import request_lines
from features.readers.sglang_polls import poll_lines
from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, one_type
from models.portable.transfer import TransferLaw
from models.portable.trees import table_of
from pipelines.settings import Pool, Settings, load_settings
from pipelines.settings_cluster import to_cluster
from policies.lengths import constant_length
from policies.twin.engine.columns import POLL_D, POLL_P
from policies.twin.outcomes import NOT_YET, Noise, Replay, Status
from policies.twin.replay import Recorded, Recording, replay_recorded
from policies.twin.workload import Workload

FIRST_DAY, DAYS, LAST_DAY = date(2026, 3, 2), 5, date(2026, 3, 6)
START_S, WINDOW_S, RATE_PER_S = 36_000, 640, 2.0
BLOCK = 256
SETTINGS = """
schema_version = 1
[storage]
lake = "lake"
store = "store"
runs = "runs"
[pools.small]
model = "m"
history_days = 5
warm_up_s = 60
kv = {layers = 80, kv_heads = 8, head_dim = 128, block_tokens = 256}
engine = {chunk_tokens = 2048}
router = {period_ms = 1000, delay_ms = 50, families = ["routecal", "lowest_utilisation"]}
incumbent = {family = "lowest_utilisation"}
class_rules = [{name = "short", max_prompt_tokens = 2000}, {name = "long"}]
search = {trials = 6, batch = 3, startup = 3, patience = 1, loads = [1.0], workers = 1, seed = 1}
[[pools.small.nodes]]
names = ["p0/dp0", "p1/dp0"]
role = "prefill"
blocks = 750
port_gbps = 100
[[pools.small.nodes]]
names = ["d0/dp0", "d1/dp0"]
role = "decode"
port_gbps = 100
[pools.small.classes.short]
ttft_target_ms = 1000
tpot_target_ms = 30
[pools.small.classes.long]
ttft_target_ms = 3000
tpot_target_ms = 30
[[pools.small.sources]]
paths = ["logs/requests-{day}.jsonl"]
format = "routecal-requests"
[[pools.small.sources]]
paths = ["logs/loads-{day}.jsonl"]
format = "sglang-loads"
[pools.small.gates]
resamples = 400
"""
TRUTH = Estimators(
    length=constant_length(150.0),
    prefill=one_type(
        StepLaw((0.012, 2.8e-4, 1e-9, 5e-10, 0.0), trees=table_of(0, (512, 1024), (0.97, 1.03, 0.98))), {"p1/dp0": 1.3}
    ),
    decode=one_type(StepLaw((0.008, 3e-4, 2e-8, 0.0), trees=table_of(0, (8, 16), (0.98, 1.03, 0.99))), {"d1/dp0": 1.3}),
    transfer=TransferLaw({"local": 0.002, "cross": 0.002}, {"local": 0.9, "cross": 0.9}),
)


def write_settings(folder: Path, *, more: str = "", text: str = SETTINGS) -> Settings:
    """routecal.toml in `folder`, read back. `more` goes in front of [storage]."""
    path = folder / "routecal.toml"
    path.write_text(text.replace("[storage]", f"{more}\n[storage]", 1), "utf-8")
    return load_settings(path)


def write_logs(settings: Settings, folder: Path) -> None:
    """Request log and polls of every day."""
    pool = settings.pool("small")
    workload, hashes = traffic()
    polls = np.concatenate([np.arange(START_S - 1, START_S + WINDOW_S + 30) + k * 86_400 for k in range(DAYS)]) * 10**9
    rng = np.random.default_rng(5)
    noise = Noise(*(np.exp(rng.normal(0, 0.08, 4096)) for _ in range(3)))
    guess = np.full(workload.requests, 200, np.int32)
    replay, recorded = replay_recorded(
        to_cluster(pool, blocks={"d0/dp0": 625, "d1/dp0": 625}),
        TRUTH,
        pool.incumbent,
        workload,
        seed=9,
        estimated_output=guess,
        expected_output=guess,
        noise=noise,
        recording=Recording(polls.astype(np.int64), np.zeros(0, np.int64)),
    )
    requests, loads = request_frame(pool, workload, replay, hashes), load_frame(recorded, polls)
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(DAYS):
        day = FIRST_DAY + timedelta(days=k)
        (folder / f"requests-{day}.jsonl").write_bytes(request_lines(_of_day(requests, "arrived_at_us", day)))
        (folder / f"loads-{day}.jsonl").write_bytes(poll_lines(_of_day(loads, "observed_at_us", day)))


def traffic() -> tuple[Workload, list[list[int]]]:
    """All days in one workload, and each prompt's block hashes: some share their first blocks."""
    rng = np.random.default_rng(3)
    count = rng.poisson(RATE_PER_S * WINDOW_S, DAYS)
    arrival_s = np.concatenate(
        [np.sort(rng.uniform(0, WINDOW_S, n)) + START_S + k * 86_400 for k, n in enumerate(count)]
    )
    n = len(arrival_s)
    prompt = np.clip(rng.lognormal(7.0, 0.8, n), 100, 12_000).astype(np.int32)
    blocks = prompt // BLOCK
    app = rng.integers(0, 3, n)
    hashes = [
        [(2**63 + 1000 * int(app[i]) + j) if j < 2 else (2**40 + 1000 * i + j) for j in range(blocks[i])]
        for i in range(n)
    ]
    _, ids = np.unique(np.array([h for row in hashes for h in row], np.uint64), return_inverse=True)
    free = np.full(n, -1, np.int32)
    load = Workload(
        arrival_ns=np.floor(arrival_s * 1e6).astype(np.int64) * 1000,
        prompt_tokens=prompt,
        output_tokens=np.clip(rng.lognormal(5.0, 0.6, n), 2, 1000).astype(np.int32),
        class_index=(prompt >= 2000).astype(np.int32),
        block_offset=np.concatenate([[0], np.cumsum(blocks)]).astype(np.int64),
        block_ids=ids.astype(np.int32),
        forced_prefill=free,
        forced_decode=free,
        scored=np.ones(n, np.bool_),
    )
    return load, hashes


def request_frame(pool: Pool, load: Workload, replay: Replay, hashes: list[list[int]]) -> pl.DataFrame:
    """Rows of the table `requests`."""
    done = replay.status == Status.COMPLETED

    def time(ns: np.ndarray) -> pl.Series:
        known = [None if t == NOT_YET else start_us() + int(t) // 1000 for t in ns]
        return pl.Series(known, dtype=pl.Int64)

    return pl.DataFrame(
        {
            "request_id": [f"r{i:06d}" for i in range(load.requests)],
            "pool": pool.name,
            "arrived_at_us": time(load.arrival_ns),
            "decided_at_us": time(load.arrival_ns),
            "prompt_tokens": load.prompt_tokens,
            "output_tokens": np.where(done, load.output_tokens, 0),
            "finish_reason": np.where(done, "stop", "rejected"),
            "block_tokens": BLOCK,
            "block_hashes": pl.Series(hashes, dtype=pl.List(pl.UInt64)),
            "prefill_cached_tokens": replay.cached_tokens,
            "prefill_node": [f"p{i}/dp0" if i >= 0 else None for i in replay.prefill_node],
            "decode_node": [f"d{i}/dp0" if i >= 0 else None for i in replay.decode_node],
            "prefill_started_at_us": time(replay.prefill_started_ns),
            "prefill_finished_at_us": time(replay.prefill_finished_ns),
            "transfer_started_at_us": time(replay.transfer_started_ns),
            "transfer_finished_at_us": time(replay.transfer_finished_ns),
            "decode_admitted_at_us": time(replay.activated_ns),
            "first_token_at_us": time(replay.first_token_ns),
            "finished_at_us": time(replay.finished_ns),
            "transferred_bytes": load.prompt_tokens.astype(np.int64) * pool.kv.bytes_per_token,
        }
    )


def load_frame(recorded: Recorded, poll_ns: np.ndarray) -> pl.DataFrame:
    """Rows of the table `node_loads`."""
    frames = []
    for role, polls, names in (("prefill", recorded.polls_prefill, POLL_P), ("decode", recorded.polls_decode, POLL_D)):
        for k in range(polls.shape[1]):
            c = {name: polls[:, k, at] for at, name in enumerate(names)}
            if role == "prefill":
                own = {"active_blocks": c["pinned"], "waiting_prompt_tokens": c["backlog_tokens"]}
            else:
                own = {
                    "active_blocks": c["running_blocks"],
                    "inflight_blocks": c["inflight_blocks"],
                    "running_tokens": c["running_tokens"],
                    "receiving_requests": c["receiving"],
                    "decode_moments": pl.Series(list(moments(c)), dtype=pl.List(pl.Float64)),
                }
            common = {
                "observed_at_us": start_us() + poll_ns // 1000,
                "node": f"{role[0]}{k}/dp0",
                "role": role,
                "block_tokens": BLOCK,
                "usable_blocks": 750 if role == "prefill" else 625,
                "running_requests": c["running"],
            }
            frames.append(pl.DataFrame(common | own))
    return pl.concat(frames, how="diagonal")


def moments(c: dict[str, np.ndarray]) -> np.ndarray:
    """Columns of `decode_moments`, times in microseconds."""
    us = [c["steps"], c["sum_sequences"], c["sum_ns"] / 1e3, c["sum_sequences2"], c["sum_sequences_ns"] / 1e3]
    return np.stack([*us, c["generated"]], axis=1).astype(np.float64)


def start_us() -> int:
    """Midnight of the first day, unix microseconds."""
    return (FIRST_DAY - date(1970, 1, 1)).days * 86_400_000_000


def _of_day(frame: pl.DataFrame, time: str, day: date) -> pl.DataFrame:
    start = (day - date(1970, 1, 1)).days * 86_400_000_000
    return frame.filter(pl.col(time).is_between(start, start + 86_400_000_000, closed="left"))
