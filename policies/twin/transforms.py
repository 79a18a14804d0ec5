"""Other traffic made of a workload: pure functions from workloads to workloads.

All keep what they do not speak of, request ids among it. Times are rounded to whole ns by floor(x + 0.5); requests
whose arrivals end up at one instant stay in their order, and no turn comes before the one that it follows. A request
that moves takes its cancellation along. Where there is chance, it is a hash of (seed, request).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from features.errors import TwinError
from policies.twin.workload import Arrivals, Float64, Int32, Int64, Workload

THIN, JITTER, CANCEL, PATIENCE, MIX = 11, 12, 13, 14, 15
"""Components of the hash."""
BLOCKS = ("block_offset", "block_ids")


def scale_load(workload: Workload, factor: float) -> Workload:
    """The same requests `factor` times as dense: arrivals and think times are divided by it, patience is not."""
    _above(0.0, factor=factor)
    if factor == 1.0:
        return workload
    moved = _moved(workload, _whole(workload.arrival_ns / factor))
    if moved.think_ns is None:
        return moved
    return replace(moved, think_ns=np.where(moved.think_ns < 0, -1, np.maximum(_whole(moved.think_ns / factor), 1)))


def burst(workload: Workload, *, start_ns: int, stop_ns: int, factor: float) -> Workload:
    """The window's requests arrive `factor` times as dense from its start on; those after it come as much earlier."""
    _above(0.0, factor=factor)
    if start_ns > stop_ns:
        raise TwinError("`start_ns <= stop_ns` must hold", value=(start_ns, stop_ns))
    into = np.clip(workload.arrival_ns - start_ns, 0, stop_ns - start_ns)
    return _moved(workload, workload.arrival_ns - into + _whole(into / factor))


def thin(workload: Workload, keep_frac: float, *, seed: int) -> Workload:
    """Each request is kept with this probability; a session is kept or goes as a whole."""
    _within(keep_frac=keep_frac)
    return take(workload, np.flatnonzero(_uniform(seed, THIN, _roots(workload)) < keep_frac))


