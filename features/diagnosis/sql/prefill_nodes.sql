-- One row a P: how much of the span it computed, and how much of it finished KV waited to leave.
-- Shares of time are unions of the requests' intervals; `busy_counter_frac` is from the engine's own counter.
WITH spans AS (
    SELECT 'busy' AS kind, prefill_node AS node, prefill_started_at_us AS lo, prefill_finished_at_us AS hi FROM r
    UNION ALL
    SELECT 'awaiting', prefill_node, prefill_finished_at_us, transfer_started_at_us FROM r
    UNION ALL
    SELECT 'queued', prefill_node, at_us, prefill_started_at_us FROM r
),
marked AS (
    SELECT
        *,
        max(hi) OVER (
            PARTITION BY kind, node ORDER BY lo, hi ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before
    FROM spans
    WHERE node IS NOT NULL AND hi >= lo
),
covered AS (
    SELECT
        node,
        sum(fresh) FILTER (WHERE kind = 'busy') AS busy_us,
        sum(fresh) FILTER (WHERE kind = 'awaiting') AS awaiting_us,
        sum(fresh) FILTER (WHERE kind = 'queued') AS queued_us
    FROM (SELECT *, greatest(0, hi - greatest(lo, coalesce(before, lo))) AS fresh FROM marked)
    GROUP BY node
),
logged AS (
    SELECT
        prefill_node AS node,
        count(*) AS requests,
        sum(prompt_tokens - cached_tokens)::BIGINT AS new_tokens,
        avg(queue_ms) AS queue_mean_ms,
        avg(compute_ms) AS compute_mean_ms,
        avg(reservation_ms) AS reservation_mean_ms,
        sum(prompt_tokens * reservation_ms * 1000.0) AS awaiting_token_us
    FROM r
    WHERE prefill_node IS NOT NULL
    GROUP BY ALL
),
sampled AS (
    SELECT
        node,
        sum(d_busy_us) FILTER (WHERE d_busy_us >= 0) AS counter_us,
        sum(interval_us) FILTER (WHERE d_busy_us >= 0) AS counted_us,
        sum(awaiting_transfer_blocks / nullif(usable_blocks, 0)::DOUBLE * weight_us)
            / sum(weight_us) FILTER (WHERE awaiting_transfer_blocks IS NOT NULL) AS awaiting_counter_frac,
        sum(committed_frac * weight_us) / sum(weight_us) FILTER (WHERE committed_frac IS NOT NULL) AS held_frac,
        coalesce(sum(weight_us) FILTER (WHERE committed_frac >= getvariable('high_water')), 0)
            / sum(weight_us) FILTER (WHERE committed_frac IS NOT NULL) AS above_high_water_frac,
        max(usable_blocks * block_tokens) AS usable_tokens
    FROM samples
    WHERE role = 'prefill' OR node IN (SELECT node FROM logged)
    GROUP BY node
)
SELECT
    node,
    requests,
    new_tokens,
    queue_mean_ms,
    compute_mean_ms,
    reservation_mean_ms,
    busy_us / nullif(getvariable('to_us') - getvariable('from_us'), 0)::DOUBLE AS busy_log_frac,
    counter_us / nullif(counted_us, 0)::DOUBLE AS busy_counter_frac,
    coalesce(busy_counter_frac, busy_log_frac) AS busy_frac,
    queued_us / nullif(getvariable('to_us') - getvariable('from_us'), 0)::DOUBLE AS queued_frac,
    awaiting_us / nullif(getvariable('to_us') - getvariable('from_us'), 0)::DOUBLE AS awaiting_frac,
    awaiting_token_us / nullif(getvariable('to_us') - getvariable('from_us'), 0)::DOUBLE AS awaiting_tokens,
    coalesce(awaiting_counter_frac, awaiting_tokens / nullif(usable_tokens, 0)) AS awaiting_kv_frac,
    held_frac,
    above_high_water_frac,
    usable_tokens
FROM logged
LEFT JOIN covered USING (node)
LEFT JOIN sampled USING (node)
ORDER BY node
