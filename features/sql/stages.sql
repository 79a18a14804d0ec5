-- One row a request: where its time went, in milliseconds; null where the log does not say.
SELECT
    day,
    pool,
    request_id,
    slo_class,
    prefill_node,
    decode_node,
    prompt_tokens,
    prefill_cached_tokens,
    output_tokens,
    (prefill_started_at_us - arrived_at_us) / 1000.0 AS prefill_wait_ms,
    (prefill_finished_at_us - prefill_started_at_us) / 1000.0 AS prefill_ms,
    (transfer_started_at_us - prefill_finished_at_us) / 1000.0 AS reservation_wait_ms,
    (transfer_finished_at_us - transfer_started_at_us) / 1000.0 AS transfer_ms,
    (decode_admitted_at_us - transfer_finished_at_us) / 1000.0 AS admission_wait_ms,
    (first_token_at_us - arrived_at_us) / 1000.0 AS ttft_ms,
    (finished_at_us - first_token_at_us) / 1000.0 / nullif(output_tokens - 1, 0) AS tpot_ms,
    (finished_at_us - arrived_at_us) / 1000.0 AS e2e_ms
FROM requests
