-- One row a node and pair of consecutive samples between which it decoded: differences of cumulative moments, so means
-- over those steps are exact. A pair across a restart (a moment fell) says nothing and is left out.
-- Tokens: the mean sequences times the tokens of a running request in the two samples, for the batch between them is not
-- the batch at them; the mean of running tokens where running requests are not told.
-- Moments: [steps, sum of sequences b, sum of microseconds t, sum of b*b, sum of b*t, generated tokens].
WITH sample AS (
    SELECT
        observed_at_us,
        node,
        decode_moments AS now,
        running_tokens,
        running_requests + lag(running_requests) OVER w AS requests,
        lag(decode_moments) OVER w AS earlier,
        lag(running_tokens) OVER w AS earlier_tokens
    FROM node_loads
    WHERE decode_moments IS NOT NULL
    WINDOW w AS (PARTITION BY node, source ORDER BY observed_at_us)
),

change AS (
    SELECT
        *,
        [now[i] - earlier[i] FOR i IN range(1, 7)] AS d
    FROM sample
    WHERE earlier IS NOT NULL
)

SELECT
    observed_at_us,
    node,
    'decode' AS phase,
    round(d[1])::BIGINT AS n_steps,
    round(d[3])::BIGINT AS busy_us,
    d[2] / d[1] AS sequences,
    CASE
        WHEN requests > 0 THEN d[2] / d[1] * (running_tokens + earlier_tokens) / requests
        ELSE (running_tokens + earlier_tokens) / 2
    END AS tokens,
    round(d[6])::BIGINT AS new_tokens,
    NULL::DOUBLE AS context_tokens,
    'decode_moments' AS source
FROM change
WHERE d[1] >= 1 AND d[3] >= 1 AND list_min(d) >= 0
