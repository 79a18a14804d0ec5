-- One row a first block that at least 5 % of the requests share, and the P that most of them went to.
WITH first AS (
    SELECT hash(block_hashes[1], coalesce(block_hash_scope, '')) AS key, prefill_node AS node
    FROM r
    WHERE len(block_hashes) > 0 AND prefill_node IS NOT NULL
),
total AS (SELECT count(*) AS n FROM first),
by_node AS (SELECT key, node, count(*) AS c FROM first GROUP BY ALL)
SELECT
    printf('%016x', key) AS prefix,
    sum(c)::BIGINT AS requests,
    sum(c) / any_value(n)::DOUBLE AS request_frac,
    arg_max(node, c) AS node,
    max(c) / sum(c)::DOUBLE AS node_frac,
    count(*) AS nodes
FROM by_node, total
GROUP BY key
HAVING sum(c) >= 0.05 * any_value(n)
ORDER BY requests DESC, prefix
LIMIT 20
