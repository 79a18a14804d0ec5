"""What the contract suite needs of a format: small self-made logs of it, one file each in tests/contracts/samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

SECRET = b"the prompt that nobody may keep"
"""Stands wherever a sample's `secret` record may carry text of people."""


@dataclass(frozen=True, slots=True)
class Sample:
    """`make(n)`: a clean file of n records; a record is a line with its newline, after `header` if there is one.

    `rows`: rows of the reader's table that a record gives. `broken`: a record that parses and breaks a row rule.
    `wrong_type`: a record with a value of another type, and the rule that names it. `secret`: a record with SECRET in
    every field that may hold text. `by_line` False: the file is one document, so faults of single lines do not apply.
    """

    name: str
    make: Callable[[int], bytes]
    rows: int = 1
    header: bytes = b""
    broken: bytes = b""
    wrong_type: tuple[bytes, str] | None = None
    secret: bytes = b""
    by_line: bool = True

    def records(self, n: int) -> list[bytes]:
        """n clean records without the header."""
        return self.make(n).removeprefix(self.header).splitlines(keepends=True)


def all_samples() -> Mapping[str, Sample]:
    """Every format's sample by the reader's name."""
    names = sorted(path.stem for path in (Path(__file__).parent / "samples").glob("*.py") if path.stem != "__init__")
    found = [import_module(f"tests.contracts.samples.{name}").SAMPLE for name in names]
    return {sample.name: sample for sample in found}
