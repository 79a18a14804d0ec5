"""What learning brings: `python -m benchmarks.search [--json] [--only PART...] [--trials N] [--nights N]`.

`--markdown FILE...` runs nothing: it prints the tables of what earlier runs wrote with `--json`.

The pools of `benchmarks.search.pools` on real traces: the load is where the best untuned simple rule meets 90 % of
the targets on the train traffic; every arm that stands in a table was chosen there and is judged on other traffic.
Besides: nights whose outcome is known, the speed of a search, and other ways to search with as many replays.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.replay import mooncake
from benchmarks.search import agents, contest, nights, rivals, speed
from benchmarks.search.markdown import markdown
from benchmarks.search.pools import POOLS
from benchmarks.search.traffic import Trace, Traffic
from policies.search.search import Budget
from policies.twin.workload import Workload

PARTS = (*POOLS, "equals", "poisoned", "speed", "killed", "rivals")
EQUALS = Budget(trials=16, batch=8, startup=8, patience=9)
RIVALS = ("c100", "f", "g", "h")
MOST_BETTER, MOST_S, SPEEDUP = 6, 300.0, 1.7


def table(result: contest.Result) -> str:
    """The result as people read it."""
    lines = [
        f"{result.pool}: {result.what}; load x {result.load}, {result.wall_s:.0f} s",
        f"{result.verdict} ({result.winner} against {result.best_simple}): {result.reason}",
        f"{'policy':36} {'train':>6} {'test %':>7} {'load':>5}  {'TTFT ms':>15}  {'TPOT ms':>11}  reused  moved  lead",
    ]
    for row in sorted(result.rows, key=lambda r: -r.goodput_frac):
        lead = row.to_simple
        mark = " *" if row.arm == result.best_simple else ""
        lines.append(
            f"{row.arm + mark:36} {100 * row.train_frac:6.1f} {100 * row.goodput_frac:7.2f} {row.load:5.2f}  "
            f"{row.ttft_ms[0]:6.0f} / {row.ttft_ms[1]:6.0f}  {row.tpot_ms[0]:4.1f} / {row.tpot_ms[1]:4.1f}  "
            f"{row.reused_tokens / 1e6:5.1f}M {row.moved_bytes / 1e12:5.1f}T  "
            f"{100 * lead.value:+.2f} [{100 * lead.low:+.2f}, {100 * lead.high:+.2f}]"
        )
    for flow in result.flows:
        sizes = ", ".join(f"{c.prompt_tokens}: {100 * (c.crossed_frac or 0.0):.0f} %" for c in flow.crossings)
        lines.append(f"  prompts across racks, {flow.arm}: {100 * (flow.crossed_frac or 0.0):.0f} % ({sizes})")
    for name in contest.FIXED:
        if name in result.policies:
            policy = result.policies[name]
            weights = sorted({tuple(round(w, 3) for w in c.weights) for c in policy.classes})
            lines.append(f"  {name}: D at {policy.decode_moment}, weights {weights}")
    return "\n".join(lines)


def rival(held: rivals.Held) -> str:
    """One way to search as people read it."""
    seeds, lead = [100 * frac for frac in held.goodput_frac], held.to_chosen
    return (
        f"{held.way:60} {sum(seeds) / len(seeds):6.2f} ({min(seeds):.2f} to {max(seeds):.2f})  "
        f"{100 * lead.value:+.2f} [{100 * lead.low:+.2f}, {100 * lead.high:+.2f}]"
    )


def main() -> int:
    """Run the parts and print what they found; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.search", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--trials", type=int, default=64, help="of every search")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--nights", type=int, default=200, help="in which all policies are equal")
    parser.add_argument("--markdown", nargs="+", type=Path, metavar="FILE", help="print earlier runs' tables instead")
    options = parser.parse_args()
    if options.markdown:
        for path in options.markdown:
            sys.stdout.write(markdown(json.loads(path.read_text())) + "\n")
        return 0
    traffic = _traffic(options.only)
    found: dict[str, Any] = {"tables": {}}
    for name, pool in POOLS.items():
        if name in options.only and pool.traffic in traffic:
            budget = Budget(trials=options.trials, batch=8, patience=4, startup=16, loss=0.02)
            result = contest.run(pool, traffic[pool.traffic], budget, options.workers)
            found["tables"][name] = asdict(result)
            sys.stderr.write(table(result) + "\n\n")
    if isinstance(real := traffic.get("mooncake"), Trace):
        found |= _others(real.trace, options)
    if "rivals" in options.only:
        found["rivals"] = _rivals(traffic, options, found["tables"])
    missed = [name for name, met in _bars(found).items() if not met]
    sys.stderr.write("".join(f"MISSED {name}\n" for name in missed))
    if options.json:
        sys.stdout.write(json.dumps(found, default=str) + "\n")
    return int(bool(missed))


