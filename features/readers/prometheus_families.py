"""Metric families that routecal uses: which engine or router exposes them, under which names, and what they feed.

A family that is not here is skipped when it is read. Names of vLLM 0.6 to 0.33, SGLang 0.4 to 0.5.23 (both prefixes,
and `GET /v1/loads?format=prometheus`), SMG, Dynamo 0.7 to 1.6 and the llm-d endpoint picker with its older prefixes.
A family is stored under one name, the current one, whatever the engine's version calls it. Units stay the engine's:
vLLM counts blocks, SGLang tokens; SGLang's transfer sizes are MiB and its transfer times milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
LOADS, STEPS, TRANSFERS, LATENCY, ROUTING = "node_loads", "steps", "transfer_totals", "latency", "routing"
"""What a family feeds: a derived table, or the diagnosis (latency histograms, what a router did)."""

TARGET_LABELS = ("instance", "pod", "pod_name")
"""Labels that name the scraped process, best first; without them the poll's target or the file does."""
RANK_LABELS = ("dp_rank", "engine")
"""Labels that hold a data-parallel rank; vLLM calls it engine."""
MODEL_LABELS = ("model_name", "model", "target_model_name")
KEPT_LABELS = frozenset({
    "block_size", "category", "connector", "decision", "decision_type", "engine_type", "finished_reason", "le", "mode",
    "moe_ep_rank", "num_gpu_blocks", "operation", "outcome", "policy", "pp_rank", "priority", "reason", "role",
    "source", "stage", "status", "tp_rank", "worker_type",
})  # fmt: skip
"""All others are dropped: an operator may label metrics with tenants or users."""


@dataclass(frozen=True, slots=True)
class Family:
    """`name`: how it is stored. `node_labels`: labels that name the node it is about; () if it is the process itself.

    `of_engine`: it is about a rank of an engine, so its node has one; a router's own families have none.
    """

    name: str
    kind: str
    feeds: tuple[str, ...]
    node_labels: tuple[str, ...] = ()
    of_engine: bool = True


