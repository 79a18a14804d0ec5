"""Estimators on real data and emulated days, as they ship, beside baselines: `python -m benchmarks.estimators`.

One table, then the bars. `--only PART…` runs some parts, `--json` prints one object {rows, bars: [{name, value, bar,
sense, met}], notes, skipped}. Data: `--data DIR` (default: the folder `shared/data/real` beside the checkout); parts
whose data is absent are skipped and named. Exit 1 if a bar that was measured is not met.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.estimators.bars import Part

PARTS = ("lengths", "steps", "transfers", "drift", "shipped", "scale")
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "real"


def main(arguments: Sequence[str]) -> int:
    """Run the parts and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    parts, skipped = [], []
    for name in asked.only:
        print(f"{name} …", file=sys.stderr)
        try:
            parts.append(importlib.import_module(f"benchmarks.estimators.{name}").measure(asked.data))
        except FileNotFoundError as error:
            skipped.append(f"{name}: {error}")
    show_json(parts, skipped) if asked.json else show_text(parts, skipped)
    return 0 if all(bar.met for part in parts for bar in part.bars) else 1


def show_json(parts: Sequence[Part], skipped: Sequence[str]) -> None:
    """One object on stdout."""
    found = {
        "rows": [{"part": part.name, **asdict(row)} for part in parts for row in part.rows],
        "bars": [{"part": part.name, **asdict(bar), "met": bar.met} for part in parts for bar in part.bars],
        "notes": [note for part in parts for note in part.notes],
        "skipped": list(skipped),
    }
    print(json.dumps(found, indent=1))


def show_text(parts: Sequence[Part], skipped: Sequence[str]) -> None:
    """A table a part, then its bars."""
    for part in parts:
        print(f"\n== {part.name}")
        for row in part.rows:
            figures = "  ".join(f"{key} {value:.4g}" for key, value in row.figures.items())
            print(f"{row.data:28} {row.protocol:34} {row.method:26} {figures}")
        for bar in part.bars:
            print(f"{'met' if bar.met else 'NOT MET':8} {bar.name}: {bar.value:.4g} ({bar.sense} {bar.bar:.4g})")
        for note in part.notes:
            print(f"note: {note}")
    for line in skipped:
        print(f"skipped: {line}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
