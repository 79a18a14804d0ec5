-- One row a pair (P, D): the median alone rate of its larger transfers, their seconds and their part in TTFT. Which link
-- slow pairs have in common is found from it.
SELECT
    p,
    d,
    any_value(path) AS path,
    any_value(crosses) AS crosses,
    count(*) AS transfers,
    median(alone_bytes_per_s) AS alone_bytes_per_s,
    sum(bytes)::DOUBLE AS bytes,
    sum(transfer_ms) AS transfer_ms,
    sum(ttft_ms) AS ttft_ms
FROM flows
WHERE bytes >= getvariable('large_bytes')
GROUP BY p, d
ORDER BY p, d
