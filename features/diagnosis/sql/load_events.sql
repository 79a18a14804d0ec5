-- One row a side, node and moment: what the node had been given and had not finished, rebuilt from the requests.
-- P: prompt tokens without the logged hit, from the decision to the end of prefill. D: prompt + output tokens, from the
-- decision to the last token. Ingress: transfers that D receives. Requests whose end is unknown are left out.
WITH change AS (
    SELECT
        'prefill' AS side, prefill_node AS node, at_us, prefill_finished_at_us AS end_us,
        greatest(1, prompt_tokens - coalesce(cached_tokens, 0)) AS tokens
    FROM r
    WHERE prefill_node IS NOT NULL AND prefill_finished_at_us IS NOT NULL
    UNION ALL
    SELECT
        'decode', decode_node, at_us, coalesce(finished_at_us, first_token_at_us), prompt_tokens + coalesce(output_tokens, 0)
    FROM r
    WHERE decode_node IS NOT NULL AND coalesce(finished_at_us, first_token_at_us) IS NOT NULL
    UNION ALL
    SELECT 'ingress', decode_node, transfer_started_at_us, transfer_finished_at_us, prompt_tokens
    FROM r
    WHERE decode_node IS NOT NULL AND transfer_finished_at_us > transfer_started_at_us
),
event AS (
    SELECT side, node, at_us, tokens, 1 AS requests FROM change
    UNION ALL
    SELECT side, node, greatest(end_us, at_us), -tokens, -1 FROM change
),
moment AS (
    SELECT side, node, at_us, sum(tokens) AS tokens, sum(requests) AS requests FROM event GROUP BY ALL
)
SELECT
    side,
    node,
    at_us,
    sum(tokens) OVER w AS tokens,
    sum(requests) OVER w AS requests
FROM moment
WINDOW w AS (PARTITION BY side, node ORDER BY at_us)
