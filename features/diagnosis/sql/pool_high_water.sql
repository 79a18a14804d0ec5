-- One row: the Ds together, over windows. `above_frac`: windows in which the pool's committed KV as a whole was above high
-- water: no D had room to speak of. `nodes_above_frac`: mean share of the Ds that were.
WITH size AS (
    SELECT node, max(usable_blocks * block_tokens) AS tokens FROM samples GROUP BY node
),
tick AS (
    SELECT
        window_us,
        sum(value * tokens) / sum(tokens) AS committed_frac,
        avg((value >= getvariable('high_water'))::INTEGER) AS nodes_above_frac
    FROM windows
    JOIN size USING (node)
    WHERE role = 'decode' AND metric = 'committed_frac'
    GROUP BY ALL
)
SELECT
    count(*) AS windows,
    avg(committed_frac) AS committed_mean_frac,
    avg((committed_frac >= getvariable('high_water'))::INTEGER) AS above_frac,
    avg(nodes_above_frac) AS nodes_above_frac
FROM tick
