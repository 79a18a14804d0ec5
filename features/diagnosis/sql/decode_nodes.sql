-- One row a D: KV over time. Ratios and rates weigh each sample by the time that it stands for.
WITH logged AS (
    SELECT
        decode_node AS node,
        count(*) AS requests,
        avg(reservation_ms) AS reservation_mean_ms,
        avg(admission_ms) AS admission_mean_ms,
        avg(tpot_ms) AS tpot_mean_ms,
        sum(preemptions)::BIGINT AS preemptions_log
    FROM r
    WHERE decode_node IS NOT NULL
    GROUP BY ALL
),
sampled AS (
    SELECT
        node,
        count(*) AS samples,
        sum(committed_frac * weight_us) / sum(weight_us) FILTER (WHERE committed_frac IS NOT NULL) AS committed_mean_frac,
        quantile_cont(committed_frac, 0.99) AS committed_p99_frac,
        coalesce(sum(weight_us) FILTER (WHERE committed_frac >= getvariable('high_water')), 0)
            / sum(weight_us) FILTER (WHERE committed_frac IS NOT NULL) AS above_frac,
        sum(d_generated / block_tokens) FILTER (WHERE d_generated >= 0 AND committed_frac >= getvariable('high_water'))
            / (sum(interval_us) FILTER (WHERE d_generated >= 0 AND committed_frac >= getvariable('high_water')) / 1e6)
            AS growth_above_blocks_per_s,
        sum(d_generated / block_tokens) FILTER (WHERE d_generated >= 0)
            / (sum(interval_us) FILTER (WHERE d_generated >= 0) / 1e6) AS growth_blocks_per_s,
        avg(reclaimable_blocks / nullif(usable_blocks, 0)::DOUBLE)
            FILTER (WHERE committed_frac >= getvariable('high_water')) AS reclaimable_above_frac,
        sum(queued_blocks * weight_us) / sum(weight_us) FILTER (WHERE queued_blocks IS NOT NULL) AS queued_blocks_mean,
        sum(d_failures) FILTER (WHERE d_failures >= 0)::BIGINT AS allocation_failures,
        sum(d_preemptions) FILTER (WHERE d_preemptions >= 0)::BIGINT AS preemptions_counter,
        sum(d_swap_bytes) FILTER (WHERE d_swap_bytes >= 0)::BIGINT AS swap_bytes,
        max(usable_blocks) AS usable_blocks,
        any_value(block_tokens) AS block_tokens
    FROM samples
    WHERE role = 'decode' OR node IN (SELECT node FROM logged)
    GROUP BY node
)
SELECT *, coalesce(preemptions_counter, preemptions_log) AS preemptions
FROM logged
FULL JOIN sampled USING (node)
ORDER BY node
