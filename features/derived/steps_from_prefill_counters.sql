-- One row a node and pair of consecutive samples between which it prefilled: computed tokens, and the time they took.
-- SGLang counts from launch to launch and leaves out the interval after an idle gap. How many steps that were is not
-- told: n_steps is null. A pair across a restart (a counter fell) is left out.
WITH sample AS (
    SELECT
        observed_at_us,
        node,
        prefill_busy_us - lag(prefill_busy_us) OVER w AS busy_us,
        prefill_computed_tokens - lag(prefill_computed_tokens) OVER w AS new_tokens,
        generated_tokens - lag(generated_tokens) OVER w AS generated
    FROM node_loads
    WHERE prefill_busy_us IS NOT NULL AND prefill_computed_tokens IS NOT NULL
    WINDOW w AS (PARTITION BY node, source ORDER BY observed_at_us)
)

SELECT
    observed_at_us,
    node,
    'prefill' AS phase,
    NULL::BIGINT AS n_steps,
    busy_us,
    NULL::DOUBLE AS sequences,
    NULL::DOUBLE AS tokens,
    new_tokens,
    NULL::DOUBLE AS context_tokens,
    'prefill_counters' AS source
FROM sample
WHERE busy_us >= 1 AND new_tokens >= 1 AND coalesce(generated, 0) >= 0
