"""Configs of real routers: goldens of what is written, round trips, samples of their projects, and what they refuse."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from features.errors import PolicyError
from policies.families import dynamo_cost, llm_d_scorers, sglang_cache_aware
from policies.families.params import from_row, to_row
from policies.families.registry import BY_NAME
from policies.policy import ClassPolicy, Policy
from policies.router_configs.registry import FORMATS, read_config, write_config
from tests.policies.families.rows import random_row

GOLDEN = Path(__file__).parents[2] / "golden" / "router_configs"
UPDATE = bool(os.environ.get("ROUTECAL_GOLDEN_UPDATE"))
MOVED = {
    "dynamo_cost": dynamo_cost.Params(
        dynamo_cost.CostFn(overlap_score_credit=0.75, overlap_score_credit_decay=0.25, prefill_load_scale=2.0),
        dynamo_cost.CostFn(decode_active_request_weight=0.0),
    ),
    "llm_d_scorers": llm_d_scorers.Params(
        llm_d_scorers.Profile(active_request=1.5, idle_threshold=2.0, prefix_cache=2.0, match_length_weight=0.5),
        llm_d_scorers.Profile(queue=0.0, prefix_cache=0.0, load_aware=1.0, picker="weighted-random-picker"),
    ),
    "sglang_cache_aware": sglang_cache_aware.Params(
        decode_policy="power_of_two", cache_threshold=0.5, balance_abs_threshold=16.0, balance_rel_threshold=1.1
    ),
}


def policy(params: object, family: str) -> Policy:
    return Policy(family, (ClassPolicy("chat"),), params=to_row(params))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_golden_config(form):
    text = write_config(form.name, policy(MOVED[form.family], form.family))
    path = GOLDEN / f"{form.name}.txt"
    if UPDATE:
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text, "make golden-update"


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_what_is_written_reads_back(form):
    rng = random.Random(7)
    kind = BY_NAME[form.family].params
    written = 0
    for _ in range(60):
        row = random_row(rng, form.family)
        params = from_row(kind, row) if row else kind()
        try:
            text = write_config(form.name, Policy(form.family, (ClassPolicy("chat"),), params=row))
        except PolicyError:
            continue
        found = read_config(form.name, text)
        assert found.family == form.family
        assert writable(form.name, found.params) == writable(form.name, params)
        assert write_config(form.name, policy(found.params, form.family)) == text
        written += 1
    assert written >= 8


def writable(form: str, params):
    """What a form can say: a scorer without weight, and another policy's knobs, are not written."""
    if form.startswith("llm-d"):
        return replace(params, prefill=seen(params.prefill), decode=seen(params.decode))
    if form == "dynamo-env":
        return replace(params, decode=params.prefill)
    if params.__class__ is sglang_cache_aware.Params and "least_load" not in (
        params.prefill_policy,
        params.decode_policy,
    ):
        plain = sglang_cache_aware.Params()
        return replace(
            params,
            least_load_kv_pressure_weight=plain.least_load_kv_pressure_weight,
            least_load_mean_prefill_tokens=plain.least_load_mean_prefill_tokens,
            least_load_default_throughput=plain.least_load_default_throughput,
        )
    return params


def seen(profile):
    plain, changes = llm_d_scorers.Profile(), {}
    for weight, names in (
        ("load_aware", ("threshold",)),
        ("active_request", ("idle_threshold", "max_busy_score")),
        ("prefix_cache", ("match_length_weight", "match_length_scale_tokens")),
    ):
        if getattr(profile, weight) == 0.0:
            changes |= {name: getattr(plain, name) for name in names}
    return replace(profile, **changes)


LLM_D_SAMPLE = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl=true]
plugins:
- type: approx-prefix-cache-producer
  parameters: {maxPrefixTokensToMatch: 4096}
- type: prefix-cache-scorer
- type: queue-scorer
- type: prefill-filter
- type: decode-filter
- type: disagg-profile-handler
  parameters: {deciders: {prefill: prefix-based-pd-decider}}
- type: prefix-based-pd-decider
  parameters: {nonCachedTokens: 16}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: prefix-cache-scorer, weight: 2}, {pluginRef: queue-scorer}]
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: prefix-cache-scorer, weight: 2}, {pluginRef: queue-scorer}]
"""
DYNAMO_SAMPLE = """
router: {host_cache_hit_weight: 0.5, router_ttl_secs: 60}
policy_classes: []
worker_selection:
  prefill: mine
  instances:
  - name: mine
    type: dynamo-default-cost-fn
    parameters: {overlap_score_credit: 0.5, seed: 3}
