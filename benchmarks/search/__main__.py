"""What learning brings: `python -m benchmarks.search [--json] [--only POOL...] [--trials N] [--workers N]`.

The pools of `benchmarks.search.pools` on the real trace: the load is where the best untuned simple rule meets 90 % of
the targets on the train traffic; every arm that stands in a table was chosen there and is judged on other traffic.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from benchmarks.replay import mooncake
from benchmarks.search import contest
from benchmarks.search.pools import POOLS
from policies.candidates import DEFAULT, PER_CLASS, SEARCHED
from policies.search import Budget


def table(result: contest.Result) -> str:
    """The result as people read it."""
    lines = [
        f"{result.pool}: {result.what}; load {result.load} x, {result.wall_s:.0f} s, chosen on train: {result.winner}",
        f"{'policy':36} {'train':>6} {'test %':>7} {'load':>5}  {'TTFT ms':>15}  {'TPOT ms':>11}  reused  lead",
    ]
    for row in sorted(result.rows, key=lambda r: -r.goodput_frac):
        lead = row.to_simple
        mark = "*" if row.arm == result.best_simple else ""
        lines.append(
            f"{row.arm + mark:36} {100 * row.train_frac:6.1f} {100 * row.goodput_frac:7.2f} {row.load:5.2f}  "
            f"{row.ttft_ms[0]:6.0f} / {row.ttft_ms[1]:6.0f}  {row.tpot_ms[0]:4.1f} / {row.tpot_ms[1]:4.1f}  "
            f"{row.reused_tokens / 1e6:5.1f}M  {100 * lead.value:+.2f} [{100 * lead.low:+.2f}, {100 * lead.high:+.2f}]"
        )
    return "\n".join(lines)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.search", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs="+", choices=list(POOLS), default=list(POOLS))
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if not mooncake.TRACE.exists():
        sys.stderr.write(f"skipped: {mooncake.TRACE} is not here\n")
        return 0
    trace = mooncake.read_trace()
    budget = Budget(trials=options.trials, batch=8, patience=4, startup=16, loss=0.02)
    tables: dict[str, Any] = {}
    for name in options.only:
        result = contest.run(POOLS[name], trace, budget, options.workers)
        tables[name] = asdict(result)
        sys.stderr.write(table(result) + "\n\n")
        for arm in (DEFAULT, SEARCHED, PER_CLASS):
            if arm in result.policies:
                policy = result.policies[arm]
                weights = [tuple(round(w, 3) for w in c.weights) for c in policy.classes]
                sys.stderr.write(f"  {arm}: {policy.decode_moment} {weights}\n")
    if options.json:
        sys.stdout.write(json.dumps({"tables": tables}, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
