"""Writes what a pool like the emulated one would have logged: request log, decision log, recorded polls, by day.

They are the published formats and SGLang's own, so they enter through the readers like anyone's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from features.parquet import write_atomically
from features.readers.published import decision_lines, request_lines
from features.readers.sglang_polls import poll_lines
from features.schemas import TERM_COLUMNS
from pipelines.demo.serve import DAY_S, Served
from pipelines.settings import Pool
from policies.kernel_types import TERMS
from policies.twin.engine.columns import POLL_D, POLL_P
from policies.twin.outcomes import NOT_YET, Status

REQUESTS, DECISIONS, LOADS = "requests-{day}.jsonl", "decisions-{day}.jsonl", "loads-{day}.jsonl"


def write_logs(served: Served, pool: Pool, folder: Path) -> tuple[Path, ...]:
    """One file a log and day below `folder`. Returns the files."""
    requests = request_frame(served, pool)
    decisions = decision_frame(served, requests)
    loads = load_frame(served)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for k, day in enumerate(served.days):
        start_us = served.start_us + k * DAY_S * 10**6
        for name, frame, time, lines in (
            (REQUESTS, requests, "arrived_at_us", request_lines),
            (DECISIONS, decisions, "decided_at_us", decision_lines),
            (LOADS, loads, "observed_at_us", poll_lines),
        ):
            rows = frame.filter(pl.col(time).is_between(start_us, start_us + DAY_S * 10**6, closed="left"))
            path = folder / name.format(day=day.isoformat())
            write_atomically(path, lines(rows))
            written.append(path)
    return tuple(written)


def request_frame(served: Served, pool: Pool) -> pl.DataFrame:
    """One row a request in the columns of the table `requests`, by arrival."""
    r, w, t = served.replay, served.workload, served.traffic
    app_names = np.array([a.name for a in served.world.file.traffic.apps]) if served.world.file.traffic else None
    session = np.concatenate([x.session for x in t])
    turn = np.concatenate([x.turn for x in t])
    app = np.concatenate([x.app for x in t])
    p_names = np.array([*(n.name for n in served.cluster.prefill), None], object)
    d_names = np.array([*(n.name for n in served.cluster.decode), None], object)
    done = r.status == Status.COMPLETED
    limit = served.world.file.traffic.output_max_tokens if served.world.file.traffic else np.iinfo(np.int32).max
    reason = np.where(done, np.where(w.output_tokens >= limit, "length", "stop"), "rejected")
    reason = np.where(r.status == Status.FAILED, "failed", reason)
    hashes = [
        t[d].hashes[t[d].hash_offset[i] : t[d].hash_offset[i + 1]] for d, i in zip(served.day, served.row, strict=True)
    ]

    def time(ns: np.ndarray) -> pl.Series:
        known = ns != NOT_YET
        return pl.Series(served.start_us + ns // 1000).zip_with(
            pl.Series(known), pl.Series([None] * len(ns), dtype=pl.Int64)
        )

    routed = r.prefill_node >= 0
    frame = pl.DataFrame(
        {
            "request_id": [
                f"{served.days[d].isoformat()}-{i:06d}" for d, i in zip(served.day, served.row, strict=True)
            ],
            "pool": pool.name,
            "arrived_at_us": served.start_us + r.arrived_ns // 1000,
            "app": [None] * len(app) if app_names is None else app_names[app].tolist(),
            "session_id": [f"{d}-{s}" if s >= 0 else None for d, s in zip(served.day, session, strict=True)],
            "turn": turn,
            "model": pool.model,
            "prompt_tokens": w.prompt_tokens,
            "output_tokens": np.where(done, w.output_tokens, 0),
            "finish_reason": reason,
            "block_tokens": served.cluster.block_tokens,
            "block_hashes": pl.Series(hashes, dtype=pl.List(pl.UInt64)),
            "block_hash_scope": pool.name,
            "prefill_cached_tokens": r.cached_tokens,
            "router_id": [f"router-{k % served.cluster.routers.count}" for k in range(w.requests)],
            "policy_version": f"incumbent/{pool.incumbent.family}",
            "decided_at_us": served.start_us + r.arrived_ns // 1000,
            "prefill_node": p_names[r.prefill_node].tolist(),
            "decode_node": d_names[r.decode_node].tolist(),
            "prefill_started_at_us": time(r.prefill_started_ns),
            "prefill_finished_at_us": time(r.prefill_finished_ns),
            "transfer_started_at_us": time(r.transfer_started_ns),
            "transfer_finished_at_us": time(r.transfer_finished_ns),
            "decode_admitted_at_us": time(r.activated_ns),
            "first_token_at_us": time(r.first_token_ns),
            "finished_at_us": time(r.finished_ns),
            "transferred_bytes": np.where(
                routed, r.sent_tokens.astype(np.int64) * served.cluster.kv_bytes_per_token, 0
            ),
            "preemptions": r.preemptions,
        }
    ).drop("turn")
    never = pl.col("transfer_finished_at_us").is_null()
    return frame.with_columns(
        pl.when(never).then(None).otherwise(pl.col("transferred_bytes")).alias("transferred_bytes")
    )


def decision_frame(served: Served, requests: pl.DataFrame) -> pl.DataFrame:
    """One row a candidate of the recorded decisions, in the columns of the table `decisions`."""
    rec, r = served.recorded, served.replay
    prefill = [n.name for n in served.cluster.prefill]
    decode = [n.name for n in served.cluster.decode]
    scores = rec.decision_scores
    row, p, d = np.nonzero(~np.isposinf(scores))
    request = served.decisions[row]
    ids = requests["request_id"]
    age_us = np.nan_to_num(rec.decision_age_s * 1e6, nan=-1).astype(np.int64)[row]
    frame = pl.DataFrame(
        {
            "request_id": ids.gather(request),
            "pool": requests["pool"].gather(request),
            "decided_at_us": requests["decided_at_us"].gather(request),
            "router_id": requests["router_id"].gather(request),
            "policy_version": requests["policy_version"].gather(request),
            "telemetry_age_us": pl.Series(age_us),
            "prefill_node": [prefill[i] for i in p],
            "decode_node": [decode[i] for i in d],
            "score": scores[row, p, d],
            "chosen": (r.prefill_node[request] == p) & (r.decode_node[request] == d),
            **{TERM_COLUMNS[name]: rec.decision_terms[row, p, d, k] for k, name in enumerate(TERMS)},
        }
    )
    floats = pl.selectors.float()
    return frame.with_columns(floats.fill_nan(None)).with_columns(
        pl.when(pl.col("telemetry_age_us") >= 0).then(pl.col("telemetry_age_us")).alias("telemetry_age_us")
    )


def load_frame(served: Served) -> pl.DataFrame:
    """One row a node and poll in the columns of the table `node_loads`, by time and node."""
    b = served.cluster.block_tokens
    times = served.start_us + served.poll_ns // 1000
    frames = []
    for k, node in enumerate(served.cluster.prefill):
        c = dict(zip(POLL_P, served.recorded.polls_prefill[:, k].T, strict=True))
        frames.append(
            pl.DataFrame(
                {
                    "observed_at_us": times,
                    "node": node.name,
                    "role": "prefill",
                    "block_tokens": b,
                    "usable_blocks": node.blocks,
                    "active_blocks": c["pinned"],
                    "waiting_requests": c["waiting"],
                    "waiting_prompt_tokens": c["backlog_tokens"],
                    "running_requests": c["running"],
                    "transferring_requests": c["sending"],
                    "prefill_busy_us": c["busy_ns"] // 1000,
                    "prefill_computed_tokens": c["computed_tokens"],
                }
            )
        )
    for k, node in enumerate(served.cluster.decode):
        c = dict(zip(POLL_D, served.recorded.polls_decode[:, k].T, strict=True))
        moments = np.stack(
            [
                c["steps"],
                c["sum_sequences"],
                c["sum_ns"] / 1e3,
                c["sum_sequences2"],
                c["sum_sequences_ns"] / 1e3,
                c["generated"],
            ],
            axis=1,
        ).astype(np.float64)
        frames.append(
            pl.DataFrame(
                {
                    "observed_at_us": times,
                    "node": node.name,
                    "role": "decode",
                    "block_tokens": b,
                    "usable_blocks": node.blocks,
                    "active_blocks": c["running_blocks"],
                    "inflight_blocks": c["inflight_blocks"],
                    "queued_blocks": c["queued_blocks"],
                    "waiting_requests": c["queued"] + c["preempted"],
                    "running_requests": c["running"],
                    "running_tokens": c["running_tokens"],
                    "receiving_requests": c["receiving"],
                    "decode_moments": pl.Series(list(moments), dtype=pl.List(pl.Float64)),
                    "generated_tokens": c["generated"],
                }
            )
        )
    return pl.concat(frames, how="diagonal").sort("observed_at_us", "node")
