"""`routecal replay`: a trace on a cluster under a policy, in the twin."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from features.errors import SettingsError
from pipelines.commands.options import AsJson
from pipelines.console import emit, say

if TYPE_CHECKING:
    from models.portable.estimators import Estimators
    from pipelines.cluster_file import ReplayCluster
    from policies.objective import Outcome, Quantiles
    from policies.policy import Policy

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "traces"
"""Where parsed traces are kept; ROUTECAL_TRACE_CACHE names another folder."""


def replay(
    *,
    trace: Annotated[
        list[Path], typer.Option("--trace", metavar="PATH", help="A trace of any format that ingest reads; repeatable.")
    ],
    cluster: Annotated[
        Path,
        typer.Option("--cluster", metavar="FILE", help="Fleet and laws; data/demo/cluster.toml shows how."),
    ],
    policy: Annotated[str, typer.Option("--policy", metavar="NAME|FILE", help="A router family, or a policy file.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of ties and draws: same seed, same replay.")] = 0,
    load: Annotated[float, typer.Option("--load", metavar="X", help="Arrivals come X times as fast.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Replay a trace on a cluster under a policy: latencies, goodput, reuse, bytes."""
    from pipelines.cluster_file import load_cluster
    from pipelines.replay_trace import read_trace
    from policies.objective import gaps_ms, outcome
    from policies.twin.replay import replay as run
    from policies.twin.transforms import scale_load

    if not 0 < load < float("inf"):
        raise SettingsError("--load must be above 0", value=load)
    asked = _asked(policy, load_cluster(cluster))
    for notice in asked.cluster.notices:
        say(notice)
    cache = Path(os.environ.get("ROUTECAL_TRACE_CACHE") or CACHE)
    read = read_trace(trace, asked.cluster, cache=cache)
    for notice in read.notices:
        say(notice)
    workload = scale_load(read.with_lengths(asked.cluster, asked.believed.length), load)
    pool = asked.cluster.cluster
    began = time.perf_counter()
    result = run(pool, asked.true, asked.policy, workload, seed=seed, decision_laws=asked.believed)
    wall_s = time.perf_counter() - began
    found = outcome(pool, workload, result, asked.cluster.pool.goal)
    itl_ms = gaps_ms(result)
    _tell(asked.name, found, itl_ms, wall_s)
    if as_json:
        value = {"policy": asked.name, "seed": seed, "load": load, **asdict(found), "itl_ms": asdict(itl_ms)}
        emit(value | {"wall_s": round(wall_s, 4)})


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is replayed: `true` laws drive the pool, its routers act on the `believed` ones."""

    name: str
    policy: Policy
    cluster: ReplayCluster
    true: Estimators
    believed: Estimators


def _asked(policy: str, cluster: ReplayCluster) -> _Asked:
    from policies.families.registry import FAMILIES
    from policies.policy import default_policy

    if policy not in FAMILIES:
        return _from_file(Path(policy), cluster, FAMILIES)
    if cluster.laws is None:
        raise SettingsError(
            "a cluster file must give laws where the policy is a family",
            value=policy,
            place="laws",
            hint="add [laws], or give a policy file, whose estimators then drive the pool",
        )
    made = default_policy(cluster.pool.classes, risk=cluster.laws.risk, family=policy)
    made = replace(made, decode_moment=cluster.pool.moment_of(policy))
    return _Asked(policy, made, cluster, cluster.laws, cluster.laws)


def _from_file(path: Path, cluster: ReplayCluster, families: tuple[str, ...]) -> _Asked:
    from policies.policy_file import estimators_of, parse, policy_of

    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(
            "a policy must be a family or a policy file",
            value=str(path),
            place="--policy",
            hint=f"{error.strerror}; families: {', '.join(families)}",
        ) from None
    file = parse(data, place=str(path))
    pool = cluster.cluster
    for key in ("block_tokens", "kv_bytes_per_token"):
        learned, here = getattr(file.compatibility, key), getattr(pool, key)
        if learned != here:
            say(f"the policy file was learned with {key} = {learned}; the cluster has {here}")
    policy, believed = policy_of(file), estimators_of(file)
    described = cluster.with_classes(policy.classes)
    return _Asked(file.policy_version, policy, described, cluster.laws or believed, believed)


def _tell(name: str, found: Outcome, itl_ms: Quantiles, wall_s: float) -> None:
    say(
        f"{name}: {found.requests} requests, {found.completed} completed, {found.rejected} rejected, "
        f"{found.cancelled} cancelled, {found.failed} failed, {found.preemptions} preemptions"
    )
    say(f"goodput {found.goodput_frac:.1%}, {found.output_tokens_per_s:.0f} output tokens/s")
    for title, times in (
        ("TTFT", found.ttft_ms),
        ("TPOT", found.tpot_ms),
        ("ITL", itl_ms),
        ("end to end", found.e2e_ms),
    ):
        shown = ", ".join(
            f"P{level} {'none' if value is None else f'{value:.1f} ms'}"
            for level, value in ((50, times.p50), (95, times.p95), (99, times.p99))
        )
        say(f"{title}: {shown}")
    say(f"reused {found.reused_tokens} tokens, sent {found.transferred_bytes / 1e9:.1f} GB of KV")
    say(f"{found.simulated_s:.0f} s of traffic in {wall_s:.2f} s")
