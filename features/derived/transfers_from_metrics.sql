-- One row a node and pair of consecutive scrapes: KV transfers that ended in between, by the engine's counters. An
-- interval in which a counter fell holds a restart: it gives no row, and counting starts anew.
-- vLLM (NIXL, Mooncake): seconds and bytes. SGLang: milliseconds and MiB; each TP rank sends its own share of the KV
-- over its own link, so the lowest rank's bytes and times belong together, and ranks are never summed into one link.
-- Older SGLang measures the last chunk's time only, against the bytes of all: such rows are faster than the line.
WITH series AS (
    SELECT
        node,
        metric,
        labels,
        [
            coalesce(try_cast(regexp_extract(labels, '(?:^|,)' || rank || '="([0-9]+)"', 1) AS BIGINT), 0)
            FOR rank IN ['tp_rank', 'pp_rank', 'moe_ep_rank']
        ] AS ranks
    FROM (
        SELECT DISTINCT node, metric, labels
        FROM metric_samples
        WHERE metric LIKE 'vllm:nixl%' OR metric LIKE 'vllm:mooncake%' OR metric LIKE 'sglang:%'
    )
    WHERE
        regexp_full_match(
            metric,
            'vllm:(nixl|mooncake)_(xfer_time_seconds_(sum|count)|bytes_transferred_sum|num_failed_[a-z_]+)'
            || '|sglang:(kv_transfer_(latency_ms_(sum|count)|total_mb_sum)|num_transfer_failed_reqs_total)'
        )
        AND NOT regexp_matches(labels, '(?:^|,)priority="[^"]')
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
        sum(value) FILTER (metric LIKE '%\_count' ESCAPE '\') AS transfers,
        sum(CASE WHEN metric LIKE 'vllm:%' THEN value ELSE value * 1048576 END)
            FILTER (metric LIKE '%bytes_transferred_sum' OR metric LIKE '%total_mb_sum') AS bytes,
        sum(CASE WHEN metric LIKE 'vllm:%' THEN value * 1000000 ELSE value * 1000 END)
            FILTER (metric LIKE '%seconds_sum' OR metric LIKE '%ms_sum') AS busy_us,
        sum(value) FILTER (
            metric LIKE '%failed_transfers%' OR metric LIKE '%failed_recvs%' OR metric LIKE '%failed_reqs%'
        ) AS failures
    FROM one
    GROUP BY observed_at_us, node
),

change AS (
    SELECT
        observed_at_us,
        node,
        observed_at_us - lag(observed_at_us) OVER w AS interval_us,
        transfers - lag(transfers) OVER w AS transfers,
        bytes - lag(bytes) OVER w AS bytes,
        busy_us - lag(busy_us) OVER w AS busy_us,
        failures - lag(failures) OVER w AS failures
    FROM scrape
    WHERE transfers IS NOT NULL
    WINDOW w AS (PARTITION BY node ORDER BY observed_at_us)
)

SELECT
    observed_at_us,
    node,
    interval_us,
    round(transfers)::BIGINT AS transfers,
    bytes,
    busy_us,
    round(failures)::BIGINT AS failures,
    'prometheus' AS source
FROM change
WHERE interval_us >= 1 AND least(transfers, bytes, busy_us, failures) >= 0
