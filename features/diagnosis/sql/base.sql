-- One row a request: its decision, its stages in milliseconds, and whether it met its targets. Unknown is null.
-- A stage begins at the latest known end before it and ends no later than the first token, so known stages never
-- overlap and never add up to more than TTFT. Macro `between_ms(a, b)`: time from a to b, at least 0; null if unknown.
WITH known AS (
    SELECT
        *,
        coalesce(decided_at_us, arrived_at_us) AS at_us,
        -- greatest() and least() leave nulls out.
        greatest(arrived_at_us, decided_at_us) AS f_queue,
        greatest(arrived_at_us, decided_at_us, prefill_started_at_us) AS f_compute,
        greatest(arrived_at_us, decided_at_us, prefill_started_at_us, prefill_finished_at_us) AS f_reserve,
        greatest(
            arrived_at_us, decided_at_us, prefill_started_at_us, prefill_finished_at_us, transfer_started_at_us
        ) AS f_transfer,
        greatest(
            arrived_at_us, decided_at_us, prefill_started_at_us, prefill_finished_at_us, transfer_started_at_us,
            transfer_finished_at_us
        ) AS f_admit,
        greatest(
            arrived_at_us, decided_at_us, prefill_started_at_us, prefill_finished_at_us, transfer_started_at_us,
            transfer_finished_at_us, decode_admitted_at_us
        ) AS f_step
    FROM requests
),
staged AS (
    SELECT
        *,
        (first_token_at_us - arrived_at_us) / 1000.0 AS ttft_ms,
        CASE
            WHEN output_tokens > 1 THEN (finished_at_us - first_token_at_us) / 1000.0 / (output_tokens - 1)
        END AS tpot_ms,
        between_ms(arrived_at_us, least(decided_at_us, first_token_at_us), decided_at_us) AS router_ms,
        between_ms(f_queue, least(prefill_started_at_us, first_token_at_us), prefill_started_at_us) AS queue_ms,
        CASE
            WHEN prefill_started_at_us IS NOT NULL
            THEN between_ms(f_compute, least(prefill_finished_at_us, first_token_at_us), prefill_finished_at_us)
        END AS compute_ms,
        CASE
            WHEN prefill_finished_at_us IS NOT NULL
            THEN between_ms(f_reserve, least(transfer_started_at_us, first_token_at_us), transfer_started_at_us)
        END AS reservation_ms,
        CASE
            WHEN transfer_started_at_us IS NOT NULL
            THEN between_ms(f_transfer, least(transfer_finished_at_us, first_token_at_us), transfer_finished_at_us)
        END AS transfer_ms,
        CASE
            WHEN transfer_finished_at_us IS NOT NULL
            THEN between_ms(f_admit, least(decode_admitted_at_us, first_token_at_us), decode_admitted_at_us)
        END AS admission_ms,
        CASE
            WHEN decode_admitted_at_us >= f_admit OR transfer_finished_at_us IS NOT NULL
            THEN between_ms(least(f_step, first_token_at_us), first_token_at_us, decode_admitted_at_us)
        END AS first_step_ms
    FROM known
)
SELECT
    s.request_id,
    coalesce(s.slo_class, 'unknown') AS slo_class,
    CASE
        WHEN s.prompt_tokens < 1024 THEN '00k–01k'
        WHEN s.prompt_tokens < 4096 THEN '01k–04k'
        WHEN s.prompt_tokens < 16384 THEN '04k–16k'
        WHEN s.prompt_tokens < 65536 THEN '16k–64k'
        ELSE '64k–'
    END AS prompt_bucket,
    coalesce(s.router_id, 'unknown') AS router_id,
    s.policy_version,
    s.prefill_node,
    s.decode_node,
    s.prompt_tokens,
    s.output_tokens,
    s.prefill_cached_tokens AS cached_tokens,
    s.block_tokens,
    s.block_hashes,
    s.block_hash_scope,
    s.arrived_at_us,
    s.at_us,
    s.prefill_started_at_us,
    s.prefill_finished_at_us,
    s.transfer_started_at_us,
    s.transfer_finished_at_us,
    s.first_token_at_us,
    s.finished_at_us,
    s.transferred_bytes,
    s.preemptions,
    s.finish_reason,
    s.ttft_ms,
    s.tpot_ms,
    s.router_ms,
    s.queue_ms,
    s.compute_ms,
    s.reservation_ms,
    s.transfer_ms,
    s.admission_ms,
    s.first_step_ms,
    -- + 0.0: what is left of nothing may be -0.
    round(
        s.ttft_ms - coalesce(s.router_ms, 0) - coalesce(s.queue_ms, 0) - coalesce(s.compute_ms, 0)
            - coalesce(s.reservation_ms, 0) - coalesce(s.transfer_ms, 0) - coalesce(s.admission_ms, 0)
            - coalesce(s.first_step_ms, 0),
        6
    ) + 0.0 AS unattributed_ms,
    t.ttft_target_ms,
    t.tpot_target_ms,
    -- A request that was refused or failed missed what its class promises; a cancelled one is not judged.
    CASE
        WHEN t.ttft_target_ms IS NULL OR s.finish_reason = 'cancelled' THEN NULL
        WHEN s.finish_reason IN ('rejected', 'failed') THEN false
        ELSE s.ttft_ms <= t.ttft_target_ms
    END AS ttft_met,
    CASE
        WHEN t.tpot_target_ms IS NULL OR s.finish_reason = 'cancelled' THEN NULL
        WHEN s.finish_reason IN ('rejected', 'failed') THEN false
        WHEN s.output_tokens <= 1 THEN true
        ELSE s.tpot_ms <= t.tpot_target_ms
    END AS tpot_met
FROM staged AS s
LEFT JOIN targets AS t ON t.slo_class = coalesce(s.slo_class, 'unknown')
