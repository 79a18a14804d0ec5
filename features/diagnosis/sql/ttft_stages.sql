-- One row a stage and value of a dimension, over requests whose TTFT is known. `known`: of how many the stage is known;
-- `share_frac`: its time over the TTFT of all of them, so what is unknown shows as `unattributed`.
WITH chosen AS (
    SELECT coalesce({dimension}, 'unknown') AS value, * FROM r WHERE ttft_ms IS NOT NULL
),
total AS (SELECT value, count(*) AS requests, sum(ttft_ms) AS sum_ms FROM chosen GROUP BY value),
long AS (
    SELECT value, stage, ms
    FROM (
        SELECT
            value, ttft_ms AS ttft, router_ms AS router, queue_ms AS queue, compute_ms AS compute,
            reservation_ms AS reservation, transfer_ms AS transfer, admission_ms AS admission,
            first_step_ms AS first_step, unattributed_ms AS unattributed
        FROM chosen
    )
    UNPIVOT (
        ms FOR stage IN (ttft, router, queue, compute, reservation, transfer, admission, first_step, unattributed)
    )
)
SELECT
    '{name}' AS dimension,
    value,
    stage,
    any_value(requests) AS requests,
    count(*) AS known,
    avg(ms) AS mean_ms,
    quantile_cont(ms, 0.5) AS p50_ms,
    quantile_cont(ms, 0.95) AS p95_ms,
    quantile_cont(ms, 0.99) AS p99_ms,
    -- Where no request waited at all, no stage had a part in it.
    CASE WHEN any_value(sum_ms) = 0 THEN 0 ELSE sum(ms) / any_value(sum_ms) END AS share_frac
FROM long
JOIN total USING (value)
GROUP BY value, stage
ORDER BY value, list_position(
    ['ttft', 'router', 'queue', 'compute', 'reservation', 'transfer', 'admission', 'first_step', 'unattributed'], stage
)
