-- One row a value of the compared column, block of time and stratum (hour of day, class, prompt bucket): sums.
SELECT
    {column} AS value,
    at_us // getvariable('block_us') AS block,
    (at_us // 3600000000) % 24 AS hour,
    slo_class,
    prompt_bucket,
    count(*) AS requests,
    count(*) FILTER (WHERE judged) AS slo_n,
    count(*) FILTER (WHERE judged AND both_met) AS slo_sum,
    count(ttft_ms) AS ttft_n,
    coalesce(sum(ttft_ms), 0) AS ttft_sum,
    count(tpot_ms) AS tpot_n,
    coalesce(sum(tpot_ms), 0) AS tpot_sum
FROM (
    SELECT
        *,
        (ttft_met IS NOT NULL OR ttft_target_ms IS NULL) AND (tpot_met IS NOT NULL OR tpot_target_ms IS NULL)
            AND coalesce(ttft_target_ms, tpot_target_ms) IS NOT NULL AS judged,
        coalesce(ttft_met, true) AND coalesce(tpot_met, true) AS both_met
    FROM r
)
WHERE {column} IS NOT NULL
GROUP BY ALL
ORDER BY ALL
