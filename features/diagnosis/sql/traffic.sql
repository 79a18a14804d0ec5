-- One row: what the day held. The span is from the first arrival to the last time of any request.
SELECT
    count(*) AS requests,
    count(ttft_ms) AS ttft_known,
    min(arrived_at_us) AS from_us,
    max(greatest(arrived_at_us, first_token_at_us, finished_at_us)) AS to_us,
    avg(ttft_ms) AS ttft_mean_ms,
    count(*) FILTER (WHERE finish_reason = 'rejected') AS rejected,
    count(*) FILTER (WHERE finish_reason = 'failed') AS failed,
    count(*) FILTER (WHERE finish_reason = 'cancelled') AS cancelled,
    count(preemptions) AS preemptions_known,
    sum(preemptions)::BIGINT AS preemptions,
    count(*) FILTER (WHERE preemptions > 0) AS preempted_requests,
    sum(prompt_tokens)::BIGINT AS prompt_tokens,
    count(prefill_node) AS prefill_node_known,
    count(decode_node) AS decode_node_known,
    count(*) FILTER (WHERE ttft_met = false) AS ttft_missed,
    count(ttft_met) AS ttft_judged,
    count(*) FILTER (WHERE tpot_met = false) AS tpot_missed,
    count(tpot_met) AS tpot_judged
FROM r
