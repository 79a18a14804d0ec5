-- One row a side: how often decisions of two different routers within one telemetry period went to the same node,
-- against the product of the minute's shares.
WITH decided AS (
    SELECT 'decode' AS side, router_id, decode_node AS node, at_us FROM r WHERE decode_node IS NOT NULL
    UNION ALL
    SELECT 'prefill', router_id, prefill_node, at_us
    FROM r
    WHERE prefill_node IS NOT NULL AND coalesce(cached_tokens, 0) = 0
),
cell AS (
    SELECT
        side, at_us // getvariable('period_us') AS period, at_us // 60000000 AS minute, router_id, node, count(*) AS c
    FROM decided
    GROUP BY ALL
),
by_node AS (
    SELECT side, period, minute, node, sum(c) AS c, sum(c * c) AS own FROM cell GROUP BY ALL
),
by_router AS (
    SELECT side, period, minute, sum(c) AS n, sum(c * c) AS own
    FROM (SELECT side, period, minute, router_id, sum(c) AS c FROM cell GROUP BY ALL)
    GROUP BY ALL
),
share AS (
    SELECT side, minute, sum(p * p) AS expected
    FROM (
        SELECT side, minute, c / sum(c) OVER (PARTITION BY side, minute) AS p
        FROM (SELECT side, minute, node, sum(c) AS c FROM cell GROUP BY ALL)
    )
    GROUP BY ALL
),
pairs AS (
    SELECT
        b.side, b.minute, b.n * b.n - b.own AS pairs, n.same
    FROM by_router AS b
    JOIN (SELECT side, period, minute, sum(c * c - own) AS same FROM by_node GROUP BY ALL) AS n USING (side, period, minute)
)
SELECT
    side,
    sum(pairs)::BIGINT / 2 AS pairs,
    sum(same) / sum(pairs)::DOUBLE AS agreement_frac,
    sum(pairs * expected) / sum(pairs)::DOUBLE AS expected_frac
FROM pairs
JOIN share USING (side, minute)
GROUP BY side
HAVING sum(pairs) > 0
ORDER BY side
