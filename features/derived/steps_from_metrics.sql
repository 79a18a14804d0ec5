-- One row a node, phase and pair of scrapes of SGLang: time of the device in prefill or decode passes, and their
-- tokens. Not wall time: gaps between passes are not in it. Every TP rank does the same passes at the same time, so
-- the lowest one stands for the engine; ranks are never summed. An interval with mixed passes belongs to neither phase
-- and is left out, as is one across a restart. Tokens are counted at log intervals: rows of short scrape intervals are
-- rough. vLLM gives no rows: its prefill times are of requests that overlap, so their sum is not how long it was busy.
WITH series AS (
    SELECT
        node,
        metric,
        labels,
        regexp_extract(labels, '(?:^|,)(?:category|mode)="([a-z_]+)"', 1) AS kind,
        [
            coalesce(try_cast(regexp_extract(labels, '(?:^|,)' || rank || '="([0-9]+)"', 1) AS BIGINT), 0)
            FOR rank IN ['tp_rank', 'pp_rank', 'moe_ep_rank']
        ] AS ranks
    FROM (
        SELECT DISTINCT node, metric, labels
        FROM metric_samples
        WHERE
            metric IN (
                'sglang:forward_execution_seconds_total',
                'sglang:realtime_tokens_total',
                'sglang:prefill_effective_tokens_total'
            )
    )
    WHERE NOT regexp_matches(labels, '(?:^|,)priority="[^"]')
    QUALIFY ranks = min(ranks) OVER (PARTITION BY node)
),

one AS (
    SELECT sample.observed_at_us, sample.value, series.*
    FROM metric_samples AS sample
    INNER JOIN series ON sample.node = series.node AND sample.metric = series.metric AND sample.labels = series.labels
),

scrape AS (
    SELECT
        observed_at_us,
        node,
        sum(value) FILTER (metric LIKE '%seconds_total' AND kind IN ('extend', 'prefill')) AS prefill_s,
        sum(value) FILTER (metric LIKE '%seconds_total' AND kind = 'decode') AS decode_s,
        coalesce(sum(value) FILTER (metric LIKE '%seconds_total' AND kind = 'mixed'), 0) AS mixed_s,
        sum(value) FILTER (metric LIKE '%realtime_tokens_total' AND kind = 'prefill_compute') AS computed,
        sum(value) FILTER (metric LIKE '%effective_tokens_total' AND kind = 'input') AS effective,
        sum(value) FILTER (metric LIKE '%realtime_tokens_total' AND kind = 'decode') AS generated
    FROM one
    GROUP BY observed_at_us, node
),

change AS (
    SELECT
        observed_at_us,
        node,
        prefill_s - lag(prefill_s) OVER w AS prefill_s,
        decode_s - lag(decode_s) OVER w AS decode_s,
        mixed_s - lag(mixed_s) OVER w AS mixed_s,
        coalesce(computed - lag(computed) OVER w, effective - lag(effective) OVER w) AS computed,
        generated - lag(generated) OVER w AS generated
    FROM scrape
    WINDOW w AS (PARTITION BY node ORDER BY observed_at_us)
),

kept AS (
    SELECT *
    FROM change
    WHERE mixed_s = 0 AND coalesce(least(prefill_s, decode_s, computed, generated), 0) >= 0
)

SELECT
    observed_at_us,
    node,
    phase,
    NULL::BIGINT AS n_steps,
    round(seconds * 1000000)::BIGINT AS busy_us,
    NULL::DOUBLE AS sequences,
    NULL::DOUBLE AS tokens,
    round(new_tokens)::BIGINT AS new_tokens,
    NULL::DOUBLE AS context_tokens,
    'prometheus' AS source
FROM (
    SELECT observed_at_us, node, 'prefill' AS phase, prefill_s AS seconds, computed AS new_tokens FROM kept
    UNION ALL
    SELECT observed_at_us, node, 'decode' AS phase, decode_s AS seconds, generated AS new_tokens FROM kept
)
WHERE seconds * 1000000 >= 1 AND new_tokens >= 1
