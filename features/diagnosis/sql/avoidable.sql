-- One row a sampled request: milliseconds of its TTFT that another node would have saved, an estimate.
-- P queue: all of the wait if another P had nothing to do; what lies beyond the mean load if the chosen P had twice of
-- it (where all are busy, one prompt's shorter wait is another one's longer); less what a lost prefix hit would cost.
-- D: the whole wait for a reservation if another D had less than half of the chosen one's load and room for it all.
-- Transfer: the part that came from sharing D's ingress, if another D received at least two transfers fewer, or from an
-- ingress that is slower than the pool's usual rate. Another rack is not looked at.
WITH p AS (SELECT * FROM placements WHERE side = 'prefill'),
d AS (SELECT * FROM placements WHERE side = 'decode'),
i AS (SELECT * FROM placements WHERE side = 'ingress'),
saved AS (
    SELECT
        r.request_id,
        r.ttft_ms,
        r.ttft_target_ms,
        r.ttft_met,
        CASE
            WHEN r.queue_ms IS NULL OR p.candidates IS NULL THEN NULL
            WHEN p.own_tokens <= 0 OR (p.least_requests > 0 AND p.own_tokens < 2 * p.mean_tokens) THEN 0
            ELSE greatest(
                0,
                r.queue_ms * (1 - CASE WHEN p.least_requests > 0 THEN p.mean_tokens / p.own_tokens ELSE 0 END)
                    - coalesce(r.compute_ms * r.cached_tokens / nullif(r.prompt_tokens - r.cached_tokens, 0), 0)
            )
        END AS queue_saved_ms,
        CASE
            WHEN r.reservation_ms IS NULL OR d.candidates IS NULL THEN NULL
            WHEN d.least_tokens < 0.5 * d.own_tokens
                AND d.least_tokens + r.prompt_tokens + coalesce(r.output_tokens, 0) < s.usable_tokens
            THEN r.reservation_ms
            ELSE 0
        END AS reservation_saved_ms,
        CASE
            WHEN r.transfer_ms IS NULL OR i.candidates IS NULL OR f.bytes IS NULL THEN NULL
            WHEN i.least_requests + 2 > i.own_requests
                AND (f.crosses OR f.alone_bytes_per_s >= 0.6 * getvariable('usual_bytes_per_s'))
            THEN 0
            ELSE r.transfer_ms * greatest(
                0,
                1 - greatest(i.least_requests + 1, f.egress_flows, f.path_flows)
                    / greatest(f.ingress_flows, f.egress_flows, f.path_flows)
                    * CASE
                        WHEN f.crosses THEN 1
                        ELSE least(1, f.alone_bytes_per_s / getvariable('usual_bytes_per_s'))
                    END
            )
        END AS transfer_saved_ms
    FROM r
    LEFT JOIN p USING (request_id)
    LEFT JOIN d ON d.request_id = r.request_id
    LEFT JOIN i ON i.request_id = r.request_id
    LEFT JOIN flows AS f ON f.request_id = r.request_id
    CROSS JOIN (SELECT min(usable_blocks * block_tokens) AS usable_tokens FROM samples WHERE role = 'decode') AS s
    WHERE r.ttft_ms IS NOT NULL AND (p.request_id IS NOT NULL OR d.request_id IS NOT NULL)
)
SELECT
    *,
    coalesce(queue_saved_ms, 0) + coalesce(reservation_saved_ms, 0) + coalesce(transfer_saved_ms, 0) AS saved_ms
FROM saved
