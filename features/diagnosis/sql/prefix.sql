-- One row a P and in all (node null): prompt tokens, what was hit, and what an endless cache of the day would have hit.
-- Over requests whose hashes and hit are known. Tokens of blocks are estimates where keys were sampled.
WITH asked AS (
    SELECT
        prefill_node AS node,
        count(*) AS requests,
        sum(prompt_tokens)::BIGINT AS prompt_tokens,
        sum(cached_tokens)::BIGINT AS cached_tokens
    FROM r
    WHERE block_hashes IS NOT NULL AND cached_tokens IS NOT NULL AND prefill_started_at_us IS NOT NULL
    GROUP BY GROUPING SETS ((), (prefill_node))
),
could AS (
    SELECT
        node,
        coalesce(sum(block_tokens) FILTER (WHERE before_us IS NOT NULL), 0)::BIGINT * getvariable('block_stride')
            AS ceiling_tokens,
        coalesce(sum(block_tokens) FILTER (WHERE before_us IS NOT NULL AND hit), 0)::BIGINT
            * getvariable('block_stride') AS hit_tokens,
        coalesce(sum(block_tokens) FILTER (WHERE before_us IS NULL AND hit), 0)::BIGINT * getvariable('block_stride')
            AS beyond_tokens
    FROM blocks
    GROUP BY GROUPING SETS ((), (node))
)
SELECT asked.*, ceiling_tokens, hit_tokens, beyond_tokens
FROM asked
LEFT JOIN could ON could.node IS NOT DISTINCT FROM asked.node
WHERE asked.requests > 0
ORDER BY asked.node NULLS FIRST
