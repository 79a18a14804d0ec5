-- One row a node: KV transfers that its own counters tell. `busy_us` sums their times, so the rate is that of one transfer.
SELECT
    node,
    sum(transfers)::BIGINT AS transfers,
    sum(bytes) AS bytes,
    sum(bytes) * 1e6 / nullif(sum(busy_us) FILTER (WHERE bytes IS NOT NULL), 0) AS bytes_per_s,
    sum(failures)::BIGINT AS failures
FROM transfer_totals
GROUP BY node
ORDER BY node
