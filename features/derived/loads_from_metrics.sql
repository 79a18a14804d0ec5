-- One row a node and scrape that says in which unit its KV is counted. Blocks where the engine counts blocks (vLLM: of
-- block_size tokens, from cache_config_info), tokens where it counts tokens (SGLang: block_tokens is 1). A vLLM scrape
-- whose block size is not known gives no row; without num_gpu_blocks its usage fraction says nothing about blocks.
-- Every TP and PP rank of an engine repeats what its scheduler knows, and every priority repeats a part of it: the
-- lowest rank that is exposed stands for all, and the row without a priority is the total. Nothing is summed.
-- Both engines count evictable prefix as free; SGLang tells it apart where kv_evictable_tokens is exposed.
WITH series AS (
    SELECT
        node,
        metric,
        labels,
        nullif(regexp_extract(labels, '(?:^|,)engine_type="([a-z]+)"', 1), '') AS engine_type,
        regexp_extract(labels, '(?:^|,)mode="([a-z_]+)"', 1) AS mode,
        [
            coalesce(try_cast(regexp_extract(labels, '(?:^|,)' || rank || '="([0-9]+)"', 1) AS BIGINT), 0)
            FOR rank IN ['tp_rank', 'pp_rank', 'moe_ep_rank']
        ] AS ranks
    FROM (
        SELECT DISTINCT node, metric, labels
        FROM metric_samples
        WHERE (metric LIKE 'vllm:%' OR metric LIKE 'sglang:%') AND NOT contains(labels, 'le="')
    )
    WHERE NOT regexp_matches(labels, '(?:^|,)priority="[^"]')
    QUALIFY ranks = min(ranks) OVER (PARTITION BY node, metric, mode)
),

one AS (
    SELECT sample.observed_at_us, sample.value, series.*
    FROM metric_samples AS sample
    INNER JOIN series ON sample.node = series.node AND sample.metric = series.metric AND sample.labels = series.labels
),

scrape AS (
    SELECT
        observed_at_us,
        node,
        bool_or(metric LIKE 'sglang:%') AS is_sglang,
        max(engine_type) AS engine_type,
        max(
            regexp_extract(labels, '(?:^|,)block_size="([0-9]+)"', 1)
            || '/' || regexp_extract(labels, '(?:^|,)num_gpu_blocks="([0-9]*)', 1)
        ) FILTER (
            metric = 'vllm:cache_config_info' AND regexp_matches(labels, '(?:^|,)block_size="[0-9]+"')
        ) AS config,
        max(value) FILTER (metric = 'vllm:kv_cache_usage_perc') AS usage,
        max(value) FILTER (metric IN ('vllm:num_requests_running', 'sglang:num_running_reqs')) AS running,
        max(value) FILTER (metric = 'vllm:num_requests_waiting') AS vllm_waiting,
        max(value) FILTER (metric = 'vllm:generation_tokens_total') AS vllm_generated,
        max(value) FILTER (
            metric IN ('vllm:num_preemptions_total', 'sglang:num_retracted_requests_total')
        ) AS preempted,
        max(value) FILTER (metric = 'sglang:num_queue_reqs') AS queued,
        max(value) FILTER (metric = 'sglang:num_waiting_reqs') AS all_waiting,
        max(value) FILTER (metric = 'sglang:num_waiting_uncached_tokens') AS waiting_tokens,
        max(value) FILTER (metric = 'sglang:num_used_tokens') AS num_used,
        max(value) FILTER (metric = 'sglang:kv_used_tokens') AS kv_used,
        max(value) FILTER (metric = 'sglang:kv_available_tokens') AS available,
        max(value) FILTER (metric = 'sglang:kv_evictable_tokens') AS evictable,
        nullif(max(value) FILTER (metric = 'sglang:max_total_num_tokens'), 0) AS usable,
        max(value) FILTER (metric = 'sglang:hicache_host_used_tokens') AS host_used,
        max(value) FILTER (metric = 'sglang:num_prefill_bootstrap_queue_reqs') AS bootstrap,
        max(value) FILTER (metric = 'sglang:num_prefill_inflight_queue_reqs') AS sending,
        max(value) FILTER (metric = 'sglang:num_decode_prealloc_queue_reqs') AS prealloc,
        max(value) FILTER (metric = 'sglang:num_decode_transfer_queue_reqs') AS receiving,
        max(value) FILTER (metric = 'sglang:decode_retracted_queue_reqs') AS retracted,
        nullif(max(value) FILTER (metric = 'sglang:last_kv_transfer_speed_gb_s'), 0) AS last_gib_per_s,
        nullif(max(value) FILTER (metric = 'sglang:last_kv_transfer_latency_ms'), 0) AS last_ms,
        max(value) FILTER (metric = 'sglang:total_prefill_busy_us') AS prefill_busy_us,
        max(value) FILTER (metric = 'sglang:total_prefill_uncached_tokens') AS prefill_computed,
        max(value) FILTER (metric = 'sglang:realtime_tokens_total' AND mode = 'decode') AS sglang_generated
    FROM one
    GROUP BY observed_at_us, node
),

