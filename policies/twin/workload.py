"""The traffic that the twin replays: one row a request, sorted by arrival, as flat arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

NAMED = ("app", "tenant", "model")
NUMBERS = (
    "cached_frac",
    "max_output_tokens",
    "turn",
    "previous_output",
    "session_mean_output",
    "hour",
    "recent_output",
)
"""What a workload carries of an `Arrival` beside its own rows: names and numbers."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What a router knows of n requests when they arrive, beside class and prompt: `models.portable.length.Arrival`.

    `named`: shape (n, len(NAMED)), places in `names`, -1 = unknown. `numbers`: shape (n, len(NUMBERS)), NaN = unknown.
    `learned`: whether a router learns from the answer; not from one that was cancelled or whose length is a guess.
    """

    names: npt.NDArray[np.str_]
    named: Int32
    numbers: Float64
    learned: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Workload:
    """n requests. `arrival_ns` ascends, 0 = start of the replay.

    `block_ids[block_offset[i]:block_offset[i + 1]]` are request i's prompt blocks, dense ids (equal id = equal prefix);
    only full blocks are listed, at most prompt_tokens // block_tokens of them; none = no prefix is known.
    `forced_prefill`, `forced_decode`: node index from the log, or -1 = the policy decides.
    `scored`: 1 = counts in the outcome, 0 = warm-up. `arrivals`: None = routers know class and prompt length only, and
    learn from every answer.

    `priority`: of a request in the queue of its P, lower first; None = all the same. At most 64 different ones.
    `cancel_ns`: when the client gives up, on the clock of `arrival_ns`, -1 = never; None = nobody does.
    `parent`, `think_ns`: closed loop. The request arrives `think_ns` (at least 1) after its parent, an earlier row, has
    ended in any way, and gives up as long after that as `cancel_ns` is after `arrival_ns`, which says nothing else of
    it; -1 = it arrives at `arrival_ns`. None = all do.
    """

    arrival_ns: Int64
    prompt_tokens: Int32
    output_tokens: Int32
    class_index: Int32
    block_offset: Int64
    block_ids: Int32
    forced_prefill: Int32
    forced_decode: Int32
    scored: npt.NDArray[np.bool_]
    request_ids: tuple[str, ...] = ()
    arrivals: Arrivals | None = None
    cancel_ns: Int64 | None = None
    parent: Int32 | None = None
    think_ns: Int64 | None = None
    priority: Int32 | None = None

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.arrival_ns)
