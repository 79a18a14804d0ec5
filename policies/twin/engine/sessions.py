"""Turns that follow others arrive a think time after those have ended (docs/twin.md, "Sessions"). Kernels."""

from __future__ import annotations

from policies.compiled import kernel
from policies.twin.engine.columns import FOLLOWED, FOLLOWERS, GONE, Q_ARRIVAL, TO_COME
from policies.twin.engine.heap import heap_push, heap_remove
from policies.twin.engine.parts import Course, Int32, Int64


@kernel
def follow(course: Course, q: Int64, counters: Int64, r: int, now: int) -> None:
    """Request r has ended: its next turns will arrive."""
    child = course.child[r]
    while child >= 0:
        q[child, Q_ARRIVAL] = now + course.think[child]
        heap_push(course.followers, counters[FOLLOWERS], q[child, Q_ARRIVAL], child)
        counters[FOLLOWERS] += 1
        counters[TO_COME] -= 1
        child = course.sibling[child]


@kernel
def follow_gone(course: Course, gone: Int32, q: Int64, counters: Int64, now: int) -> None:
    """What is new among the ended requests ended now."""
    for k in range(counters[FOLLOWED], counters[GONE]):
        follow(course, q, counters, gone[k], now)
    counters[FOLLOWED] = counters[GONE]


@kernel
def take_follower(course: Course, counters: Int64) -> None:
    """The next one arrives."""
    heap_remove(course.followers, counters[FOLLOWERS], 0)
    counters[FOLLOWERS] -= 1
