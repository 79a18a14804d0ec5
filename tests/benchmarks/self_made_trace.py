"""A made-up trace in Mooncake format: talks that go on, system prompts, bursts, long prompts, long answers.

Whole numbers from a counter-based hash only, so that it is the same everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

BLOCK_TOKENS = 512
REQUESTS = 2_000
SYSTEMS = 5
LONGEST = 24_000
_MASK = (1 << 64) - 1


def numbers(seed: int) -> Iterator[int]:
    """splitmix64."""
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        x = state
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = ((x ^ (x >> shift)) * factor) & _MASK
        yield x ^ (x >> 31)


def trace(requests: int = REQUESTS, seed: int = 5) -> list[dict[str, object]]:
    """Rows by arrival. Quiet and busy minutes by turns; some arrivals share an instant."""
    drawn = numbers(seed)

    def below(n: int) -> int:
        return next(drawn) % n

    talks: list[tuple[list[int], int]] = []
    rows: list[dict[str, object]] = []
    fresh, at_ms = 1_000, 0
    while len(rows) < requests:
        busy = at_ms // 20_000 % 3 == 1
        at_ms += below(130 if busy else 260)
        for _ in range(1 + (below(5) == 0) * below(4)):
            if talks and below(100) < 45:
                blocks, prompt = talks.pop(below(min(len(talks), 400)))
                prompt += 40 + below(900)
            else:
                system = below(SYSTEMS)
                blocks, prompt = [system * 10 + k for k in range(1 + system)], (1 + system) * BLOCK_TOKENS
                prompt += 30 + below(1_500) + (below(8) == 0) * below(16_000)
            prompt = min(prompt, LONGEST)
            total = -(-prompt // BLOCK_TOKENS)
            kept = blocks[:total]
            kept += [fresh + k for k in range(total - len(kept))]
            fresh += total
            output = 1 + below(40) if below(4) == 0 else 20 + below(260) + (below(12) == 0) * below(1_200)
            rows.append({"timestamp": at_ms, "input_length": prompt, "output_length": output, "hash_ids": kept})
            # The partial last block is of this prompt alone.
            talks.append((kept[: prompt // BLOCK_TOKENS], prompt + output))
    return rows[:requests]


def write(path: Path, requests: int = REQUESTS) -> Path:
    """The trace as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in trace(requests)))
    return path