def scale_lengths(workload: Workload, *, block_tokens: int, prompt: float = 1.0, output: float = 1.0) -> Workload:
    """Prompts and outputs of so many times the tokens, at least 1 of each (an output of 0 stays).

    A shorter prompt keeps the hashes of its leading full blocks; a longer one's new blocks have none.
    """
    _above(0.0, prompt=prompt, output=output)
    prompts = np.maximum(_whole(workload.prompt_tokens * prompt), 1)
    outputs = np.where(workload.output_tokens > 0, np.maximum(_whole(workload.output_tokens * output), 1), 0)
    offset, ids = _first_blocks(workload, np.minimum(np.diff(workload.block_offset), prompts // block_tokens))
    return replace(
        workload,
        prompt_tokens=prompts.astype(np.int32),
        output_tokens=outputs.astype(np.int32),
        block_offset=offset,
        block_ids=ids,
    )


def mix_classes(workload: Workload, keep_frac: Sequence[float], *, seed: int) -> Workload:
    """Another mix of SLO classes: each request of class k is kept with probability `keep_frac[k]`.

    A session goes by the class of its first turn.
    """
    for frac in keep_frac:
        _within(keep_frac=frac)
    root = _roots(workload)
    classes = workload.class_index[root]
    if len(classes) and int(classes.max()) >= len(keep_frac):
        raise TwinError("every class needs its `keep_frac`", value=(int(classes.max()), len(keep_frac)))
    kept = _uniform(seed, MIX, root) < np.asarray(keep_frac, np.float64)[classes]
    return take(workload, np.flatnonzero(kept))


def shift(workload: Workload, by_ns: int) -> Workload:
    """Everything `by_ns` later; arrivals must stay at 0 or after."""
    if workload.requests and int(workload.arrival_ns[0]) + by_ns < 0:
        raise TwinError("arrivals must not be before 0", value=int(workload.arrival_ns[0]) + by_ns)
    return _moved(workload, workload.arrival_ns + by_ns)


def merge(*workloads: Workload) -> Workload:
    """All requests of several workloads by arrival; their prefixes are apart from each other.

    At one instant the earlier workload's requests come first. A column that only some have is filled with what its
    absence means; what routers know of requests is kept if all have it.
    """
    if not workloads:
        raise TwinError("`merge` needs a workload", value=0)
    first_row = np.cumsum([0, *(w.requests for w in workloads)])
    first_block = np.cumsum([0, *(int(w.block_ids.max()) + 1 if len(w.block_ids) else 0 for w in workloads)])
    columns: dict[str, Any] = {name: _joined(workloads, name) for name in _columns(workloads)}
    ids = [w.block_ids + np.int32(first) for w, first in zip(workloads, first_block, strict=False)]
    counts = np.concatenate([np.diff(w.block_offset) for w in workloads])
    parents = [
        np.full(w.requests, -1, np.int32) if w.parent is None else np.where(w.parent < 0, -1, w.parent + first)
        for w, first in zip(workloads, first_row, strict=False)
    ]
    joined = Workload(
        **columns,
        block_offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        block_ids=np.concatenate(ids).astype(np.int32),
        request_ids=sum((w.request_ids for w in workloads), ()),
        arrivals=_join_arrivals(workloads),
        parent=None if all(w.parent is None for w in workloads) else np.concatenate(parents).astype(np.int32),
    )
    return _sorted(joined)


def copies(workload: Workload, count: int, *, every_ns: int = 0) -> Workload:
    """`count` copies with prefixes of their own, each `every_ns` after the one before."""
    if count < 1:
        raise TwinError("`count >= 1` must hold", value=count)
    return merge(*(shift(workload, k * every_ns) for k in range(count)))


def jitter(workload: Workload, resolution_ns: int, *, seed: int) -> Workload:
    """Arrivals are spread over the resolution of their stamps: each comes up to `resolution_ns` - 1 ns later."""
    if resolution_ns < 1:
        raise TwinError("`resolution_ns >= 1` must hold", value=resolution_ns)
    later = np.floor(_uniform(seed, JITTER, np.arange(workload.requests)) * resolution_ns).astype(np.int64)
    return _moved(workload, workload.arrival_ns + later)


def draw_cancellations(workload: Workload, rate: float, *, mean_ns: float, seed: int) -> Workload:
    """Each request is cancelled with probability `rate`, an exponential time of this mean after its arrival."""
    _within(rate=rate)
    _above(0.0, mean_ns=mean_ns)
    rows = np.arange(workload.requests)
    patience = _whole(-mean_ns * np.log1p(-_uniform(seed, PATIENCE, rows)))
    cancelled = _uniform(seed, CANCEL, rows) < rate
    return replace(workload, cancel_ns=np.where(cancelled, workload.arrival_ns + patience, -1))


def take(workload: Workload, rows: npt.NDArray[np.intp]) -> Workload:
    """These requests, in this order, which must not break that of arrivals; a turn whose parent is left out is open."""
    counts = np.diff(workload.block_offset)
    columns: dict[str, Any] = {name: getattr(workload, name)[rows] for name in _columns([workload])}
    starts = workload.block_offset[:-1][rows]
    offset = np.concatenate([[0], np.cumsum(counts[rows])]).astype(np.int64)
    at = np.repeat(starts - offset[:-1], counts[rows]) + np.arange(offset[-1])
    place = np.full(workload.requests + 1, -1, np.int32)
    place[rows] = np.arange(len(rows))
    known = workload.arrivals
    return Workload(
        **columns,
        block_offset=offset,
        block_ids=workload.block_ids[at],
        request_ids=tuple(workload.request_ids[i] for i in rows) if workload.request_ids else (),
        arrivals=known and Arrivals(known.names, known.named[rows], known.numbers[rows], known.learned[rows]),
        parent=None if workload.parent is None else place[workload.parent[rows]],
    )


def _moved(workload: Workload, arrival_ns: Int64) -> Workload:
    """Other arrivals; cancellations stay as long after them as they were."""
    if workload.parent is not None:
        for i in np.flatnonzero(workload.parent >= 0):
            arrival_ns[i] = max(arrival_ns[i], arrival_ns[workload.parent[i]])
    cancel_ns = workload.cancel_ns
    if cancel_ns is not None:
        cancel_ns = np.where(cancel_ns < 0, -1, np.maximum(cancel_ns + (arrival_ns - workload.arrival_ns), 0))
    return _sorted(replace(workload, arrival_ns=arrival_ns, cancel_ns=cancel_ns))


def _sorted(workload: Workload) -> Workload:
    order = np.argsort(workload.arrival_ns, kind="stable")
    if (order[1:] > order[:-1]).all():
        return workload
    return take(workload, order)


def _columns(workloads: Sequence[Workload]) -> list[str]:
    """Columns of one value a request that some workload has, but for `parent`, whose values are rows."""
    special = {*BLOCKS, "request_ids", "arrivals", "parent"}
    names = [f.name for f in fields(Workload) if f.name not in special]
    return [name for name in names if any(getattr(w, name) is not None for w in workloads)]


def _joined(workloads: Sequence[Workload], name: str) -> npt.NDArray[Any]:
    some = next(getattr(w, name) for w in workloads if getattr(w, name) is not None)
    absent = 0 if name in ("think_ns", "priority") else -1
    held = [getattr(w, name) for w in workloads]
    return np.concatenate(
        [np.full(w.requests, absent, some.dtype) if v is None else v for w, v in zip(workloads, held, strict=True)]
    )


def _join_arrivals(workloads: Sequence[Workload]) -> Arrivals | None:
    known = [w.arrivals for w in workloads if w.arrivals is not None]
    if len(known) < len(workloads):
        return None
    first = np.cumsum([0, *(len(a.names) for a in known)])
    return Arrivals(
        names=np.concatenate([a.names for a in known]),
        named=np.concatenate(
            [np.where(a.named < 0, -1, a.named + k) for a, k in zip(known, first, strict=False)]
        ).astype(np.int32),
        numbers=np.concatenate([a.numbers for a in known]),
        learned=np.concatenate([a.learned for a in known]),
    )


def _first_blocks(workload: Workload, kept: Int64) -> tuple[Int64, Int32]:
    counts = np.diff(workload.block_offset)
    inside = np.arange(len(workload.block_ids)) - np.repeat(workload.block_offset[:-1], counts)
    offset = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
    return offset, workload.block_ids[inside < np.repeat(kept, counts)]


def _roots(workload: Workload) -> Int64:
    """The first turn of each request's session, as far as parents say."""
    root = np.arange(workload.requests)
    if workload.parent is not None:
        for i, parent in enumerate(workload.parent):
            if parent >= 0:
                root[i] = root[parent]
    return root


def _uniform(seed: int, component: int, rows: Int64) -> Float64:
    """A number in [0, 1) for each row, by hash."""
    with np.errstate(over="ignore"):
        bits = _mix(
            _mix(_mix(np.full(len(rows), seed % 2**64, np.uint64)) ^ np.uint64(component)) ^ rows.astype(np.uint64)
        )
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _whole(values: npt.NDArray[np.floating[Any]]) -> Int64:
    whole: Int64 = np.floor(values + 0.5).astype(np.int64)
    return whole


def _above(least: float, **values: float) -> None:
    for name, value in values.items():
        if not value > least:
            raise TwinError(f"`{name} > {least:g}` must hold", value=value)


def _within(**values: float) -> None:
    for name, value in values.items():
        if not 0.0 <= value <= 1.0:
            raise TwinError(f"`0 <= {name} <= 1` must hold", value=value)
