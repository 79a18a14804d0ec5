"""What became of the rows of an ingest."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What became of the rows. read = accepted + quarantined + skipped + duplicates.

    `format`: the formats met, joined by `,`; `recognised`: format -> why the first file of it was taken for one, where
    that was left to ingest. `rules`: first broken rule -> rows, and `samples`: rule -> where the first
    such row stands and why. `skipped_kinds` sums to `skipped`. `partitions`: those that hold rows of these files.
    `unreadable`: file -> why nothing in it could be read. `unmapped`: node name without a valid alias -> rows.
    `told`: what a reader says of rows that it read -> rows, such as those that the replayed trace does not have.
    `corrected`: rule -> rows that were set right and accepted; `clock_offsets_us`: node -> what was added to its times.
    `derived`: table -> rows that follow from these (not counted in read); `derived_rules`: those that broke a rule.
    """

    format: str
    files: int
    read: int
    accepted: int
    quarantined: int
    skipped: int
    duplicates: int
    rules: dict[str, int]
    partitions: list[str]
    recognised: dict[str, str] = field(default_factory=dict)
    skipped_kinds: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    unmapped: dict[str, int] = field(default_factory=dict)
    samples: dict[str, dict[str, Any]] = field(default_factory=dict)
    corrected: dict[str, int] = field(default_factory=dict)
    clock_offsets_us: dict[str, int] = field(default_factory=dict)
    derived: dict[str, int] = field(default_factory=dict)
    derived_rules: dict[str, int] = field(default_factory=dict)

    @property
    def nothing_read(self) -> bool:
        """Every row broke a rule, or repeats one that did: a command ends with 2."""
        return not self.partitions and self.skipped == 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)
