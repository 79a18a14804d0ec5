-- One row a sampled block that an endless cache would hold: what its own P last did with it before the prompt began.
-- `churn_tokens`: new tokens that P computed since then; `gap_us`: time since then; null: P had not computed it.
WITH done AS (
    SELECT b.key, b.node, b.end_us, w.computed_tokens
    FROM blocks AS b
    JOIN prefill_work AS w ON w.node = b.node AND w.at_us = b.end_us
    WHERE b.end_us IS NOT NULL AND b.node IS NOT NULL
),
mine AS (
    SELECT b.*, d.end_us AS own_us, d.computed_tokens AS own_computed
    FROM blocks AS b
    ASOF LEFT JOIN done AS d ON d.key = b.key AND d.node = b.node AND b.start_us >= d.end_us
    WHERE b.before_us IS NOT NULL AND b.node IS NOT NULL AND b.hit IS NOT NULL
)
SELECT
    m.* EXCLUDE (own_computed),
    m.start_us - m.own_us AS gap_us,
    coalesce(w.computed_tokens, 0) - m.own_computed AS churn_tokens
FROM mine AS m
ASOF LEFT JOIN prefill_work AS w ON w.node = m.node AND m.start_us >= w.at_us
