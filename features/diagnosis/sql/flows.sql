-- One row a transfer: its bytes, time, and how many others shared P's egress, D's ingress and the rack path with it
-- when it started and when it ended (mean of the two; itself included).
WITH flow AS (
    SELECT
        r.request_id,
        r.prefill_node AS p,
        r.decode_node AS d,
        a.rack || ' → ' || b.rack AS path,
        a.rack != b.rack AS crosses,
        r.transfer_started_at_us AS lo,
        r.transfer_finished_at_us AS hi,
        r.transferred_bytes AS bytes,
        r.ttft_ms,
        r.transfer_ms
    FROM r
    LEFT JOIN nodes AS a ON a.node = r.prefill_node
    LEFT JOIN nodes AS b ON b.node = r.decode_node
    WHERE r.prefill_node != r.decode_node AND r.transfer_finished_at_us > r.transfer_started_at_us
        AND r.transferred_bytes > 0
),
edge AS (
    SELECT 'egress' AS kind, p AS name, lo, hi FROM flow
    UNION ALL
    SELECT 'ingress', d, lo, hi FROM flow
    UNION ALL
    SELECT 'path', path, lo, hi FROM flow WHERE crosses
),
event AS (
    SELECT kind, name, at_us, sum(change) AS change
    FROM (
        SELECT kind, name, lo AS at_us, 1 AS change FROM edge
        UNION ALL
        SELECT kind, name, hi, -1 FROM edge
    )
    GROUP BY ALL
),
level AS (
    -- n: from this moment on; before: up to it.
    SELECT kind, name, at_us, sum(change) OVER w AS n, sum(change) OVER w - change AS before
    FROM event
    WINDOW w AS (PARTITION BY kind, name ORDER BY at_us)
),
joined AS (
    SELECT
        f.*,
        (el.n + eh.before) / 2.0 AS egress_flows,
        (il.n + ih.before) / 2.0 AS ingress_flows,
        coalesce((pl.n + ph.before) / 2.0, 1) AS path_flows
    FROM flow AS f
    JOIN level AS el ON el.kind = 'egress' AND el.name = f.p AND el.at_us = f.lo
    JOIN level AS eh ON eh.kind = 'egress' AND eh.name = f.p AND eh.at_us = f.hi
    JOIN level AS il ON il.kind = 'ingress' AND il.name = f.d AND il.at_us = f.lo
    JOIN level AS ih ON ih.kind = 'ingress' AND ih.name = f.d AND ih.at_us = f.hi
    LEFT JOIN level AS pl ON pl.kind = 'path' AND pl.name = f.path AND pl.at_us = f.lo AND f.crosses
    LEFT JOIN level AS ph ON ph.kind = 'path' AND ph.name = f.path AND ph.at_us = f.hi AND f.crosses
)
SELECT
    request_id, p, d, path, crosses, lo, hi, bytes, ttft_ms, transfer_ms, egress_flows, ingress_flows, path_flows,
    bytes * 1e6 / (hi - lo) AS bytes_per_s,
    bytes * 1e6 / (hi - lo) * greatest(egress_flows, ingress_flows, path_flows) AS alone_bytes_per_s
FROM joined
