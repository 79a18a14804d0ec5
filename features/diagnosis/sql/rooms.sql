-- One row a P whose size is known: tokens that its cache can keep beside the KV of live prompts.
SELECT
    node,
    max(usable_blocks * block_tokens) AS usable_tokens,
    max(usable_blocks * block_tokens)
        - coalesce(sum(active_blocks * block_tokens * weight_us) / sum(weight_us) FILTER (WHERE active_blocks IS NOT NULL), 0)
        AS room_tokens
FROM samples
WHERE node IN (SELECT DISTINCT prefill_node FROM r)
GROUP BY node
HAVING max(usable_blocks) IS NOT NULL
