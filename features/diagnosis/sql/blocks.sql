-- One row a prompt block that could be a hit (whole, and not the prompt's last token) and whose key is in the sample.
-- Sampling is by key, so that every use of a sampled prefix is kept; counts times `block_stride` are estimates.
-- `before_us`: an earlier request of the day had the same prefix, so an endless cache would hold it.
WITH long AS (
    SELECT
        request_id,
        prefill_node AS node,
        arrived_at_us,
        prefill_started_at_us AS start_us,
        prefill_finished_at_us AS end_us,
        prompt_tokens,
        cached_tokens,
        block_tokens,
        unnest(block_hashes) AS block,
        generate_subscripts(block_hashes, 1) AS place,
        block_hash_scope
    FROM r
    WHERE block_hashes IS NOT NULL
),
keyed AS (
    SELECT
        hash(block, block_tokens, coalesce(block_hash_scope, '')) AS key,
        request_id, node, arrived_at_us, start_us, end_us, block_tokens, place,
        -- Unknown hits are null; of a prompt that never began nothing could be hit.
        CASE WHEN start_us IS NOT NULL THEN place * block_tokens <= cached_tokens END AS hit
    FROM long
    WHERE place * block_tokens < prompt_tokens
)
SELECT
    *,
    lag(arrived_at_us) OVER (PARTITION BY key ORDER BY arrived_at_us, request_id) AS before_us
FROM keyed
WHERE key % getvariable('block_stride') = 0
