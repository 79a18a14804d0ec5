-- One row: idle gaps of blocks that their P should still have held (it took in less than half of its room since), by
-- whether they were hits. A TTL shows as misses that all have longer gaps than the hits.
SELECT
    count(*) FILTER (WHERE hit) AS hits,
    count(*) FILTER (WHERE NOT hit) AS misses,
    quantile_cont(gap_us, 0.95) FILTER (WHERE hit) / 1e6 AS hit_gap_p95_s,
    quantile_cont(gap_us, 0.05) FILTER (WHERE NOT hit) / 1e6 AS miss_gap_p05_s
FROM block_uses
JOIN rooms USING (node)
WHERE churn_tokens < 0.5 * room_tokens AND gap_us IS NOT NULL
