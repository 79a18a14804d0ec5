-- One row a resource of the KV path: pair, egress of a P, ingress of a D, path between racks, with its line rate where
-- the settings know it. `alone_bytes_per_s`: the median of what its larger transfers would have got by themselves.
WITH use AS (
    SELECT 'pair' AS kind, p || ' → ' || d AS name, greatest(egress_flows, ingress_flows, path_flows) AS flows, f.* FROM flows AS f
    UNION ALL
    SELECT 'egress', p, egress_flows, f.* FROM flows AS f
    UNION ALL
    SELECT 'ingress', d, ingress_flows, f.* FROM flows AS f
    UNION ALL
    SELECT 'path', path, path_flows, f.* FROM flows AS f WHERE crosses
),
line AS (
    SELECT 'egress' AS kind, node AS name, bytes_per_s FROM nodes WHERE role = 'prefill'
    UNION ALL
    SELECT 'ingress', node, bytes_per_s FROM nodes WHERE role = 'decode'
    UNION ALL
    SELECT 'path', path, bytes_per_s FROM uplinks
    UNION ALL
    SELECT 'pair', a.node || ' → ' || b.node, least(a.bytes_per_s, b.bytes_per_s)
    FROM nodes AS a, nodes AS b
    WHERE a.role = 'prefill' AND b.role = 'decode'
),
busy AS (
    SELECT kind, name, sum(greatest(0, hi - greatest(lo, coalesce(before, lo)))) AS busy_us
    FROM (
        SELECT
            kind, name, lo, hi,
            max(hi) OVER (
                PARTITION BY kind, name ORDER BY lo, hi ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS before
        FROM use
    )
    GROUP BY ALL
)
SELECT
    kind,
    name,
    any_value(line.bytes_per_s) AS line_bytes_per_s,
    count(*) AS transfers,
    sum(bytes)::DOUBLE AS bytes,
    avg(hi - lo) / 1000.0 AS mean_ms,
    quantile_cont((hi - lo) / 1000.0, 0.99) AS p99_ms,
    median(use.bytes_per_s) AS bytes_per_s,
    median(alone_bytes_per_s) FILTER (WHERE bytes >= getvariable('large_bytes')) AS alone_bytes_per_s,
    avg(flows) AS flows_mean,
    avg((flows > 1)::INTEGER) AS shared_frac,
    sum(transfer_ms) / nullif(sum(ttft_ms), 0) AS ttft_share_frac,
    any_value(busy_us) / nullif(getvariable('to_us') - getvariable('from_us'), 0)::DOUBLE AS busy_frac,
    sum(bytes) / nullif(any_value(line.bytes_per_s) * any_value(busy_us) / 1e6, 0) AS line_use_frac
FROM use
LEFT JOIN line USING (kind, name)
LEFT JOIN busy USING (kind, name)
GROUP BY kind, name
ORDER BY kind, name
