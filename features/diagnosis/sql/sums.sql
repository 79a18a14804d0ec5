-- One row ten seconds of arrivals: sums that intervals are drawn from. `saved` columns are of sampled requests only.
SELECT
    r.arrived_at_us // 10000000 AS tick,
    count(*) AS requests,
    count(r.ttft_ms) AS ttft_known,
    coalesce(sum(r.ttft_ms), 0) AS ttft_ms,
    coalesce(sum(r.queue_ms) FILTER (WHERE r.ttft_ms IS NOT NULL), 0) AS queue_ms,
    coalesce(sum(r.compute_ms) FILTER (WHERE r.ttft_ms IS NOT NULL), 0) AS compute_ms,
    coalesce(sum(r.reservation_ms) FILTER (WHERE r.ttft_ms IS NOT NULL), 0) AS reservation_ms,
    coalesce(sum(r.transfer_ms) FILTER (WHERE r.ttft_ms IS NOT NULL), 0) AS transfer_ms,
    coalesce(sum(coalesce(r.admission_ms, 0) + coalesce(r.first_step_ms, 0)) FILTER (WHERE r.ttft_ms IS NOT NULL), 0)
        AS decode_ms,
    count(a.request_id) AS sampled,
    coalesce(sum(a.ttft_ms), 0) AS sampled_ttft_ms,
    coalesce(sum(a.saved_ms), 0) AS saved_ms,
    coalesce(sum(a.queue_saved_ms), 0) AS queue_saved_ms,
    coalesce(sum(a.reservation_saved_ms), 0) AS reservation_saved_ms,
    coalesce(sum(a.transfer_saved_ms), 0) AS transfer_saved_ms,
    coalesce(sum(r.queue_ms) FILTER (WHERE a.request_id IS NOT NULL), 0) AS sampled_queue_ms,
    coalesce(sum(r.reservation_ms) FILTER (WHERE a.request_id IS NOT NULL), 0) AS sampled_reservation_ms,
    count(*) FILTER (WHERE a.ttft_met = false) AS sampled_missed,
    count(*) FILTER (WHERE a.ttft_met = false AND a.ttft_ms - a.saved_ms <= a.ttft_target_ms) AS missed_saved
FROM r
LEFT JOIN avoidable AS a USING (request_id)
GROUP BY ALL
ORDER BY tick
