-- One row a candidate pair of a decision whose choice is known.
--
-- The router picks D first and then P: a pair is a candidate if it differs from the chosen one on one side at most. Its
-- score is minus the sum of both totals, so that lower is better here as everywhere; null if a total is unknown, but a
-- side of which the log names the choice only adds nothing. Nodes that do both phases are pairs with themselves, and so
-- is a D that was picked without a P. Decisions without a choice, or without the names of their profiles, stay parts.
WITH
-- The lines of one decision have each their own time. What a log says of a request without a gap is one decision.
lines AS (
    SELECT *, decided_at_us - lag(decided_at_us) OVER line > 2000000 AS later
    FROM decision_parts
    WHERE profile IN ('prefill', 'decode', 'colocated')
    WINDOW line AS (PARTITION BY request_id, source ORDER BY decided_at_us)
),
numbered AS (
    SELECT *, count(*) FILTER (later) OVER (PARTITION BY request_id, source ORDER BY decided_at_us) AS nth
    FROM lines
),
nodes AS (
    SELECT
        request_id,
        source,
        nth,
        profile,
        endpoint,
        min(decided_at_us) AS first_us,
        min(router_id) AS router_id,
        max(score) FILTER (plugin IN ('total', 'pick')) AS total,
        coalesce(bool_or(chosen), false) AS picked
    FROM numbered
    GROUP BY ALL
),
choices AS (
    SELECT
        request_id,
        source,
        nth,
        min(first_us) AS decided_at_us,
        min(router_id) AS router_id,
        min(endpoint) FILTER (picked AND profile = 'prefill') AS p,
        min(endpoint) FILTER (picked AND profile = 'decode') AS d,
        min(endpoint) FILTER (picked AND profile = 'colocated') AS both_phases,
        coalesce(min(total) FILTER (picked AND profile = 'prefill'),
            CASE WHEN count(*) FILTER (profile = 'prefill') = 1 THEN 0 END) AS p_total,
        coalesce(min(total) FILTER (picked AND profile = 'decode'),
            CASE WHEN count(*) FILTER (profile = 'decode') = 1 THEN 0 END) AS d_total,
        -- A request that two logs know of is taken from the router's own: the proxy's has the scores of one side only.
        source = 'envoy-endpoint-scores' AS second_hand
    FROM nodes
    GROUP BY request_id, source, nth
    -- Two choices of one profile are two decisions of a request that was retried at once; which line is whose, nothing says.
    HAVING (d IS NOT NULL OR both_phases IS NOT NULL)
        AND count(*) FILTER (picked AND profile = 'prefill') <= 1
        AND count(*) FILTER (picked AND profile = 'decode') <= 1
        AND count(*) FILTER (picked AND profile = 'colocated') <= 1
    QUALIFY NOT second_hand OR bool_and(source = 'envoy-endpoint-scores') OVER (PARTITION BY request_id)
),
candidates AS (
    SELECT
        c.request_id,
        c.decided_at_us,
        c.router_id,
        CASE WHEN p IS NULL OR d IS NULL OR profile = 'prefill' THEN endpoint ELSE p END AS prefill_node,
        CASE WHEN p IS NULL OR d IS NULL OR profile = 'decode' THEN endpoint ELSE d END AS decode_node,
        total + CASE
            WHEN p IS NULL OR d IS NULL THEN 0
            WHEN profile = 'prefill' THEN d_total
            ELSE p_total
        END AS sum_of_totals,
        picked
    FROM choices AS c
    JOIN nodes AS n ON n.request_id = c.request_id AND n.source IS NOT DISTINCT FROM c.source AND n.nth = c.nth
    WHERE CASE
        WHEN d IS NULL THEN profile = 'colocated'
        WHEN p IS NULL THEN profile = 'decode'
        ELSE profile IN ('prefill', 'decode')
    END
)
SELECT
    request_id,
    decided_at_us,
    router_id,
    prefill_node,
    decode_node,
    -max(sum_of_totals) AS score,
    bool_or(picked AND prefill_node = chosen_p AND decode_node = chosen_d) AS chosen
FROM (
    SELECT
        *,
        min(prefill_node) FILTER (picked) OVER decision AS chosen_p,
        min(decode_node) FILTER (picked) OVER decision AS chosen_d
    FROM candidates
    WINDOW decision AS (PARTITION BY request_id, decided_at_us)
)
GROUP BY request_id, decided_at_us, router_id, prefill_node, decode_node
ORDER BY decided_at_us, request_id, prefill_node, decode_node
