"""The twin against a pool that is not ours, NVIDIA Dynamo's offline replay: `python -m benchmarks.fidelity`.

`--json` prints one object {cases: {name: {relative_error, within, …}}, exact: {name: {stage: share}}, skipped}. The
pool runs in an environment of its own, made once in the cache folder; `--logs DIR` reads logs that are there already (a
folder a run: rr_1, rr_4, rr_6, rrS_4, kv_1_1 … kv_4_5). What cannot run is skipped and named. `--only CASE…` runs some.
Exit 1 if a case is not within its bounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fidelity import cases
from benchmarks.fidelity.wheel import TRACE, AbsentError, Pool

KINDS: dict[str, Callable[[Pool], cases.Found]] = {
    "exact": cases.exact,
    "fitted": cases.fitted,
    "kv_router": cases.kv_router,
    "out_of_kv": cases.out_of_kv,
}


@dataclass(slots=True)
class Report:
    """All that was found."""

    cases: dict[str, dict[str, Any]] = field(default_factory=dict)
    exact: dict[str, Mapping[str, float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def within(self) -> bool:
        """Every case that ran is within its bounds, every stage time equal."""
        equal = all(share == 1.0 for shares in self.exact.values() for share in shares.values())
        return equal and all(case["within"] for case in self.cases.values())


def main(arguments: Sequence[str]) -> int:
    """Run the cases and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--logs", type=Path, help="folder of logs that are there already")
    parser.add_argument("--trace", type=Path, default=TRACE, help="what the pool replays, Mooncake format")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    report = Report()
    with tempfile.TemporaryDirectory() as work:
        pool = Pool(asked.trace, Path(work), asked.logs)
        for kind in asked.only:
            print(f"{kind} …", file=sys.stderr)
            try:
                found = KINDS[kind](pool)
            except AbsentError as error:
                report.skipped[kind] = str(error)
                print(f"skipped {kind}: {error}", file=sys.stderr)
                continue
            report.exact |= found.exact
            report.cases |= {
                name: {"relative_error": case.relative_error, "within": case.within, **found.told.get(name, {})}
                for name, case in found.cases.items()
            }
    print(json.dumps(asdict(report), indent=1)) if asked.json else show(report)
    return 0 if report.within else 1


def show(report: Report) -> None:
    """A block a case, errors in percent."""
    for name, shares in report.exact.items():
        print(f"{name}: equal within 1 µs, % of requests")
        print("  " + "  ".join(f"{stage} {share * 100:.3f}" for stage, share in shares.items()))
    for name, case in report.cases.items():
        print(f"{'met' if case['within'] else 'NOT MET':8} {name}, error %")
        print("  " + "  ".join(f"{metric} {error * 100:+.3f}" for metric, error in case["relative_error"].items()))
        for key in sorted(set(case) - {"relative_error", "within"}):
            print(f"  {key}: {case[key]}")
    for kind, why in report.skipped.items():
        print(f"skipped {kind}: {why}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