"""


def test_a_sample_of_llm_d():
    found = read_config("llm-d", LLM_D_SAMPLE)
    expected = llm_d_scorers.Profile(queue=1.0, kv_cache_utilization=0.0, prefix_cache=2.0)
    assert found.params == llm_d_scorers.Params(expected, expected)
    assert len(found.notes) == 2


def test_a_sample_of_dynamo():
    found = read_config("dynamo", DYNAMO_SAMPLE)
    assert found.params.prefill == dynamo_cost.CostFn(overlap_score_credit=0.5, host_cache_hit_weight=0.5)
    assert found.params.decode == dynamo_cost.CostFn(host_cache_hit_weight=0.5)
    assert len(found.notes) == 3


def test_arguments_of_a_gateway():
    text = "--router-policy random --router-decode-policy=cache_aware \\\n --cache-threshold 0.6 --port 80 --dp-aware"
    found = read_config("smg", text)
    assert found.params == sglang_cache_aware.Params(prefill_policy="random", cache_threshold=0.6)
    assert found.notes == ("--port 80", "--dp-aware")


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        ("dynamo", "worker_selection: {prefill: other}", "must name an instance"),
        ("dynamo", "worker_selection: {}\nworker_selection: {}", "once in its mapping"),
        ("dynamo", "router: {router_temprature: 1}", "knows no such key"),
        ("dynamo", DYNAMO_SAMPLE.replace("0.5, seed", "-0.5, seed"), "overlap_score_credit >= 0"),
        ("dynamo", DYNAMO_SAMPLE.replace("0.5, seed", ".inf, seed"), "finite"),
        ("dynamo", DYNAMO_SAMPLE.replace("name: mine", "name: default"), "the router's own"),
        ("dynamo", DYNAMO_SAMPLE.replace("type: dynamo-default-cost-fn", "type: thunderagent"), "modelled"),
        ("dynamo", DYNAMO_SAMPLE.replace("type: dynamo-default-cost-fn", "type: lmetric"), "no such policy"),
        ("dynamo", "[1", "must be YAML"),
        ("dynamo-env", "DYN_ROUTER_TEMPERATURE=warm", "must be a number"),
        ("dynamo-env", "DYN_ROUTER_TEMPRATURE=1", "no such variable"),
        ("dynamo-env", "DYN_ROUTER_MODE=random", "router mode kv"),
        ("llm-d", LLM_D_SAMPLE.replace("llm-d.ai/v1alpha1", "llm-d.ai/v2"), "known version"),
        ("llm-d", LLM_D_SAMPLE.replace("flowControl", "flowcontrol"), "feature gate"),
        ("llm-d", LLM_D_SAMPLE.replace("- type: queue-scorer", "- type: queue-scorrer"), "registered"),
        ("llm-d", LLM_D_SAMPLE.replace("- type: queue-scorer", "- type: prefix-cache-scorer"), "unique"),
        ("llm-d", LLM_D_SAMPLE.replace("pluginRef: queue-scorer", "pluginRef: queue"), "must name a plugin"),
        ("llm-d", LLM_D_SAMPLE.replace("weight: 2", "wieght: 2"), "knows no such key"),
        ("llm-d", LLM_D_SAMPLE.replace("weight: 2", "weight: .nan"), "finite"),
        ("llm-d", LLM_D_SAMPLE.replace("- name: decode", "- name: prefill"), "name of its own"),
        ("llm-d", LLM_D_SAMPLE.replace("nonCachedTokens: 16", "nonCachedTokens: 0"), "never sends"),
        ("llm-d", LLM_D_SAMPLE.replace("- type: queue-scorer", "- type: queue-scorer\n  parameters: {a: 1}"), "key"),
        ("llm-d", LLM_D_SAMPLE.replace("type: disagg-profile-handler", "type: header-profile-handler"), "handler"),
        ("smg", "--cache-treshold 0.3", "no such argument"),
        ("smg", "--policy bucket", "not modelled"),
        ("smg", "--policy best", "no such policy"),
        ("smg", "--balance-abs-threshold 1.5", "whole number"),
        ("smg", "--cache-threshold 1.5", "cache_threshold <= 1"),
        ("smg", "--policy random --policy random", "once"),
        ("smg", "--overload-token-usage-threshold 0.9", "off"),
        ("sglang-router", "--policy least_load", "no such policy"),
        ("vllm-router", "--policy kv_aware", "not modelled"),
    ],
)
def test_what_a_router_refuses_is_refused(form, text, words):
    with pytest.raises(PolicyError, match=words):
        read_config(form, text)


def test_a_policy_of_another_family_has_no_such_config():
    with pytest.raises(PolicyError, match="dynamo_cost"):
        write_config("dynamo", Policy("lmetric", (ClassPolicy("chat"),)))


def test_the_environment_has_one_temperature():
    differs = dynamo_cost.Params(dynamo_cost.CostFn(router_temperature=0.5), dynamo_cost.CostFn())
    with pytest.raises(PolicyError, match="agree"):
        write_config("dynamo-env", policy(differs, "dynamo_cost"))


@pytest.mark.parametrize("form", ["dynamo", "dynamo-env"])
def test_no_config_says_that_d_shares_blocks(form):
    with pytest.raises(PolicyError, match="reuse"):
        write_config(form, policy(dynamo_cost.Params(assume_kv_reuse=True), "dynamo_cost"))
