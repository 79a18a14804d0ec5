-- One row a side and router: how often consecutive decisions went to the same node, against what the shares of the
-- minute give if their order were random: sum of c (c - 1) / n over nodes, n decisions of the minute. Decisions for a
-- prefix hit are left out on the P side: there a repeat has a reason. `first_wait_ms`, `late_wait_ms`: mean wait behind
-- others on the node (D: reservation, transfer, admission; P: queue) of the first and of the fourth and later of a run.
WITH decided AS (
    SELECT
        'decode' AS side, router_id, decode_node AS node, at_us, request_id,
        CASE WHEN reservation_ms IS NOT NULL OR transfer_ms IS NOT NULL
            THEN coalesce(reservation_ms, 0) + coalesce(transfer_ms, 0) + coalesce(admission_ms, 0) END AS wait_ms
    FROM r
    WHERE decode_node IS NOT NULL
    UNION ALL
    SELECT 'prefill', router_id, prefill_node, at_us, request_id, queue_ms
    FROM r
    WHERE prefill_node IS NOT NULL AND coalesce(cached_tokens, 0) = 0
),
ordered AS (
    SELECT
        *,
        at_us // 60000000 AS minute,
        row_number() OVER (PARTITION BY side, router_id, at_us // 60000000 ORDER BY at_us, request_id) AS place,
        coalesce(
            node = lag(node) OVER (PARTITION BY side, router_id, at_us // 60000000 ORDER BY at_us, request_id), false
        ) AS same
    FROM decided
),
runs AS (
    SELECT
        *,
        place - max(CASE WHEN same THEN 0 ELSE place END) OVER (
            PARTITION BY side, router_id, minute ORDER BY place ROWS UNBOUNDED PRECEDING
        ) AS run_place
    FROM ordered
),
counted AS (
    SELECT
        side, router_id, minute, node, count(*) AS c, count(*) FILTER (WHERE same) AS same,
        sum(wait_ms) FILTER (WHERE run_place = 0) AS first_ms,
        count(wait_ms) FILTER (WHERE run_place = 0) AS first_n,
        sum(wait_ms) FILTER (WHERE run_place >= 3) AS late_ms,
        count(wait_ms) FILTER (WHERE run_place >= 3) AS late_n,
        max(run_place) + 1 AS longest
    FROM runs
    GROUP BY ALL
),
by_minute AS (
    SELECT
        side,
        router_id,
        minute,
        sum(c) AS n,
        sum(same) AS same,
        sum(c * (c - 1)) / sum(c)::DOUBLE AS expected,
        sum(first_ms) AS first_ms,
        sum(first_n) AS first_n,
        sum(late_ms) AS late_ms,
        sum(late_n) AS late_n,
        max(longest) AS longest
    FROM counted
    GROUP BY ALL
    HAVING sum(c) >= 2
)
SELECT
    side,
    router_id,
    sum(n)::BIGINT AS decisions,
    count(*) AS minutes,
    sum(same)::BIGINT AS repeats,
    sum(n - 1)::BIGINT AS pairs,
    sum(same) / sum(n - 1)::DOUBLE AS repeat_frac,
    sum(expected) / sum(n - 1)::DOUBLE AS expected_frac,
    max(longest)::BIGINT AS longest_run,
    sum(first_ms) / nullif(sum(first_n), 0)::DOUBLE AS first_wait_ms,
    sum(late_ms) / nullif(sum(late_n), 0)::DOUBLE AS late_wait_ms,
    sum(late_n)::BIGINT AS late_decisions
FROM by_minute
GROUP BY side, router_id
ORDER BY side, router_id
