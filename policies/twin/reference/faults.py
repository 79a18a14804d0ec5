"""What keeps requests off nodes in the plain reference: size, drains, outages. Rules: docs/twin.md."""

from __future__ import annotations

from collections.abc import Callable

from policies.twin.faults import Faults
from policies.twin.outcomes import NOT_YET, Status
from policies.twin.reference.decode import DecodeNode
from policies.twin.reference.links import Links
from policies.twin.reference.prefill import PrefillNode
from policies.twin.reference.request import Request, blocks_for


def timeline(faults: Faults) -> list[tuple[int, int, str]]:
    """(time, 0 = an outage begins or 1 = a link's speed changes, node or port), in their order."""
    events = [(w.start_ns, 0, w.node) for w in faults.outages]
    events += [(now, 1, w.port) for w in faults.slow for now in (w.start_ns, w.stop_ns)]
    return sorted(events, key=lambda event: event[:2])


def lose(
    name: str,
    now: int,
    placed: list[Request],
    prefill: list[PrefillNode],
    decode: list[DecodeNode],
    links: Links,
    drop: Callable[[Request, Status, int], None],
) -> None:
    """A node is gone, with all that is on it."""
    for request in sorted(placed, key=lambda r: r.index):
        if request.status is not None:
            continue
        on_p = prefill[request.prefill_node].name == name and not request.released
        handed_off = request.prefill_finished_ns != NOT_YET
        if on_p or (handed_off and decode[request.decode_node].name == name):
            drop(request, Status.FAILED, now)
    for p in prefill:
        if p.name == name:
            p.restart(now)
            links.forget(prefill=p.index)
    for d in decode:
        if d.name == name:
            links.forget(decode=d.index)


def closed(
    nodes: tuple[Faults, list[PrefillNode], list[DecodeNode]], pair: tuple[int, int], asks_decode: bool, now: int
) -> set[str]:
    """Names of the pair's nodes that do not accept."""
    faults, prefill, decode = nodes
    names = {prefill[pair[0]].name} | ({decode[pair[1]].name} if asks_decode else set())
    return {name for name in names if faults.is_closed(name, now)}


def too_large(request: Request, prefill: list[PrefillNode], decode: list[DecodeNode], block_tokens: int) -> bool:
    """No P or no D, or not the forced ones, could ever hold it."""
    if request.forced is not None:
        prefill, decode = [prefill[request.forced[0]]], [decode[request.forced[1]]]
    prompt_blocks = blocks_for(request.prompt_tokens, block_tokens)
    all_blocks = blocks_for(request.prompt_tokens + request.output_tokens, block_tokens)
    return all(p.capacity < prompt_blocks for p in prefill) or all(d.capacity < all_blocks for d in decode)
