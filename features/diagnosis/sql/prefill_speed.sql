-- One row a P: its time for a run of prefill against the median of all Ps for runs of the same size. Size: new tokens in
-- quarters of an octave, prompts (1, 2, 3–4, more), cached tokens in octaves. Sizes that fewer than two Ps had are
-- left out. `effect`: median of the logarithm of the ratio; `mad`: its median absolute deviation.
WITH sized AS (
    SELECT
        node,
        ln(busy_us) AS log_us,
        floor(4 * log2(new_tokens)) AS tokens_bin,
        CASE WHEN prompts <= 2 THEN prompts WHEN prompts <= 4 THEN 3 ELSE 4 END AS prompts_bin,
        CASE WHEN cached_tokens < 256 THEN 0 ELSE floor(log2(cached_tokens)) END AS cached_bin
    FROM prefill_runs
),
usual AS (
    SELECT tokens_bin, prompts_bin, cached_bin, median(log_us) AS log_us
    FROM (
        SELECT tokens_bin, prompts_bin, cached_bin, node, median(log_us) AS log_us FROM sized GROUP BY ALL
    )
    GROUP BY ALL
    HAVING count(*) >= 2
),
ratio AS (
    SELECT s.node, s.log_us - u.log_us AS value
    FROM sized AS s
    JOIN usual AS u USING (tokens_bin, prompts_bin, cached_bin)
)
SELECT node, count(*) AS rows, median(value) AS effect, mad(value) AS mad
FROM ratio
GROUP BY node
ORDER BY node
