"""Keeps what engines say about their load and do not log: polls of `GET /v1/loads` or `GET /metrics`, a JSON line each.

A line is {polled_at_us, target, status, body}: unix microseconds just before the request, the target as it was named,
the HTTP status (0: no answer) and the answer. Of /v1/loads that is an object, or {"error": why}: the reader
`sglang-loads` reads it. Of /metrics it is the text, or a comment that says why there is none: `prometheus-polls`.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from features.errors import SettingsError
from features.readers.prometheus_polls import ERROR
from features.readers.prometheus_text import is_exposition

LOADS, METRICS = "loads", "metrics"
PATHS = {LOADS: "/v1/loads?include=core,disagg,queues,memory", METRICS: "/metrics"}
"""What is asked for of a target that names no path."""
_ACCEPT = {LOADS: "application/json", METRICS: "text/plain;version=0.0.4"}
OK, NO_ANSWER = 200, 0
MAX_BODY_BYTES = 16 << 20
_READ_BYTES = 1 << 16
US_PER_S = 1_000_000
DAY_S = 86_400

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Workers are reached directly: a proxy would answer for a dead one."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What to poll. `path` may hold `{day}`, the UTC day of the poll; `duration_s` None = until it is stopped.

    `what`: LOADS or METRICS.
    """

    targets: tuple[str, ...]
    path: str
    period_s: float = 1.0
    timeout_s: float = 2.0
    duration_s: float | None = None
    what: str = LOADS

    def __post_init__(self) -> None:
        if self.what not in PATHS:
            raise SettingsError("a recording must be of loads or metrics", value=self.what)
        if not self.targets:
            raise SettingsError("a recording must have targets", hint="--targets http://host:port")
        for target in self.targets:
            if not _is_http(target):
                raise SettingsError("a target must be an http URL", value=target, hint="such as http://10.0.0.1:30000")
        if len(set(self.targets)) != len(self.targets):
            raise SettingsError("a target must be named once", value=sorted(self.targets))
        for name, most_s in (("period_s", DAY_S), ("timeout_s", DAY_S), ("duration_s", 366 * DAY_S)):
            value = getattr(self, name)
            if value is not None and not 0 < value <= most_s:  # NaN does not hold either
                raise SettingsError(f"`0 < {name} <= {most_s}` must hold", value=value)


@dataclass(slots=True)
class Tally:
    """Polls by target: answered with 200 and what was asked for, answered otherwise, not answered. Files written."""

    ok: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    silent: Counter[str] = field(default_factory=Counter)
    files: set[str] = field(default_factory=set)

    @property
    def polls(self) -> int:
        """All polls."""
        return self.ok.total() + self.refused.total() + self.silent.total()


def record(recording: Recording, *, now_s: Callable[[], float], stop: threading.Event) -> Tally:
    """Poll until `stop` is set or the duration is over; each target in its own thread, so that none waits for another.

    `now_s`: unix seconds. Polls start at start + k · period; a target that answers too late misses those in between.
    Lines are appended whole. Raises SettingsError if the file cannot be written.
    """
    lines = _Lines(recording.path)
    start_s = now_s()
    end_s = None if recording.duration_s is None else start_s + recording.duration_s
    tally = Tally()
    failures: list[OSError] = []

    def poll_target(target: str) -> None:
        turn = 0
        while not stop.is_set() and (end_s is None or now_s() < end_s):
            line = poll(target, timeout_s=recording.timeout_s, now_us=round(now_s() * US_PER_S), what=recording.what)
            try:
                lines.append(line, tally)
            except OSError as error:
                failures.append(error)
                stop.set()
                return
            turn = max(turn + 1, int((now_s() - start_s) / recording.period_s) + 1)
            due_s = start_s + turn * recording.period_s
            stop.wait(max(0.0, min(due_s, end_s or due_s) - now_s()))

    threads = [threading.Thread(target=poll_target, args=(target,), name=target) for target in recording.targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SettingsError("a recording must be writable", value=str(failures[0]), place=recording.path)
    return tally


def poll(target: str, *, timeout_s: float, now_us: int, what: str = LOADS) -> dict[str, Any]:
    """One poll as a line. A target without a path is asked for that of `what`. Never raises for what a target does."""
    url = target if urlsplit(target).path not in {"", "/"} else target.rstrip("/") + PATHS[what]
    request = urllib.request.Request(url, headers={"Accept": _ACCEPT[what]})  # noqa: S310  checked to be http
    status, body = NO_ANSWER, b""
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            status, body = answer.status, _body(answer, time.monotonic() + timeout_s)
    except urllib.error.HTTPError as error:
        with error:
            return _line(now_us, target, error.code, _failed(what, str(error.reason)))
    except (OSError, ValueError, http.client.HTTPException) as error:  # refused, timed out, reset, not HTTP
        why = str(getattr(error, "reason", error)) or type(error).__name__
        return _line(now_us, target, NO_ANSWER, _failed(what, why))
    if len(body) > MAX_BODY_BYTES:
        return _line(now_us, target, status, _failed(what, f"more than {MAX_BODY_BYTES >> 20} MiB"))
    return _line(now_us, target, status, _metrics(body) if what == METRICS else _loads(body))


def _loads(body: bytes) -> object:
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # the reader quarantines it, with its text to look at
        return {"error": "not JSON", "text": body[:500].decode("utf-8", "replace")}


def _metrics(body: bytes) -> str:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return ERROR + "not UTF-8"
    return text if is_exposition(text) else ERROR + "not in the Prometheus text format"


def _failed(what: str, why: str) -> object:
    return ERROR + " ".join(why.split()) if what == METRICS else {"error": why}


def _told(body: object) -> bool:
    """Whether an answer is what was asked for."""
    return not (body.startswith(ERROR) if isinstance(body, str) else isinstance(body, dict) and "error" in body)


def _body(answer: http.client.HTTPResponse, end_s: float) -> bytes:
    """What a target answers until `end_s`: its timeout is for the whole, not for each drop of it.

    No more than a block beyond MAX_BODY_BYTES is read.
    """
    held = b""
    while len(held) <= MAX_BODY_BYTES and (block := answer.read1(_READ_BYTES)):
        held += block
        if time.monotonic() > end_s:
            raise TimeoutError("timed out")
    return held


def _no_constant(text: str) -> float:
    raise ValueError(text)


def _line(polled_at_us: int, target: str, status: int, body: object) -> dict[str, Any]:
    return {"polled_at_us": polled_at_us, "target": target, "status": status, "body": body}


def _is_http(target: str) -> bool:
    try:
        parts = urlsplit(target)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # no such port, half an IPv6 address
        return False


class _Lines:
    """Appends lines to the file of their day. A line is one write of its own, so files end whole and may be moved."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._lock = threading.Lock()

    def append(self, line: dict[str, Any], tally: Tally) -> None:
        """Raises OSError if the file cannot be written."""
        day = datetime.fromtimestamp(line["polled_at_us"] / US_PER_S, UTC).date().isoformat()
        path = Path(self._pattern.replace("{day}", day))
        data = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        told = line["status"] == OK and _told(line["body"])
        counter = tally.ok if told else tally.refused if line["status"] else tally.silent
        with self._lock:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(data)
            tally.files.add(str(path))
            counter[line["target"]] += 1


def in_order(targets: Sequence[str]) -> tuple[str, ...]:
    """Targets of a command line: each may be a list with commas; the first mention counts."""
    return tuple(dict.fromkeys(part for target in targets for part in target.split(",") if part))
