"""Damaged logs: what disks, shippers, editors and other versions do to a file. The same seed gives the same file."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from features.readers.plain import is_text
from tests.contracts.sample import Sample

GOLDEN = Path(__file__).parent.parent / "golden" / "ingest"
Draw = random.Random
Fault = Callable[[Draw, bytes], bytes]

HUGE = (b"1e400", b"-1e999", b"9" * 400, b"18446744073709551616", b"-9223372036854775809", b"1e-320", b"-0", b"0x10",
        b"1_000", b"01", b"NaN", b"Infinity", b"2147483648", b"4102444800000000", b"0.1", b"")  # fmt: skip
UNICODE = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\\ud800", b"\\ud83d\\ude00", b"\xef\xbb\xbf", b"\xe2\x80\xa8",
           b"\xf4\x90\x80\x80", b"\x00", b"\x0b", b"\x1b[31m", b"\\u0000", "é".encode("latin-1"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Damaged:
    """A damaged file of the format `name`: its bytes, and the same unpacked (None if the packing is damaged).

    `by_line`: its lines are rows. `whole`: records that stand in it as they were, each on a line of its own, behind an
    undamaged header.
    `with_secret`: the record with people's text stands in it as it was.
    """

    name: str
    faults: tuple[str, ...]
    content: bytes
    plain: bytes | None
    by_line: bool
    whole: int
    with_secret: bool


def damaged(seed: int, samples: Mapping[str, Sample]) -> Damaged:
    """The file of a seed; seeds go round the formats, so that any range of them covers all."""
    draw = random.Random(seed)
    names = sorted(samples)
    name = names[seed % len(names)]
    sample = samples[name]
    records, content, by_line = _base(draw, sample)
    faults = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        kind = draw.choice(sorted(FAULTS))
        fault = FAULTS[kind]
        try:
            content = fault(draw, content) if kind != "splice" else _splice(draw, content, samples)
        except (ValueError, RecursionError):
            continue  # the file has nothing of the kind left
        faults.append(kind)
    plain: bytes | None = content
    packing = draw.choice(("", "", "", "", "gzip", "zstd", "torn"))
    if packing:
        gzipped = packing == "gzip" or (packing == "torn" and draw.random() < 0.5)
        content = gzip.compress(content, mtime=0) if gzipped else zstandard.compress(content)
        faults.append(packing)
        if packing == "torn":
            content, plain = FAULTS[draw.choice(("bits", "truncate", "insert", "delete"))](draw, content), None
    return Damaged(
        name,
        tuple(faults),
        content,
        plain,
        by_line,
        _whole(plain, records, sample),
        bool(sample.by_line and sample.secret and plain is not None and _intact(plain, sample)),
    )


def _base(draw: Draw, sample: Sample) -> tuple[Sequence[bytes], bytes, bool]:
    """A sound file: a few records with one of each odd kind now and then, or a golden input; are its lines rows?"""
    golden = sorted(path for path in (GOLDEN / sample.name).glob("*") if path.name != "expected.json")
    if golden and draw.random() < 0.3:
        path = draw.choice(golden)
        return (), path.read_bytes(), sample.by_line and path.suffix != ".json"
    if not sample.by_line:
        content = sample.secret if sample.secret and draw.random() < 0.2 else sample.make(draw.randrange(1, 6))
        return (), content, False
    records = sample.records(draw.randrange(1, 12))
    odd = [sample.broken, sample.wrong_type[0] if sample.wrong_type else b"", sample.secret]
    lines = [*records, *(line for line in odd if draw.random() < 0.5)]
    draw.shuffle(lines)
    return records, sample.header + b"".join(lines), True


def _whole(plain: bytes | None, records: Sequence[bytes], sample: Sample) -> int:
    if plain is None or not plain.startswith(sample.header) or not is_text(plain):
        return 0
    held = set(plain.removeprefix(sample.header).split(b"\n"))
    return sum(record.removesuffix(b"\n") in held for record in records)


def _intact(plain: bytes, sample: Sample) -> bool:
    return plain.startswith(sample.header) and b"\n" + sample.secret in b"\n" + plain


def _at(draw: Draw, content: bytes) -> int:
    if not content:
        raise ValueError
    return draw.randrange(len(content))


def _bits(draw: Draw, content: bytes) -> bytes:
    held = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8, 40))):
        held[_at(draw, content)] ^= 1 << draw.randrange(8)
    return bytes(held)


def _insert(draw: Draw, content: bytes) -> bytes:
    at = _at(draw, content)
    return content[:at] + draw.randbytes(draw.choice((1, 1, 3, 40))) + content[at:]


def _delete(draw: Draw, content: bytes) -> bytes:
    at = _at(draw, content)
    return content[:at] + content[at + draw.choice((1, 1, 3, 40, 400)) :]


def _duplicate(draw: Draw, content: bytes) -> bytes:
    at = _at(draw, content)
    end = at + draw.choice((1, 5, 60, 2_000))
    return content[:end] + content[at:end] * draw.choice((1, 3)) + content[end:]


def _truncate(draw: Draw, content: bytes) -> bytes:
    return content[: _at(draw, content)]


def _unicode(draw: Draw, content: bytes) -> bytes:
    at = _at(draw, content)
    return content[:at] + draw.choice(UNICODE) + content[at:]


def _ends(draw: Draw, content: bytes) -> bytes:
    other = draw.choice((b"\r\n", b"\r", b"\n\n", b"\n \t\n", b"\n\r\n", b"\r\r\n", b""))
    return content.replace(b"\n", other, draw.choice((-1, 1, 3)))


def _number(draw: Draw, content: bytes) -> bytes:
    numbers = list(re.finditer(rb"\d+", content))
    if not numbers:
        raise ValueError
    found = draw.choice(numbers)
    return content[: found.start()] + draw.choice(HUGE) + content[found.end() :]


def _deep(draw: Draw, content: bytes) -> bytes:
    depth = draw.choice((3, 200, 5_000))
    opened, closed = draw.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[[", b"")))
    at = draw.choice([found.end() for found in re.finditer(rb"[:,]\s*", content)] or [0])
    return content[:at] + opened * depth + b"1" + closed * depth + content[at:]


def _lines(draw: Draw, content: bytes) -> bytes:
    held = content.split(b"\n")
    at, other = draw.randrange(len(held)), draw.randrange(len(held))
    what = draw.randrange(5)
    if what == 0:
        held[at], held[other] = held[other], held[at]
    elif what == 1:
        held[at] = held[at][: draw.randrange(len(held[at]) + 1)]
    elif what == 2:
        held.insert(other, held[at])
    elif what == 3:
        held[at : at + 2] = [b"".join(held[at : at + 2])]
    else:
        del held[at]
    return b"\n".join(held)


def _quotes(draw: Draw, content: bytes) -> bytes:
    at = _at(draw, content)
    marks = draw.choice((b'"', b'""', b"'", b",", b",,,,", b";", b"\t", b'"\n"', b'\\"'))
    if draw.random() < 0.4 and (held := content.find(draw.choice((b'"', b",")), at)) >= 0:
        return content[:held] + content[held + 1 :]
    return content[:at] + marks + content[at:]


def _header(draw: Draw, content: bytes) -> bytes:
    first, end, rest = content.partition(b"\n")
    broken = draw.choice((_bits, _delete, _duplicate, _quotes))(draw, first)
    return draw.choice((broken + end, b"", first + end + first + end, first.upper() + end)) + rest


def _structure(draw: Draw, content: bytes) -> bytes:
    """One value of one line (or of the document) becomes another one, goes, or stands twice."""
    held = content.split(b"\n")
    at = draw.choice([i for i, line in enumerate(held) if line.lstrip().startswith((b"{", b"["))] or [-1])
    whole = at < 0 or draw.random() < 0.1
    value = json.loads(content if whole else held[at])
    places = list(_places(value))
    if not places:
        raise ValueError
    holder, key = draw.choice(places)
    what = draw.randrange(4)
    if what == 0:
        del holder[key]
    elif what == 1 and isinstance(holder, dict):
        holder[draw.choice((key + "_x", key.upper(), "", "source_row", "pool"))] = holder.pop(key)
    else:
        holder[key] = draw.choice(_values(holder[key]))
    text = json.dumps(value, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    if what == 3 and isinstance(value, dict):  # a key that stands twice
        text = text[:-1] + b"," + json.dumps({key: 1}).encode()[1:] if isinstance(key, str) else text
    return text if whole else b"\n".join([*held[:at], text, *held[at + 1 :]])


def _places(value: Any) -> Sequence[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        held = waiting.pop()
        keys = list(held) if isinstance(held, dict) else list(range(len(held))) if isinstance(held, list) else []
        found += [(held, key) for key in keys]
        waiting += [held[key] for key in keys]
    return found


def _values(old: Any) -> Sequence[Any]:
    inside = json.dumps(old)
    return (None, True, 0, -1, 1.5, 2**31, 2**63, 2**64, 10**400, 1e300, "", "x", "12", "\ud800", "[1]", '{"a": 1}',
            [], {}, [old], {"a": old}, [None], [[]], inside, [old, old], "a" * 5_000, "1e999", [1, "a"])  # fmt: skip


def _splice(draw: Draw, content: bytes, samples: Mapping[str, Sample]) -> bytes:
    other = samples[draw.choice(sorted(samples))].make(draw.randrange(1, 4)).split(b"\n")
    held = content.split(b"\n")
    at = draw.randrange(len(held) + 1)
    return b"\n".join([*held[:at], *other[: draw.randrange(1, len(other) + 1)], *held[at:]])


FAULTS: Mapping[str, Fault] = {
    "bits": _bits,
    "insert": _insert,
    "delete": _delete,
    "duplicate": _duplicate,
    "truncate": _truncate,
    "unicode": _unicode,
    "line ends": _ends,
    "number": _number,
    "depth": _deep,
    "lines": _lines,
    "quotes": _quotes,
    "header": _header,
    "structure": _structure,
    "structure again": _structure,
    "splice": lambda _, content: content,
}
