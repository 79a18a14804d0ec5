-- One row a cause: sampled blocks that an endless cache would have held and the request computed again, in tokens.
WITH lost AS (SELECT * FROM block_uses WHERE NOT hit),
work AS (
    SELECT b.key, b.node, b.end_us, w.computed_tokens
    FROM blocks AS b
    JOIN prefill_work AS w ON w.node = b.node AND w.at_us = b.end_us
    WHERE b.end_us IS NOT NULL AND b.node IS NOT NULL AND b.key IN (SELECT key FROM lost)
),
holder AS (SELECT DISTINCT key, node FROM work),
elsewhere AS (
    SELECT l.request_id, l.key, h.node, l.start_us
    FROM lost AS l
    JOIN holder AS h ON h.key = l.key AND h.node != l.node
    WHERE l.own_us IS NULL
),
touched AS (
    SELECT e.request_id, e.key, e.node, e.start_us, w.computed_tokens AS then_tokens
    FROM elsewhere AS e
    ASOF JOIN work AS w ON w.key = e.key AND w.node = e.node AND e.start_us >= w.end_us
),
aged AS (
    SELECT t.request_id, t.key, t.node, w.computed_tokens - t.then_tokens AS churn_tokens
    FROM touched AS t
    ASOF JOIN prefill_work AS w ON w.node = t.node AND t.start_us >= w.at_us
),
other AS (
    SELECT a.request_id, a.key, bool_or(m.room_tokens IS NULL OR a.churn_tokens < m.room_tokens) AS held
    FROM aged AS a
    LEFT JOIN rooms AS m ON m.node = a.node
    GROUP BY ALL
),
cause AS (
    SELECT
        l.block_tokens,
        CASE
            WHEN l.own_us IS NOT NULL AND m.room_tokens IS NULL THEN 'eviction_or_ttl'
            WHEN l.own_us IS NOT NULL AND l.churn_tokens >= m.room_tokens THEN 'eviction'
            WHEN l.own_us IS NOT NULL AND l.gap_us / 1e6 >= getvariable('ttl_s') THEN 'ttl'
            WHEN l.own_us IS NOT NULL AND l.churn_tokens >= 0.5 * m.room_tokens THEN 'eviction'
            WHEN l.own_us IS NOT NULL THEN 'unexplained'
            WHEN o.held THEN 'routing'
            WHEN o.request_id IS NOT NULL THEN 'eviction'
            ELSE 'not_ready'
        END AS cause
    FROM lost AS l
    LEFT JOIN rooms AS m ON m.node = l.node
    LEFT JOIN other AS o ON o.request_id = l.request_id AND o.key = l.key
)
SELECT cause, count(*) AS blocks, sum(block_tokens)::BIGINT * getvariable('block_stride') AS tokens
FROM cause
GROUP BY cause
ORDER BY cause
