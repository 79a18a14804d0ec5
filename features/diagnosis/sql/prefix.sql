-- One row a P and in all (node null): prompt tokens, what was hit, and what an endless cache of the day would have hit.
-- Requests whose P is unknown count in all only. Over requests whose hashes and hit are known; `hashed_*` over all that
-- have hashes. Tokens of blocks are estimates where keys were sampled.
WITH asked AS (
    SELECT
        prefill_node AS node,
        count(*) AS hashed_requests,
        sum(prompt_tokens)::BIGINT AS hashed_prompt_tokens,
        count(*) FILTER (WHERE told) AS requests,
        coalesce(sum(prompt_tokens) FILTER (WHERE told), 0)::BIGINT AS prompt_tokens,
        coalesce(sum(cached_tokens) FILTER (WHERE told), 0)::BIGINT AS cached_tokens
    FROM (
        SELECT *, cached_tokens IS NOT NULL AND prefill_started_at_us IS NOT NULL AS told
        FROM r
        WHERE block_hashes IS NOT NULL
    )
    GROUP BY GROUPING SETS ((), (prefill_node))
    HAVING grouping(prefill_node) = 1 OR prefill_node IS NOT NULL
),
could AS (
    SELECT
        node,
        coalesce(sum(block_tokens) FILTER (WHERE before_us IS NOT NULL), 0)::BIGINT * getvariable('block_stride')
            AS hashed_ceiling_tokens,
        coalesce(sum(block_tokens) FILTER (WHERE before_us IS NOT NULL AND hit IS NOT NULL), 0)::BIGINT
            * getvariable('block_stride') AS ceiling_tokens,
        coalesce(sum(block_tokens) FILTER (WHERE before_us IS NOT NULL AND hit), 0)::BIGINT
            * getvariable('block_stride') AS hit_tokens,
        coalesce(sum(block_tokens) FILTER (WHERE before_us IS NULL AND hit), 0)::BIGINT * getvariable('block_stride')
            AS beyond_tokens
    FROM blocks
    GROUP BY GROUPING SETS ((), (node))
    HAVING grouping(node) = 1 OR node IS NOT NULL
)
SELECT
    asked.*,
    coalesce(hashed_ceiling_tokens, 0) AS hashed_ceiling_tokens,
    coalesce(ceiling_tokens, 0) AS ceiling_tokens,
    coalesce(hit_tokens, 0) AS hit_tokens,
    coalesce(beyond_tokens, 0) AS beyond_tokens
FROM asked
LEFT JOIN could ON could.node IS NOT DISTINCT FROM asked.node
WHERE asked.hashed_requests > 0
ORDER BY asked.node NULLS FIRST