Row = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""Name without prefix, kind, what it feeds, older names."""

_VLLM: tuple[Row, ...] = (
    ("num_requests_running", GAUGE, (LOADS,), ()),
    ("num_requests_waiting", GAUGE, (LOADS,), ()),
    ("kv_cache_usage_perc", GAUGE, (LOADS,), ("gpu_cache_usage_perc",)),
    ("cache_config_info", GAUGE, (LOADS,), ()),
    ("num_preemptions", COUNTER, (LOADS,), ()),
    ("prompt_tokens", COUNTER, (LATENCY,), ()),
    ("prompt_tokens_cached", COUNTER, (LATENCY,), ()),
    ("generation_tokens", COUNTER, (LOADS,), ()),
    ("prefix_cache_queries", COUNTER, (LATENCY,), ("gpu_prefix_cache_queries",)),
    ("prefix_cache_hits", COUNTER, (LATENCY,), ("gpu_prefix_cache_hits",)),
    ("external_prefix_cache_queries", COUNTER, (LATENCY,), ()),
    ("external_prefix_cache_hits", COUNTER, (LATENCY,), ()),
    ("request_success", COUNTER, (LATENCY,), ()),
    ("admission_rejections", COUNTER, (LATENCY,), ()),
    ("time_to_first_token_seconds", HISTOGRAM, (LATENCY,), ()),
    ("inter_token_latency_seconds", HISTOGRAM, (LATENCY,), ("time_per_output_token_seconds",)),
    ("request_time_per_output_token_seconds", HISTOGRAM, (LATENCY,), ()),
    ("e2e_request_latency_seconds", HISTOGRAM, (LATENCY,), ()),
    ("request_queue_time_seconds", HISTOGRAM, (LATENCY,), ()),
    ("request_prefill_time_seconds", HISTOGRAM, (LATENCY,), ()),
    ("request_decode_time_seconds", HISTOGRAM, (LATENCY,), ()),
    ("request_prefill_kv_computed_tokens", HISTOGRAM, (LATENCY,), ()),
    ("iteration_tokens_total", HISTOGRAM, (LATENCY,), ()),
    ("nixl_xfer_time_seconds", HISTOGRAM, (TRANSFERS,), ()),
    ("nixl_post_time_seconds", HISTOGRAM, (TRANSFERS,), ()),
    ("nixl_bytes_transferred", HISTOGRAM, (TRANSFERS,), ()),
    ("nixl_num_failed_transfers", COUNTER, (TRANSFERS,), ()),
    ("nixl_num_failed_notifications", COUNTER, (TRANSFERS,), ()),
    ("nixl_num_kv_expired_reqs", COUNTER, (TRANSFERS,), ()),
    ("mooncake_xfer_time_seconds", HISTOGRAM, (TRANSFERS,), ()),
    ("mooncake_bytes_transferred", HISTOGRAM, (TRANSFERS,), ()),
    ("mooncake_num_failed_transfers", COUNTER, (TRANSFERS,), ()),
    ("mooncake_num_failed_recvs", COUNTER, (TRANSFERS,), ()),
    ("mooncake_num_kv_expired_reqs", COUNTER, (TRANSFERS,), ()),
)
_SGLANG: tuple[Row, ...] = (
    ("num_running_reqs", GAUGE, (LOADS,), ()),
    ("num_queue_reqs", GAUGE, (LOADS,), ()),
    ("num_waiting_reqs", GAUGE, (LOADS,), ()),
    ("num_waiting_uncached_tokens", GAUGE, (LOADS,), ()),
    ("num_used_tokens", GAUGE, (LOADS,), ()),
    ("kv_used_tokens", GAUGE, (LOADS,), ()),
    ("kv_available_tokens", GAUGE, (LOADS,), ()),
    ("kv_evictable_tokens", GAUGE, (LOADS,), ()),
    ("max_total_num_tokens", GAUGE, (LOADS,), ()),
    ("hicache_host_used_tokens", GAUGE, (LOADS,), ()),
    ("num_prefill_bootstrap_queue_reqs", GAUGE, (LOADS,),
     ("num_prefill_prealloc_queue_reqs", "disagg_prefill_bootstrap_queue_reqs")),
    ("num_prefill_inflight_queue_reqs", GAUGE, (LOADS,), ("disagg_prefill_inflight_queue_reqs",)),
    ("num_decode_prealloc_queue_reqs", GAUGE, (LOADS,), ("disagg_decode_prealloc_queue_reqs",)),
    ("num_decode_transfer_queue_reqs", GAUGE, (LOADS,), ("disagg_decode_transfer_queue_reqs",)),
    ("decode_retracted_queue_reqs", GAUGE, (LOADS,), ("disagg_decode_retracted_queue_reqs",)),
    ("last_kv_transfer_speed_gb_s", GAUGE, (LOADS,), ("kv_transfer_speed_gb_s", "disagg_kv_transfer_speed_gb_s")),
    ("last_kv_transfer_latency_ms", GAUGE, (LOADS,), ("kv_transfer_latency_ms", "disagg_kv_transfer_latency_ms")),
    ("total_prefill_uncached_tokens", GAUGE, (LOADS,), ()),
    ("total_prefill_busy_us", GAUGE, (LOADS,), ()),
    ("num_retracted_requests", COUNTER, (LOADS,), ()),
    ("realtime_tokens", COUNTER, (LOADS, STEPS), ()),
    ("forward_execution_seconds", COUNTER, (STEPS,), ("gpu_execution_seconds",)),
    ("prefill_effective_tokens", COUNTER, (STEPS,), ()),
    ("prompt_tokens", COUNTER, (LATENCY,), ()),
    ("generation_tokens", COUNTER, (LATENCY,), ()),
    ("cached_tokens", COUNTER, (LATENCY,), ()),
    ("evicted_tokens", COUNTER, (LATENCY,), ()),
    ("num_requests", COUNTER, (LATENCY,), ()),
    ("num_aborted_requests", COUNTER, (LATENCY,), ()),
    ("time_to_first_token_seconds", HISTOGRAM, (LATENCY,), ()),
    ("inter_token_latency_seconds", HISTOGRAM, (LATENCY,), ("time_per_output_token_seconds",)),
    ("request_time_per_output_token_seconds", HISTOGRAM, (LATENCY,), ()),
    ("e2e_request_latency_seconds", HISTOGRAM, (LATENCY,), ()),
    ("queue_time_seconds", HISTOGRAM, (LATENCY,), ()),
    ("per_stage_req_latency_seconds", HISTOGRAM, (LATENCY,), ()),
    ("kv_transfer_speed_gb_s", HISTOGRAM, (TRANSFERS,), ()),
    ("kv_transfer_latency_ms", HISTOGRAM, (TRANSFERS,), ()),
    ("kv_transfer_total_mb", HISTOGRAM, (TRANSFERS,), ()),
    ("kv_transfer_bootstrap_ms", HISTOGRAM, (TRANSFERS,), ()),
    ("kv_transfer_alloc_ms", HISTOGRAM, (TRANSFERS,), ()),
    ("num_bootstrap_failed_reqs", COUNTER, (TRANSFERS,), ()),
    ("num_transfer_failed_reqs", COUNTER, (TRANSFERS,), ()),
    ("num_prefill_retries", COUNTER, (TRANSFERS,), ()),
)  # fmt: skip
_SMG_WORKER: tuple[Row, ...] = (
    ("engine_running_requests", GAUGE, (ROUTING,), ()),
    ("engine_waiting_requests", GAUGE, (ROUTING,), ()),
    ("engine_token_usage", GAUGE, (ROUTING,), ()),
    ("engine_cache_hit_rate", GAUGE, (ROUTING,), ()),
    ("engine_pd_prefill_queue_reqs", GAUGE, (ROUTING,), ()),
    ("engine_pd_decode_queue_reqs", GAUGE, (ROUTING,), ()),
    ("engine_pd_kv_transfer_latency_ms", GAUGE, (ROUTING,), ()),
    ("engine_pd_kv_transfer_speed_gb_s", GAUGE, (ROUTING,), ()),
    ("worker_requests_active", GAUGE, (ROUTING,), ()),
)
_SMG_ROUTER: tuple[Row, ...] = (
    ("pd_ttft_seconds", HISTOGRAM, (LATENCY,), ()),
    ("pd_prefill_duration_seconds", HISTOGRAM, (LATENCY,), ()),
    ("pd_kv_transfer_duration_seconds", HISTOGRAM, (LATENCY,), ()),
    ("pd_kv_transfer_failures", COUNTER, (ROUTING,), ()),
    ("pd_bootstrap_failures", COUNTER, (ROUTING,), ()),
    ("router_ttft_seconds", HISTOGRAM, (LATENCY,), ()),
    ("router_tpot_seconds", HISTOGRAM, (LATENCY,), ()),
    ("router_request_duration_seconds", HISTOGRAM, (LATENCY,), ()),
    ("router_stage_duration_seconds", HISTOGRAM, (LATENCY,), ()),
    ("worker_selection", COUNTER, (ROUTING,), ()),
    ("scheduler_queue_depth", GAUGE, (ROUTING,), ()),
    ("scheduler_queue_wait_seconds", HISTOGRAM, (ROUTING,), ()),
)
_DYNAMO_COMPONENT: tuple[Row, ...] = (
    ("component_total_blocks", GAUGE, (ROUTING,), ("component_kvstats_total_blocks",)),
    ("component_gpu_cache_usage_percent", GAUGE, (ROUTING,), ("component_kvstats_gpu_cache_usage_percent",)),
)
_DYNAMO_WORKER: tuple[Row, ...] = (
    ("frontend_worker_active_decode_blocks", GAUGE, (ROUTING,), ()),
    ("frontend_worker_active_prefill_tokens", GAUGE, (ROUTING,), ()),
    ("frontend_worker_last_time_to_first_token_seconds", GAUGE, (ROUTING,), ()),
    ("frontend_worker_last_input_sequence_tokens", GAUGE, (ROUTING,), ()),
    ("frontend_worker_last_inter_token_latency_seconds", GAUGE, (ROUTING,), ()),
)
_DYNAMO_ROUTER: tuple[Row, ...] = (
    ("frontend_time_to_first_token_seconds", HISTOGRAM, (LATENCY,), ()),
    ("frontend_inter_token_latency_seconds", HISTOGRAM, (LATENCY,), ()),
    ("frontend_request_duration_seconds", HISTOGRAM, (LATENCY,), ()),
    ("frontend_router_queue_pending_requests", GAUGE, (ROUTING,), ()),
    ("frontend_model_kv_cache_block_size", GAUGE, (ROUTING,), ()),
    ("component_router_kv_hit_rate", HISTOGRAM, (ROUTING,), ("router_kv_hit_rate",)),
    ("component_router_non_max_overlap_selections", COUNTER, (ROUTING,), ()),
    ("component_router_overlap_blocks_lost", HISTOGRAM, (ROUTING,), ()),
    ("router_overhead_total_ms", HISTOGRAM, (ROUTING,), ()),
)
_EPP_ENDPOINT: tuple[Row, ...] = (
    ("per_endpoint_queue_size", GAUGE, (ROUTING,), ("per_pod_queue_size",)),
    ("scheduler_attempts", COUNTER, (ROUTING,), ()),
    ("inflight_requests", GAUGE, (ROUTING,), ()),
    ("inflight_tokens", GAUGE, (ROUTING,), ()),
)
_EPP_ROUTER: tuple[Row, ...] = (
    ("request_ttft_seconds", HISTOGRAM, (LATENCY,), ()),
    ("request_streaming_tpot_seconds", HISTOGRAM, (LATENCY,), ()),
    ("request_duration_seconds", HISTOGRAM, (LATENCY,), ()),
    ("disagg_decision", COUNTER, (ROUTING,), ("pd_decision",)),
    ("prefix_indexer_hit_ratio", HISTOGRAM, (ROUTING,), ()),
    ("flow_control_queue_size", GAUGE, (ROUTING,), ()),
    ("flow_control_request_queue_duration_seconds", HISTOGRAM, (ROUTING,), ()),
)
_COLONS = ("vllm:", ("vllm_", "ray_vllm_")), ("sglang:", ("sglang_",))
_EPP_OLD = (
    "inference_objective_", "inference_model_", "inference_pool_", "inference_extension_", "llm_d_inference_scheduler_",
)  # fmt: skip
_ENDPOINT_LABELS = ("model_server_endpoint", "model_server_pod", "endpoint_name", "pod_name")
_GROUPS: tuple[tuple[str, tuple[str, ...], tuple[Row, ...], tuple[str, ...], bool], ...] = (
    (*_COLONS[0], _VLLM, (), True),
    (*_COLONS[1], _SGLANG, (), True),
    ("smg_", (), _SMG_WORKER, ("worker",), True),
    ("smg_", (), _SMG_ROUTER, (), False),
    ("dynamo_", (), _DYNAMO_COMPONENT, (), True),
    ("dynamo_", (), _DYNAMO_WORKER, ("worker_id",), True),
    ("dynamo_", (), _DYNAMO_ROUTER, (), False),
    ("llm_d_epp_", _EPP_OLD, _EPP_ENDPOINT, _ENDPOINT_LABELS, True),
    ("llm_d_epp_", _EPP_OLD, _EPP_ROUTER, (), False),
)
_SUFFIXES = {GAUGE: ("",), COUNTER: ("_total", ""), HISTOGRAM: ("_bucket", "_sum", "_count")}


def _samples() -> Iterator[tuple[str, tuple[Family, str]]]:
    for prefix, other_prefixes, rows, node_labels, of_engine in _GROUPS:
        for name, kind, feeds, older in rows:
            family = Family(prefix + name, kind, feeds, node_labels, of_engine)
            for start in (prefix, *other_prefixes):
                for stem in (name, *older):
                    for suffix in _SUFFIXES[kind]:
                        stored = family.name + ("_total" if kind == COUNTER else suffix)
                        yield start + stem + suffix, (family, stored)


SAMPLES: Mapping[str, tuple[Family, str]] = dict(_samples())
"""Name of a sample as it is exposed -> its family, and the sample's name as it is stored."""
