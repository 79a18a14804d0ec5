-- One row a router: age of what it decided on, as the decision log tells it.
SELECT
    coalesce(router_id, 'unknown') AS router_id,
    count(*) AS decisions,
    count(age_us) AS known,
    quantile_cont(age_us, 0.5) / 1000.0 AS age_p50_ms,
    quantile_cont(age_us, 0.95) / 1000.0 AS age_p95_ms
FROM (
    SELECT request_id, decided_at_us, any_value(router_id) AS router_id, any_value(telemetry_age_us) AS age_us
    FROM decisions
    GROUP BY request_id, decided_at_us
)
GROUP BY ALL
ORDER BY ALL
