"""How known engines schedule, by name: settings of the twin, to start from.

Each rule below stands as its engine's code has it (read in 2026); what is not named is neutral, its real value unknown
or a matter of the deployment (`chunk_tokens`, `*_max_seqs`, `swap_gbps`).

`sglang` (srt/disaggregation/decode.py, managers/schedule_batch.py):
- P frees a prompt's KV when its sender has sent it. D takes landed prompts and reservations in every round, as many as
  fit; those that were retracted come first, and while one of them waits nobody new is reserved (`readmit_first`).
- A retracted sequence's KV goes to host memory and is loaded back, oldest first (`swap`, `first_preempted`).
- D keeps no prefixes unless asked (its radix cache is off), so that prompt blocks are not shared.
- P makes the first token, but D shows it once the KV is there: `first_token` stays `decode`, late by one step.
- Not as in the engine: its D reserves before P begins the prompt and leaves 512 tokens a request free
  (`admission_reserve_blocks` is a fixed number, 0 here), and retracts who has made the fewest tokens.

`vllm` (v1/core/sched/scheduler.py, NIXL connector):
- D reads the KV, and the end of its read tells P to free it (`transfer`). D computes the prompt's last token itself:
  the first token is made on D.
- A block is taken for the tokens that a step computes (`growth_lag` 1). Full blocks are found by hash, also on D
  (`share_prompt_blocks`). Running sequences come first; the youngest one makes room, goes to the head of the queue and
  is computed again in steps; in a step that preempted nobody else is let in.
- Not as in the engine: its D grows before it reserves, and does not fetch blocks that it holds.

`dynamo-replay`: NVIDIA Dynamo's offline replay (1.6), equal to it stage by stage (benchmarks/fidelity).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from policies.twin.cluster import Discipline

PROFILES: Mapping[str, Discipline] = MappingProxyType(
    {
        "sglang": Discipline(preemption="swap", readmission="first_preempted"),
        "vllm": Discipline(
            boundary_order="reserve_first",
            growth_lag=1,
            share_prompt_blocks=True,
            recompute="steps",
        ),
        "dynamo-replay": Discipline(
            reservations_per_boundary=1,
            release="activation",
            step_tokens="mean",
            contention="none",
            boundary_order="reserve_first",
            growth_lag=1,
            share_prompt_blocks=True,
            recompute="steps",
        ),
    }
)
