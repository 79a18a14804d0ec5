-- One row a side: how often a sampled decision chose a node with more than the mean load, and by how much.
SELECT
    side,
    count(*) AS decisions,
    avg((own_tokens > mean_tokens)::INTEGER) AS above_mean_frac,
    sum(own_tokens) / nullif(sum(mean_tokens), 0) AS own_over_mean,
    avg((own_requests >= 1 AND least_requests = 0)::INTEGER) AS idle_elsewhere_frac
FROM placements
GROUP BY side
ORDER BY side
