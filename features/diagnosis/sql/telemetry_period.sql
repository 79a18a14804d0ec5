-- One row: the usual time between two samples of a node, and the largest one.
SELECT
    quantile_cont(interval_us, 0.5) / 1000.0 AS period_p50_ms,
    quantile_cont(interval_us, 0.99) / 1000.0 AS period_p99_ms,
    count(interval_us) AS intervals
FROM samples
