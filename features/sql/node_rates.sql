-- One row a node a sample: growth and release of KV blocks per second since the node's sample before of its source.
-- growth = generated tokens in blocks; release = admitted + growth - change of active, admitted = KV that became active.
WITH step AS (
    SELECT
        day,
        pool,
        node,
        observed_at_us,
        (observed_at_us - lag(observed_at_us) OVER w) / 1e6 AS seconds,
        (generated_tokens - lag(generated_tokens) OVER w) / block_tokens AS grown_blocks,
        active_blocks - lag(active_blocks) OVER w AS active_change_blocks,
        active_blocks,
        usable_blocks
    FROM node_loads
    WINDOW w AS (PARTITION BY pool, node, source ORDER BY observed_at_us)
)
SELECT
    day,
    pool,
    node,
    observed_at_us,
    active_blocks / nullif(usable_blocks, 0)::DOUBLE AS active_kv_ratio,
    CASE WHEN grown_blocks >= 0 THEN grown_blocks / seconds END AS growth_blocks_per_s,
    active_change_blocks / seconds AS active_change_blocks_per_s
FROM step
WHERE seconds > 0
