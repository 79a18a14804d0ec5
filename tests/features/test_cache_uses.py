from __future__ import annotations

import polars as pl

from features.cache_uses import cache_uses
from features.schemas import with_all_columns


def test_prompts_with_hashes_by_the_time_at_which_p_looked() -> None:
    log = pl.DataFrame(
        {
            "request_id": ["a", "b", "c", "d", "e"],
            "prefill_node": ["p0", "p0", None, "p1", "p0"],
            "arrived_at_us": [5, 6, 7, 8, 9],
            "prefill_started_at_us": [30, None, 7, 8, 9],
            "block_hashes": pl.Series([[1, 2], [1], [1], None, [3]], dtype=pl.List(pl.UInt64)),
            "block_tokens": [16, 16, 16, 16, 16],
            "prompt_tokens": [40, 20, 20, 20, 20],
            "prefill_cached_tokens": [16, None, 0, 0, 0],
            "finish_reason": ["stop", None, "stop", "stop", "rejected"],
        }
    )
    uses = cache_uses(with_all_columns("requests", log))
    assert uses["at_us"].to_list() == [6, 30]
    assert uses["cached_tokens"].to_list() == [None, 16]
    assert uses["block_hashes"].to_list() == [[1], [1, 2]]
