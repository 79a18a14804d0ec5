-- One row a side and decision (every `stride`-th): the true load of the chosen node just before it, and of the others.
-- Ingress is looked at when the transfer starts. Others: nodes of the side in the same rack that had been used before and would be used again.
WITH life AS (
    SELECT side, node, min(at_us) AS from_us, max(at_us) AS to_us FROM load_events GROUP BY ALL
),
decided AS (
    SELECT request_id, 'prefill' AS side, prefill_node AS node, at_us FROM r
    WHERE prefill_node IS NOT NULL AND hash(request_id) % getvariable('decision_stride') = 0
    UNION ALL
    SELECT request_id, 'decode', decode_node, at_us FROM r
    WHERE decode_node IS NOT NULL AND hash(request_id) % getvariable('decision_stride') = 0
    UNION ALL
    SELECT request_id, 'ingress', decode_node, transfer_started_at_us FROM r
    WHERE decode_node IS NOT NULL AND transfer_started_at_us IS NOT NULL
        AND hash(request_id) % getvariable('decision_stride') = 0
),
candidate AS (
    SELECT d.request_id, d.side, d.node AS chosen, l.node, d.at_us
    FROM decided AS d
    JOIN life AS l ON l.side = d.side AND d.at_us BETWEEN l.from_us AND l.to_us
    LEFT JOIN nodes AS mine ON mine.node = d.node
    LEFT JOIN nodes AS other ON other.node = l.node
    WHERE mine.rack IS NOT DISTINCT FROM other.rack
),
state AS (
    SELECT c.request_id, c.side, c.chosen, c.node, coalesce(e.tokens, 0) AS tokens, coalesce(e.requests, 0) AS requests
    FROM candidate AS c
    ASOF LEFT JOIN load_events AS e ON e.side = c.side AND e.node = c.node AND c.at_us > e.at_us
)
SELECT
    side,
    request_id,
    any_value(chosen) AS node,
    count(*) AS candidates,
    max(tokens) FILTER (WHERE node = chosen)::DOUBLE AS own_tokens,
    max(requests) FILTER (WHERE node = chosen)::BIGINT AS own_requests,
    min(tokens) FILTER (WHERE node != chosen)::DOUBLE AS least_tokens,
    min(requests) FILTER (WHERE node != chosen)::BIGINT AS least_requests,
    avg(tokens) AS mean_tokens
FROM state
GROUP BY side, request_id
HAVING count(*) >= 2
