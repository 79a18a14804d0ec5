-- One row a class and value of a dimension: requests that could be judged, and how many met TTFT, TPOT and both.
SELECT
    '{name}' AS dimension,
    slo_class,
    coalesce({dimension}, 'unknown') AS value,
    count(*) AS requests,
    count(*) FILTER (WHERE finish_reason IN ('rejected', 'failed')) AS refused,
    count(ttft_met) AS ttft_judged,
    count(*) FILTER (WHERE ttft_met) AS ttft_met,
    count(tpot_met) AS tpot_judged,
    count(*) FILTER (WHERE tpot_met) AS tpot_met,
    count(*) FILTER (WHERE judged) AS judged,
    count(*) FILTER (WHERE judged AND both_met) AS met,
    any_value(ttft_target_ms) AS ttft_target_ms,
    any_value(tpot_target_ms) AS tpot_target_ms
FROM (
    SELECT
        *,
        (ttft_met IS NOT NULL OR ttft_target_ms IS NULL) AND (tpot_met IS NOT NULL OR tpot_target_ms IS NULL)
            AND coalesce(ttft_target_ms, tpot_target_ms) IS NOT NULL AS judged,
        coalesce(ttft_met, true) AND coalesce(tpot_met, true) AS both_met
    FROM r
)
GROUP BY ALL
ORDER BY ALL
