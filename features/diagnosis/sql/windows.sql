-- One row a role, metric, window and node: mean load over the samples of the window. Fewer than half of the role's
-- nodes sampled in a window: the window is left out, it would compare some nodes with none.
WITH long AS (
    SELECT node, role, observed_at_us // getvariable('window_us') AS tick, metric, value
    FROM (
        SELECT
            node,
            role,
            observed_at_us,
            CASE WHEN role = 'prefill' THEN waiting_prompt_tokens END::DOUBLE AS waiting_prompt_tokens,
            CASE WHEN role = 'decode' THEN running_tokens END::DOUBLE AS running_tokens,
            committed_frac
        FROM samples
        WHERE role IN ('prefill', 'decode')
    )
    UNPIVOT (value FOR metric IN (waiting_prompt_tokens, running_tokens, committed_frac))
),
mean AS (
    SELECT role, metric, tick, node, avg(value) AS value FROM long GROUP BY ALL
),
size AS (
    SELECT role, metric, count(DISTINCT node) AS nodes FROM mean GROUP BY ALL
)
SELECT role, metric, tick * getvariable('window_us') AS window_us, node, value
FROM mean
JOIN size USING (role, metric)
QUALIFY count(*) OVER (PARTITION BY role, metric, tick) * 2 >= nodes
ORDER BY role, metric, window_us, node