-- A configuration holds until the next one; before the first it is known if the node never had another.
configured AS (
    SELECT
        *,
        coalesce(
            last_value(config IGNORE NULLS) OVER (PARTITION BY node ORDER BY observed_at_us ROWS UNBOUNDED PRECEDING),
            CASE WHEN min(config) OVER n = max(config) OVER n THEN max(config) OVER n END
        ) AS held
    FROM scrape
    WINDOW n AS (PARTITION BY node)
),

counted AS (
    SELECT
        *,
        CASE
            WHEN is_sglang THEN 1
            ELSE nullif(try_cast(split_part(held, '/', 1) AS BIGINT), 0)
        END AS block_tokens,
        -- vLLM keeps one block for itself: its usage is a part of the others.
        try_cast(split_part(held, '/', 2) AS BIGINT) - 1 AS gpu_blocks,
        coalesce(kv_used, num_used) AS used,
        coalesce(engine_type, 'prefill') = 'prefill' AS may_prefill,
        coalesce(engine_type, 'decode') = 'decode' AS may_decode
    FROM configured
)

SELECT
    observed_at_us,
    node,
    CASE engine_type
        WHEN 'prefill' THEN 'prefill' WHEN 'decode' THEN 'decode' WHEN 'unified' THEN 'colocated'
    END AS role,
    block_tokens,
    CASE WHEN is_sglang THEN usable::BIGINT ELSE gpu_blocks END AS usable_blocks,
    CASE WHEN is_sglang THEN used::BIGINT ELSE round(usage * gpu_blocks)::BIGINT END AS active_blocks,
    CASE
        WHEN is_sglang THEN coalesce(available, usable - used)::BIGINT
        ELSE gpu_blocks - round(usage * gpu_blocks)::BIGINT
    END AS free_blocks,
    CASE WHEN available IS NOT NULL THEN evictable::BIGINT END AS reclaimable_blocks,
    host_used::BIGINT AS offloaded_blocks,
    running::BIGINT AS running_requests,
    CASE
        -- num_waiting_reqs holds the queues of a disaggregated engine, num_queue_reqs does not. Prompts whose KV is on
        -- the way do not wait: they have columns of their own.
        WHEN all_waiting IS NOT NULL THEN greatest(all_waiting - coalesce(sending, 0) - coalesce(receiving, 0), 0)
        WHEN coalesce(vllm_waiting, queued) IS NOT NULL
            THEN list_sum([vllm_waiting, queued, bootstrap, prealloc, retracted])
    END::BIGINT AS waiting_requests,
    waiting_tokens::BIGINT AS waiting_prompt_tokens,
    CASE WHEN may_prefill THEN bootstrap::BIGINT END AS bootstrap_requests,
    CASE WHEN may_prefill THEN sending::BIGINT END AS transferring_requests,
    CASE WHEN may_decode THEN prealloc::BIGINT END AS prealloc_requests,
    CASE WHEN may_decode THEN receiving::BIGINT END AS receiving_requests,
    CASE WHEN may_decode THEN retracted::BIGINT END AS retracted_requests,
    last_gib_per_s * 1073741824 AS last_transfer_bytes_per_s,
    round(last_ms * 1000)::BIGINT AS last_transfer_us,
    prefill_busy_us::BIGINT AS prefill_busy_us,
    prefill_computed::BIGINT AS prefill_computed_tokens,
    coalesce(vllm_generated, sglang_generated)::BIGINT AS generated_tokens,
    preempted::BIGINT AS preemptions,
    'prometheus' AS source
FROM counted
WHERE block_tokens IS NOT NULL
