-- One row a role, metric, longer window and node: what a chart can show of the table `windows`.
SELECT
    role,
    metric,
    window_us // getvariable('chart_us') * getvariable('chart_us') AS window_us,
    node,
    avg(value) AS value
FROM windows
GROUP BY ALL
ORDER BY ALL
