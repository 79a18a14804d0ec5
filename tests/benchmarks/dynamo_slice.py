"""The golden slice: what Dynamo's offline replay made of the self-made trace, as it wrote it.

`python -m tests.benchmarks.dynamo_slice` makes it anew (needs the wheel; the KV router's ties are random).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import zstandard

from benchmarks.fidelity.wheel import Pool, Run
from tests.benchmarks.self_made_trace import write

FOLDER = Path(__file__).parents[1] / "golden" / "dynamo"
BLOCKS = 256
RUNS = {router: Run(router, prefill=2, decode=2, router=router) for router in ("round_robin", "kv_router")}


def report(router: str) -> Path:
    """The log of a run."""
    return FOLDER / f"{router}.jsonl.zst"


def main() -> None:
    """Run the pool and keep its logs."""
    with tempfile.TemporaryDirectory() as folder:
        pool = Pool(write(Path(folder) / "trace.jsonl"), Path(folder), blocks=BLOCKS)
        for router, run in RUNS.items():
            held = (pool.logs(run) / "requests.jsonl").read_bytes()
            report(router).write_bytes(zstandard.ZstdCompressor(level=19).compress(held))


if __name__ == "__main__":
    main()
