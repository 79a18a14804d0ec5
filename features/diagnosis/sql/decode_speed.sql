-- One row a D: the time of its steps against the median of all Ds at the same batch. One observation is the steps
-- between two samples; size: sequences in eighths of an octave, context tokens in quarters.
WITH observed AS (
    SELECT node, d_step_us / d_steps AS step_us, d_sequences / d_steps AS sequences, mean_tokens
    FROM samples
    WHERE d_steps >= 1 AND d_step_us > 0 AND d_sequences > 0 AND mean_tokens > 0
    UNION ALL
    SELECT node, busy_us / n_steps::DOUBLE, sequences, tokens
    FROM steps
    WHERE phase = 'decode' AND n_steps >= 1 AND sequences > 0 AND tokens > 0
        AND NOT EXISTS (SELECT 1 FROM samples WHERE d_steps >= 1)
),
sized AS (
    SELECT
        node,
        ln(step_us) AS log_us,
        floor(8 * log2(sequences)) AS sequences_bin,
        floor(4 * log2(mean_tokens)) AS tokens_bin
    FROM observed
),
usual AS (
    SELECT sequences_bin, tokens_bin, median(log_us) AS log_us
    FROM (SELECT sequences_bin, tokens_bin, node, median(log_us) AS log_us FROM sized GROUP BY ALL)
    GROUP BY ALL
    HAVING count(*) >= 2
),
ratio AS (
    SELECT s.node, s.log_us - u.log_us AS value FROM sized AS s JOIN usual AS u USING (sequences_bin, tokens_bin)
)
SELECT node, count(*) AS rows, median(value) AS effect, mad(value) AS mad
FROM ratio
GROUP BY node
ORDER BY node
