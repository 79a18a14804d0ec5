"""Traffic of an emulated pool: sessions with shared prefixes, classes by prompt length, heavy-tailed outputs.

Deterministic in its seed. Nothing here is fitted to a public trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class App:
    """One application. Prompt and output tokens are log-normal (median, sigma of the log).

    `prefix_blocks` are shared by all its sessions; a session has a geometric number of turns, each `think_s`
    (exponential mean) after the one before was sent.
    """

    name: str
    share: float
    prefix_blocks: int
    prompt_median: float
    prompt_sigma: float
    output_median: float
    output_sigma: float
    turns_mean: float
    think_s: float


@dataclass(frozen=True, slots=True)
class TrafficSpec:
    """Requests arrive for `window_s` a day at `rate_per_s`, slowly rising and falling by `swing_frac`.

    A session ends before its prompt would be longer than `prompt_max_tokens`. `output_max_tokens`: what clients allow.
    """

    apps: tuple[App, ...]
    rate_per_s: float
    window_s: float
    swing_frac: float
    day_swing_frac: float
    prompt_max_tokens: int
    output_max_tokens: int
    block_tokens: int


@dataclass(frozen=True, slots=True)
class DayTraffic:
    """One day's requests, by arrival. `hash_offset`, `hashes`: full prompt blocks, u64, chained by construction."""

    arrival_s: Float64  # since the window's start
    prompt_tokens: Int64
    output_tokens: Int64
    app: Int64
    session: Int64
    turn: Int64
    hash_offset: Int64
    hashes: npt.NDArray[np.uint64]


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        z = x + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def day_traffic(spec: TrafficSpec, *, day: int, seed: int) -> DayTraffic:
    """The traffic of one day (0, 1, …). Sessions do not cross days; an app's shared prefix is the same every day."""
    rng = np.random.default_rng([seed, day])
    rate = spec.rate_per_s * (1 + spec.day_swing_frac * rng.uniform(-1, 1))
    turns_mean = sum(a.share * a.turns_mean for a in spec.apps)
    # Sessions start early enough that the window opens with running ones, as a busy hour does.
    lead_s = max(a.turns_mean * a.think_s for a in spec.apps) * 2
    sessions = rng.poisson(rate / turns_mean * (spec.window_s + lead_s))
    start = rng.uniform(-lead_s, spec.window_s, sessions)
    app = rng.choice(len(spec.apps), sessions, p=np.array([a.share for a in spec.apps]))
    rows: list[tuple[float, int, int, int, int, int]] = []
    for s in range(sessions):
        rows.extend(_session(spec, int(app[s]), s, float(start[s]), rng))
    kept = np.array([r for r in rows if 0 <= r[0] < spec.window_s], np.float64).reshape(-1, 6)
    # Slow swing over the window: thin by the time's share of the peak rate.
    phase = 2 * np.pi * kept[:, 0] / spec.window_s + rng.uniform(0, 2 * np.pi)
    keep = rng.uniform(0, 1 + spec.swing_frac, len(kept)) < 1 + spec.swing_frac * np.sin(phase)
    kept = kept[keep]
    kept = kept[np.argsort(kept[:, 0], kind="stable")]
    prompt = kept[:, 1].astype(np.int64)
    offset, hashes = _hashes(spec, prompt, kept[:, 3].astype(np.int64), kept[:, 4].astype(np.int64), day, seed)
    return DayTraffic(
        arrival_s=kept[:, 0],
        prompt_tokens=prompt,
        output_tokens=kept[:, 2].astype(np.int64),
        app=kept[:, 3].astype(np.int64),
        session=kept[:, 4].astype(np.int64),
        turn=kept[:, 5].astype(np.int64),
        hash_offset=offset,
        hashes=hashes,
    )


def _session(
    spec: TrafficSpec, app: int, session: int, start_s: float, rng: np.random.Generator
) -> list[tuple[float, int, int, int, int, int]]:
    a = spec.apps[app]
    prefix = a.prefix_blocks * spec.block_tokens
    turns = int(rng.geometric(1 / a.turns_mean))
    at = start_s
    prompt = prefix + int(rng.lognormal(np.log(a.prompt_median), a.prompt_sigma)) + 1
    rows = []
    for turn in range(turns):
        if prompt > spec.prompt_max_tokens:
            break
        # Longer prompts ask for somewhat longer answers; a few are cut at what the client allows.
        median = a.output_median * (prompt / (prefix + a.prompt_median)) ** 0.2
        output = min(int(rng.lognormal(np.log(median), a.output_sigma)) + 1, spec.output_max_tokens)
        rows.append((at, prompt, output, app, session, turn))
        at += rng.exponential(a.think_s)
        prompt += output + int(rng.lognormal(np.log(a.prompt_median * 0.15 + 20), a.prompt_sigma)) + 1
    return rows


def _hashes(
    spec: TrafficSpec, prompt: Int64, app: Int64, session: Int64, day: int, seed: int
) -> tuple[Int64, npt.NDArray[np.uint64]]:
    blocks = prompt // spec.block_tokens
    offset = np.concatenate([[0], np.cumsum(blocks)])
    at = np.arange(offset[-1]) - np.repeat(offset[:-1], blocks)
    shared = at < np.repeat(np.array([a.prefix_blocks for a in spec.apps])[app], blocks)
    root = _mix(np.uint64(seed) + np.repeat(app, blocks).astype(np.uint64) * np.uint64(7919))
    own = _mix(
        np.repeat(session, blocks).astype(np.uint64) * np.uint64(1_000_003) + np.uint64(day + 1) * np.uint64(10**12)
    )
    return offset, _mix(np.where(shared, root, own ^ root) ^ _mix(at.astype(np.uint64)))