def _traffic(only: Sequence[str]) -> dict[str, Traffic]:
    """What the parts ask for, without what is not here."""
    wanted = {POOLS[name].traffic if name in POOLS else "mooncake" for name in only}
    found: dict[str, Traffic] = {}
    for name, (path, read) in _SOURCES.items():
        if name in wanted and path.exists():
            found[name] = read()
        elif name in wanted:
            sys.stderr.write(f"skipped: {path} is not here\n")
    return found


def _mooncake() -> Trace:
    return Trace(mooncake.read_trace())


def _agents() -> agents.Agents:
    return agents.Agents(agents.read_conversations())


_SOURCES: dict[str, tuple[Path, Callable[[], Traffic]]] = {
    "mooncake": (mooncake.TRACE, _mooncake),
    "agents": (agents.TRACES, _agents),
}


def _others(trace: Workload, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "equals" in options.only:
        found |= {"aa_nights": options.nights, "aa_better": nights.better_of_equals(options.nights, EQUALS)}
    if "poisoned" in options.only:
        gates = nights.poisoned(trace)
        found["poisoned_exported"] = gates["poisoned"].status != "fail"
        found["poisoned"] = {name: (gate.status, gate.detail) for name, gate in gates.items()}
    if "speed" in options.only:
        took = speed.speed(trace)
        found |= {"trials_wall_s": took["trials_wall_s"], "two_worker_speedup": took["speedup"], "speed": took}
    if "killed" in options.only:
        found["killed"] = speed.killed(trace)
    for name, value in found.items():
        sys.stderr.write(f"{name} {value}\n")
    return found


def _rivals(traffic: Mapping[str, Traffic], options: argparse.Namespace, tables: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name in RIVALS:
        pool = POOLS[name]
        if (own := traffic.get(pool.traffic)) is not None:
            load = tables[name]["load"] if name in tables else contest.load_of(pool, own, options.workers)
            held = rivals.held_out(pool, own, load, options.trials, options.workers)
            found[name] = [asdict(each) for each in held]
            sys.stderr.write(f"{name}\n" + "".join(f"  {rival(each)}\n" for each in held))
    return found


def _bars(found: dict[str, Any]) -> dict[str, bool]:
    bars = {}
    if "aa_better" in found:
        bars["equals called better"] = found["aa_better"] <= MOST_BETTER * found["aa_nights"] / 200
    if "poisoned" in found:
        bars["the true twin passes"] = {found["poisoned"][name][0] for name in ("true", "true_policy")} == {"pass"}
        bars["the poisoned one's router does not pass"] = found["poisoned"]["poisoned_policy"][0] != "pass"
        bars["the poisoned one fails"] = not found["poisoned_exported"]
    if "trials_wall_s" in found:
        bars["seconds of 300 trials"] = found["trials_wall_s"] <= MOST_S
        bars["two workers"] = found["two_worker_speedup"] >= SPEEDUP
    if "killed" in found:
        bars["killed five times"] = found["killed"]["kills"] == speed.KILLS and found["killed"]["same_winner"]
    return bars


if __name__ == "__main__":
    sys.exit(main())
