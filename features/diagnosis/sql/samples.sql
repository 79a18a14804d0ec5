-- One row a node and sample: differences to the node's sample before. A counter that fell gives null.
-- `weight_us`: how long the sample stands for, at most five usual intervals, so that a gap does not count; the last
-- one of a node for nothing.
WITH pair AS (
    SELECT
        *,
        observed_at_us - lag(observed_at_us) OVER w AS interval_us,
        prefill_busy_us - lag(prefill_busy_us) OVER w AS d_busy_us,
        prefill_computed_tokens - lag(prefill_computed_tokens) OVER w AS d_computed,
        generated_tokens - lag(generated_tokens) OVER w AS d_generated,
        active_blocks - lag(active_blocks) OVER w AS d_active,
        preemptions - lag(preemptions) OVER w AS d_preemptions,
        allocation_failures - lag(allocation_failures) OVER w AS d_failures,
        swap_bytes - lag(swap_bytes) OVER w AS d_swap_bytes,
        decode_moments[1] - lag(decode_moments[1]) OVER w AS d_steps,
        decode_moments[2] - lag(decode_moments[2]) OVER w AS d_sequences,
        decode_moments[3] - lag(decode_moments[3]) OVER w AS d_step_us,
        (running_tokens + lag(running_tokens) OVER w) / 2.0 AS mean_tokens,
        lead(observed_at_us) OVER w - observed_at_us AS next_us
    FROM node_loads
    WHERE observed_at_us BETWEEN getvariable('from_us') AND getvariable('to_us')
    WINDOW w AS (PARTITION BY node ORDER BY observed_at_us)
),
usual AS (SELECT median(next_us) AS us FROM pair)
SELECT
    pair.*,
    CASE WHEN next_us IS NOT NULL THEN least(next_us, 5 * usual.us) END AS weight_us,
    -- A part that no source tells is left out: the ratio is then a lower bound.
    (active_blocks + coalesce(reserved_blocks, 0) + coalesce(inflight_blocks, 0))
        / nullif(usable_blocks, 0)::DOUBLE AS committed_frac
FROM pair, usual
