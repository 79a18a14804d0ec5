-- One row a run of prefill on a P: prompts whose computing overlaps, from the first start to the last end. A step that
-- begins when another one ended is a run of its own. Only runs in which every hit is known.
WITH prompt AS (
    SELECT
        prefill_node AS node,
        prefill_started_at_us AS lo,
        prefill_finished_at_us AS hi,
        -- Without hashes and hits in the log, the whole prompt was computed.
        CASE WHEN cached_tokens IS NOT NULL OR block_hashes IS NULL THEN prompt_tokens - coalesce(cached_tokens, 0) END
            AS new_tokens,
        coalesce(cached_tokens, 0) AS cached
    FROM r
    WHERE prefill_node IS NOT NULL AND prefill_finished_at_us > prefill_started_at_us
),
marked AS (
    SELECT
        *,
        coalesce(lo >= max(hi) OVER (
            PARTITION BY node ORDER BY lo, hi ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), true) AS fresh
    FROM prompt
),
numbered AS (
    SELECT *, sum(fresh::INTEGER) OVER (PARTITION BY node ORDER BY lo, hi ROWS UNBOUNDED PRECEDING) AS run FROM marked
)
SELECT
    node,
    min(lo) AS lo,
    max(hi) - min(lo) AS busy_us,
    count(*) AS prompts,
    sum(new_tokens)::BIGINT AS new_tokens,
    sum(cached)::BIGINT AS cached_tokens
FROM numbered
GROUP BY node, run
HAVING count(new_tokens) = count(*) AND sum(new_tokens) > 0
