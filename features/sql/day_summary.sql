-- One row a pool, day and SLO class: traffic and latency.
SELECT
    day,
    pool,
    slo_class,
    count(*) AS requests,
    count(*) FILTER (WHERE finish_reason = 'rejected') AS rejected,
    sum(prompt_tokens)::BIGINT AS prompt_tokens,
    sum(prefill_cached_tokens)::BIGINT AS cached_tokens,
    sum(output_tokens)::BIGINT AS output_tokens,
    quantile_cont((first_token_at_us - arrived_at_us) / 1000.0, 0.5) AS ttft_p50_ms,
    quantile_cont((first_token_at_us - arrived_at_us) / 1000.0, 0.99) AS ttft_p99_ms
FROM requests
GROUP BY ALL
ORDER BY ALL
