"""Memory that outlives a replay, so that the next one need not ask the system for it again."""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=np.generic)
HUGE, ZEROS_HUGE_TO = 1 << 21, 1 << 26
"""Bytes of a large page, and of the largest array of zeros that gets them; larger ones are given back page by page."""


class Arena:
    """Arrays by name. Whoever keeps an arena for the next replay saves allocations, and nothing else changes.

    One replay at a time may use it: the next one's arrays are the same memory.
    """

    def __init__(self) -> None:
        self._held: dict[str, mmap.mmap] = {}
        self._used: dict[str, tuple[int, npt.NDArray[np.int64]]] = {}

    def empty(self, name: str, shape: tuple[int, ...], dtype: type[T]) -> npt.NDArray[T]:
        """An array with anything in it."""
        return self._array(name, shape, dtype, huge_to=sys.maxsize)

    def _array(self, name: str, shape: tuple[int, ...], dtype: type[T], huge_to: int) -> npt.NDArray[T]:
        size = max(math.prod(shape), 1) * np.dtype(dtype).itemsize
        if name not in self._held or len(self._held[name]) < size:
            self._held[name] = _memory(size, huge_to)
        self._used[name] = (0, np.zeros(0, np.int64))
        return np.frombuffer(self._held[name], dtype, math.prod(shape)).reshape(shape)

    def zeros(self, name: str, shape: tuple[int, ...], dtype: type[T]) -> npt.NDArray[T]:
        """An array of zeros."""
        fresh = self._held.get(name)
        array = self._array(name, shape, dtype, ZEROS_HUGE_TO)
        if self._held[name] is fresh:
            array[...] = 0
        return array

    def give_back(self, name: str, first: int, last: int) -> None:
        """No byte before `last` will be read again; large pages from the one of `first` on go back to the system."""
        start, end = first // HUGE * HUGE, last // HUGE * HUGE
        if end > start:
            self._held[name].madvise(mmap.MADV_DONTNEED, start, end - start)

    def give_back_zeros(self, name: str, last: int) -> None:
        """Whole pages of an array that hold zeros only go back to the system. `last`: bytes that were ever written to.

        They read as zeros again, so nobody notices. Looks at what the last call left and at what came since.
        """
        seen, held = self._used[name]
        pages = max(seen, min(last, len(self._held[name])) // mmap.PAGESIZE)
        held = np.concatenate([held, np.arange(seen, pages)])
        words = np.frombuffer(self._held[name], np.uint64, pages * mmap.PAGESIZE // 8).reshape(
            pages, mmap.PAGESIZE // 8
        )
        empty = np.array([not words[page].any() for page in held], np.bool_)
        gone = held[empty]
        for run in np.split(gone, np.flatnonzero(np.diff(gone) != 1) + 1) if len(gone) else ():
            self._held[name].madvise(mmap.MADV_DONTNEED, int(run[0]) * mmap.PAGESIZE, len(run) * mmap.PAGESIZE)
        self._used[name] = (pages, held[~empty])

    def fill(self, value: int) -> None:
        """Every byte of the held memory becomes `value`: what a replay must not notice."""
        for held in self._held.values():
            np.frombuffer(held, np.uint8)[...] = value


def _memory(size: int, huge_to: int) -> mmap.mmap:
    held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if HUGE <= size <= huge_to and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            held.madvise(mmap.MADV_HUGEPAGE)
    return held
