-- One row a P and moment at which it finished a prompt: new tokens that it had computed by then. What an LRU cache took
-- in between two moments is the difference.
SELECT node, at_us, sum(tokens) OVER (PARTITION BY node ORDER BY at_us)::BIGINT AS computed_tokens
FROM (
    SELECT
        prefill_node AS node,
        prefill_finished_at_us AS at_us,
        sum(prompt_tokens - coalesce(cached_tokens, 0)) AS tokens
    FROM r
    WHERE prefill_node IS NOT NULL AND prefill_finished_at_us IS NOT NULL
    GROUP BY ALL
)
