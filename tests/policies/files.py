"""A small policy file for tests of everything that handles files."""

from __future__ import annotations

from datetime import date

from policies.conformance import vectors
from policies.conformance_views import Geometry
from policies.policy import ClassPolicy, Policy, default_policy
from policies.policy_file import Origin, build, with_proof
from policies.policy_models import PolicyFile
from tests.policies.views import estimators

GEOMETRY = Geometry(block_tokens=16, kv_bytes_per_token=327_680, chunk_tokens=8192)
CLASSES = (
    ClassPolicy("interactive", ttft_target_s=2.0, tpot_target_s=0.05, reserve_blocks=64.0),
    ClassPolicy("batch", objective="token_throughput", quantile=0.5),
)
EVIDENCE = {
    "verdict": "not distinguishable",
    "promotion_cap": "shadow",
    "reason": "the interval of the difference holds 0",
    "details": {"gates": [{"name": "1a", "status": "passed", "value": 0.031, "threshold": 0.05}]},
}


def small_policy() -> Policy:
    return default_policy(CLASSES)


def small_origin(**changes) -> Origin:
    known = {
        "pool": "demo",
        "day": date(2026, 11, 3),
        "model": "llama-70b",
        "engine": "sglang",
        "block_tokens": GEOMETRY.block_tokens,
        "kv_bytes_per_token": GEOMETRY.kv_bytes_per_token,
        "chunk_tokens": GEOMETRY.chunk_tokens,
        "code_revision": "0123abc",
        "capability_level": "decisions",
        "digests": {"requests/2026-11-03": "sha256:" + "ab" * 32},
        "incumbent": {"family": "gated_utilisation", "policy_version": None, "content_hash": None},
    }
    return Origin(**(known | changes))


def small_file(*, n_vectors: int | None = 3, **changes) -> PolicyFile:
    """`n_vectors` of every family, None = all."""
    policy, laws = small_policy(), estimators()
    kept: list = []
    count: dict[str, int] = {}
    for vector in vectors(policy, laws, GEOMETRY):
        family = vector["rules"]["family"]
        count[family] = count.get(family, 0) + 1
        if n_vectors is None or count[family] <= n_vectors:
            kept.append(vector)
    return with_proof(build(policy, laws, small_origin(**changes)), evidence=EVIDENCE, vectors=kept)
