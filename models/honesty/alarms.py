"""Which readings are alarms, at a rate that is fixed for a whole night, and what they say.

A reading alarms if it lies beyond its bar and chance does not explain that, at ALPHA over all readings of a night
together (Holm). Quiet estimators lie within their bars, so false alarms are rarer still; at ALPHA the chance of more
than one in 30 nights is below 4 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from models.honesty.reading import ALL, DRIFT, NEW_GROUP, Reading, percent

ALPHA = 0.01
NEW_ROWS = 100
"""Rows from which an unknown name is a group of its own and not a stray."""
KINDS = {"app": "length", "tenant": "length", "prefill_node": "prefill", "decode_node": "decode"}
"""Kind of name -> the estimator that does not know it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What estimators were made from: kind of name (KINDS) -> names. A kind that is not there is not judged."""

    names: Mapping[str, frozenset[str]] = field(default_factory=dict)


def judged(readings: Sequence[Reading], *, alpha: float = ALPHA) -> tuple[Reading, ...]:
    """The readings with their alarms and sentences, in their order. Only readings with a p-value can alarm."""
    tested = sorted((r.p, at) for at, r in enumerate(readings) if r.p is not None)
    alarmed: set[int] = set()
    for rank, (p, at) in enumerate(tested):
        if p * (len(tested) - rank) > alpha:
            break
        alarmed.add(at)
    return tuple(_told(replace(r, alarm=DRIFT) if at in alarmed else r) for at, r in enumerate(readings))


def new_groups(counts: Mapping[str, Mapping[str, int]], seen: Seen) -> list[Reading]:
    """Alarms for names that no estimator was made from. `counts`: kind of name -> name -> the day's rows."""
    found = []
    for kind, rows in sorted(counts.items()):
        known = seen.names.get(kind)
        if known is None:
            continue
        for name, count in sorted(rows.items()):
            if name not in known and count >= NEW_ROWS:
                text = f"{kind.replace('_', ' ')} {name}: {count:,} rows, and the estimators never saw it"
                found.append(
                    Reading(
                        KINDS[kind], f"{kind}:{name}", "new_rows", float(count), count, alarm=NEW_GROUP, sentence=text
                    )
                )
    return found


def alarms(readings: Iterable[Reading]) -> list[Reading]:
    """Those that alarm."""
    return [reading for reading in readings if reading.alarm is not None]


def _told(reading: Reading) -> Reading:
    return replace(reading, sentence=_sentence(reading))


def _sentence(r: Reading) -> str:
    where = "all" if r.group == ALL else r.group
    share = r.measure.startswith(("coverage", "frozen", "tail"))
    value = f"{r.value:.3f}" if share or not r.measure.endswith("error") else percent(r.value)
    told = f"{r.estimator}, {where}: {r.measure.replace('_', ' ')} {value}"
    if r.low is not None and r.high is not None:
        ends = (f"{r.low:.3f}, {r.high:.3f}") if share else f"{percent(r.low)}, {percent(r.high)}"
        told += f" [{ends}]"
    if r.expected is not None and r.bar is not None:
        told += f", to be within {r.bar:g} of {r.expected:g}" if share else f", to be within {100.0 * r.bar:g} %"
    return f"{told}, {r.rows:,} rows"
