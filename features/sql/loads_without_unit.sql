-- One row a pool, day and node whose metrics tell its load, but not in which unit its KV is counted: it has no samples
-- in node_loads. `scrapes`: how many times it was scraped; `reason`: what is missing.
SELECT
    day,
    pool,
    node,
    count(DISTINCT observed_at_us) AS scrapes,
    CASE
        WHEN bool_or(metric LIKE 'vllm:%') THEN 'vllm:cache_config_info with a block_size is not scraped'
        ELSE 'a router tells it, and not the size of a block'
    END AS reason
FROM metric_samples AS sample
WHERE
    metric IN (
        'vllm:num_requests_running', 'vllm:num_requests_waiting', 'vllm:kv_cache_usage_perc',
        'smg_engine_running_requests', 'smg_engine_waiting_requests', 'smg_engine_token_usage',
        'dynamo_component_total_blocks', 'dynamo_component_gpu_cache_usage_percent'
    )
    AND NOT EXISTS (
        SELECT 1
        FROM node_loads AS load
        WHERE load.pool = sample.pool AND load.day = sample.day AND load.node = sample.node
    )
GROUP BY day, pool, node
ORDER BY day, pool, node
