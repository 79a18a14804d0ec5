-- One row a role, window and node: tokens that the node had been given and had not finished when the window began, from
-- the requests. It needs no telemetry; a node counts from its first request to its last.
WITH life AS (
    SELECT side, node, min(at_us) AS from_us, max(at_us) AS to_us
    FROM load_events
    WHERE side IN ('prefill', 'decode')
    GROUP BY ALL
),
grid AS (
    SELECT
        side,
        node,
        unnest(range(from_us // getvariable('window_us') + 1, to_us // getvariable('window_us') + 1))
            * getvariable('window_us') AS window_us
    FROM life
)
SELECT
    g.side AS role,
    'given_tokens' AS metric,
    g.window_us::BIGINT AS window_us,
    g.node,
    coalesce(e.tokens, 0)::DOUBLE AS value
FROM grid AS g
ASOF LEFT JOIN load_events AS e ON e.side = g.side AND e.node = g.node AND g.window_us >= e.at_us
ORDER BY role, window_us, node
