"""`python -m policies.twin.warm`: compiles the twin's kernels into the cache; processes started next only load them."""

from __future__ import annotations

import sys
import time

import numpy as np

from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, one_type
from models.portable.transfer import TransferLaw
from policies.lengths import constant_length
from policies.policy import ClassPolicy, default_policy
from policies.twin.cluster import Cluster, Node
from policies.twin.replay import replay
from policies.twin.workload import Workload


def warm() -> float:
    """Replay one request; seconds that it took. Everything that kernels are specialised for is its argument types."""
    began = time.perf_counter()
    laws = Estimators(
        length=constant_length(8.0),
        prefill=one_type(StepLaw((0.01, 1e-5, 0.0, 0.0, 0.0))),
        decode=one_type(StepLaw((0.01, 0.0, 0.0, 0.0))),
        transfer=TransferLaw({"local": 0.0, "cross": 0.0}, {"local": 1.0, "cross": 1.0}),
    )
    cluster = Cluster((Node("p", "a", 8, 100.0),), (Node("d", "a", 8, 100.0),), (), 16, 1000)
    one, none = np.ones(1, np.int32), np.full(1, -1, np.int32)
    workload = Workload(
        arrival_ns=np.zeros(1, np.int64),
        prompt_tokens=one * 20,
        output_tokens=one * 4,
        class_index=one * 0,
        block_offset=np.array([0, 1], np.int64),
        block_ids=one * 0,
        forced_prefill=none,
        forced_decode=none,
        scored=np.ones(1, np.bool_),
    )
    policy = default_policy([ClassPolicy("default", ttft_target_s=1.0)])
    replay(cluster, laws, policy, workload, seed=0, estimated_output=one * 8, expected_output=one * 8)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.stderr.write(f"kernels ready after {warm():.1f} s\n")
