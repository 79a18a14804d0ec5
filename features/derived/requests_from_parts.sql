-- One row a request that some part gives an arrival and a prompt. A column is the known value of the lowest rank, of
-- equal ranks that of the first part; the arrival is the earliest that the router saw, without it the earliest of all.
--
-- Parts of spans are named <kind>/<trace id>/<span id> (features/readers/otlp_parts.py); parts of other logs are taken
-- as they are.
WITH
spans AS (
    SELECT
        *,
        CASE WHEN source = 'otlp-spans' THEN split_part(part, '/', 1) ELSE '' END AS kind,
        CASE WHEN source = 'otlp-spans' THEN nullif(split_part(part, '/', 2), '') END AS trace
    FROM request_parts
),
-- A request may have an id for each host: the sidecar makes one up for its two calls, SGLang's stages have none. A trace
-- that holds one request says which ids are one: there, no layer knows more than one id. The outermost layer's is kept.
layers AS (
    SELECT DISTINCT
        trace,
        request_id,
        CASE
            WHEN starts_with(kind, 'router.') THEN 0
            WHEN starts_with(kind, 'proxy.') THEN 1
            WHEN kind IN ('engine.prefill', 'engine.one_token') OR kind = 'stage.prefill' THEN 3
            ELSE 2
        END AS layer
    FROM spans
    WHERE trace IS NOT NULL AND NOT starts_with(request_id, 'trace:')
),
single AS (
    SELECT trace FROM (SELECT trace, layer, count(*) AS ids FROM layers GROUP BY ALL) GROUP BY trace HAVING max(ids) = 1
),
owners AS (
    SELECT trace, arg_min(request_id, layer) AS owner FROM layers SEMI JOIN single USING (trace) GROUP BY trace
),
owned AS (
    SELECT * EXCLUDE (trace, owner) REPLACE (coalesce(owner, request_id) AS request_id)
    FROM spans LEFT JOIN owners USING (trace)
),
-- An engine that told no role did what the request's other parts leave: D if something else names P, P if it was asked
-- for one token only and another engine decoded, both if it stands alone.
sides AS (
    SELECT
        *,
        CASE
            WHEN kind = 'engine.one_token' AND decoded_elsewhere THEN 'prefill'
            WHEN kind = 'engine.open' AND prefilled_elsewhere THEN 'decode'
            WHEN kind = 'engine.one_token' AND prefilled_by_name THEN 'decode'
            ELSE ''
        END AS side
    FROM (
        SELECT
            *,
            bool_or(kind IN ('engine.decode', 'engine.open', 'stage.decode')) OVER request AS decoded_elsewhere,
            bool_or(kind = 'engine.one_token' OR (prefill_node IS NOT NULL AND kind <> 'engine.open')
                OR kind IN ('engine.prefill', 'stage.prefill')) OVER request AS prefilled_elsewhere,
            bool_or(kind IN ('engine.prefill', 'stage.prefill')) OVER request AS prefilled_by_name
        FROM owned
        WINDOW request AS (PARTITION BY request_id)
    )
),
told AS (
    SELECT
        * EXCLUDE (decoded_elsewhere, prefilled_elsewhere, prefilled_by_name, side, part_at_us, kind, part, rank) REPLACE (
            CASE WHEN side = 'prefill' THEN NULL ELSE decode_node END AS decode_node,
            CASE WHEN side = 'prefill' THEN NULL ELSE output_tokens END AS output_tokens,
            CASE WHEN side = 'prefill' THEN NULL ELSE max_output_tokens END AS max_output_tokens,
            CASE WHEN side = 'prefill' THEN NULL ELSE finish_reason END AS finish_reason,
            CASE WHEN side = 'prefill' THEN NULL ELSE first_token_at_us END AS first_token_at_us,
            CASE WHEN side = 'prefill' THEN NULL ELSE finished_at_us END AS finished_at_us,
            CASE WHEN side = 'decode' THEN NULL ELSE prefill_node END AS prefill_node,
            CASE WHEN side = 'decode' THEN NULL ELSE prefill_cached_tokens END AS prefill_cached_tokens,
            -- What D calls its prefill is the step that joins the batch, once the KV has come.
            CASE WHEN side = 'decode' THEN prefill_started_at_us ELSE decode_admitted_at_us END AS decode_admitted_at_us,
            CASE WHEN side = 'decode' THEN NULL ELSE prefill_started_at_us END AS prefill_started_at_us,
            CASE WHEN side = 'decode' THEN NULL ELSE prefill_finished_at_us END AS prefill_finished_at_us
        ),
        printf('%019d %s', rank, part) AS belief,
        starts_with(kind, 'router.') AS by_router
    FROM sides
)
SELECT * EXCLUDE (earliest_us) REPLACE (earliest_us AS arrived_at_us)
FROM (
    SELECT
        request_id,
        -- A node's clock may be ahead of the router's or behind it.
        coalesce(min(arrived_at_us) FILTER (by_router), min(arrived_at_us)) AS earliest_us,
        arg_min(COLUMNS(* EXCLUDE (request_id, belief, by_router)), belief)
    FROM told
    WHERE NOT starts_with(request_id, 'trace:')
    GROUP BY request_id
)
WHERE earliest_us IS NOT NULL AND prompt_tokens IS NOT NULL
ORDER BY earliest_us, request_id
