"""NVIDIA Dynamo's offline replay of the same trace on the same pool, in an environment of its own.

`ROUTECAL_DYNAMO` names a Python that has ai-dynamo-runtime; else one is built in .cache/dynamo, from the package index.
Run by that Python, this file replays: `third_party.py TRACE SPEED_UP PREFILL DECODE`. It logs nothing, so the time is
that of the engine and of reading the trace; its own `wall_time_ms` leaves the reading out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VERSION = "1.6.1"
HOME = Path(__file__).resolve().parents[2] / ".cache" / "dynamo"
BLOCK, BLOCKS, KV_BYTES, GB_PER_S = 512, 2048, 327_680, 20.0


def interpreter() -> Path | None:
    """A Python that has the wheel; None if it cannot be installed here."""
    named = os.environ.get("ROUTECAL_DYNAMO")
    if named:
        return Path(named)
    python = HOME / "bin" / "python"
    if not python.exists():
        made = subprocess.run([sys.executable, "-m", "venv", str(HOME)], capture_output=True, check=False)
        wheel = f"ai-dynamo-runtime=={VERSION}"
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel]
        if made.returncode or subprocess.run(install, capture_output=True, check=False).returncode:
            return None
    return python


def timed(python: Path, trace: Path, speed_up: float, prefill: int, decode: int) -> dict[str, float]:
    """Requests, process and wall seconds of one replay by its engine. RuntimeError with its last line if it fails."""
    command = [str(python), __file__, str(trace), str(speed_up), str(prefill), str(decode)]
    done = subprocess.run(command, env={**os.environ, "DYN_LOG": "off"}, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _engine(role: str) -> dict[str, Any]:
    settings = {
        "backend": "vllm",
        "block_size": BLOCK,
        "num_gpu_blocks": BLOCKS,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
        "enable_prefix_caching": True,
        "worker_type": role,
        "kv_transfer_bandwidth": GB_PER_S,
        "kv_bytes_per_token": KV_BYTES,
    }
    return {"engine": settings, "num_gpu_blocks_is_explicit": True}


def _main(trace: str, speed_up: str, prefill: str, decode: str) -> None:
    from dynamo._core import run_mocker_trace_replay

    wall, cpu = time.perf_counter(), time.process_time()
    report = run_mocker_trace_replay(
        [trace],
        router_mode="kv_router",
        replay_mode="offline",
        trace_block_size=BLOCK,
        arrival_speedup_ratio=float(speed_up),
        num_prefill_workers=int(prefill),
        num_decode_workers=int(decode),
        prefill_engine_args=_engine("prefill"),
        decode_engine_args=_engine("decode"),
    )
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    summary = dict(report.summary)
    found = {"requests": summary["completed_requests"], "cpu_s": cpu, "wall_s": wall}
    sys.stdout.write(json.dumps(found | {"engine_wall_s": summary["wall_time_ms"] / 1e3}) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
