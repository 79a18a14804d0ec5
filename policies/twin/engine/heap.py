"""A binary heap of (step, request) rows, smallest first. Kernels."""

from __future__ import annotations

from policies.compiled import kernel
from policies.twin.engine.parts import Int64


@kernel
def _before(step_a: int, request_a: int, step_b: int, request_b: int) -> bool:
    return step_a < step_b or (step_a == step_b and request_a < request_b)


@kernel
def _risen(heap: Int64, at: int, step: int, request: int) -> int:
    """Where an entry comes to stand that may be smaller than those above the place `at`, which move down."""
    i = at
    while i > 0:
        up = (i - 1) >> 1
        if not _before(step, request, heap[up, 0], heap[up, 1]):
            break
        heap[i, 0] = heap[up, 0]
        heap[i, 1] = heap[up, 1]
        i = up
    return i


@kernel
def heap_push(heap: Int64, size: int, step: int, request: int) -> None:
    """Add an entry to a heap of `size` entries."""
    i = _risen(heap, size, step, request)
    heap[i, 0] = step
    heap[i, 1] = request


@kernel
def heap_remove(heap: Int64, size: int, at: int) -> None:
    """Remove the entry at a place; the heap then has size - 1 entries."""
    last = size - 1
    step = heap[last, 0]
    request = heap[last, 1]
    i = _risen(heap, at, step, request)
    while True:
        down = 2 * i + 1
        if down >= last:
            break
        if down + 1 < last and _before(heap[down + 1, 0], heap[down + 1, 1], heap[down, 0], heap[down, 1]):
            down += 1
        if not _before(heap[down, 0], heap[down, 1], step, request):
            break
        heap[i, 0] = heap[down, 0]
        heap[i, 1] = heap[down, 1]
        i = down
    heap[i, 0] = step
    heap[i, 1] = request
