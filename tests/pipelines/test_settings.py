"""routecal.toml: what it means, what is refused, and what an error says."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import replace
from datetime import date
from pathlib import Path

import jsonschema
import pytest

from features.errors import SettingsError
from features.naming import ClassRule
from pipelines.settings import Settings, load_settings, parse_settings
from pipelines.settings_build import _discipline
from pipelines.settings_cluster import to_cluster
from pipelines.settings_pool_file import EngineFile
from pipelines.settings_schema import settings_schema_text
from policies.families.registry import SIMPLE
from policies.objective import ClassTarget
from policies.twin.cluster import Discipline
from policies.twin.profiles import PROFILES

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "data" / "schemas" / "settings.json"
SMALL = """
schema_version = 1
[pools.p]
model = "m"
kv = {layers = 80, kv_heads = 8, head_dim = 128, block_tokens = 16}
incumbent = {family = "gated_utilisation"}
[[pools.p.nodes]]
names = ["p0"]
role = "prefill"
blocks = 100
port_gbps = 100
[[pools.p.nodes]]
names = ["d0", "d1"]
role = "decode"
port_gbps = 100
"""

TAKEN = """
[[pools.p.class_rules]]
name = "default"
max_prompt_tokens = 100
[[pools.p.class_rules]]
name = "default"
max_prompt_tokens = 50
priority = 1
"""


def parse(text: str) -> Settings:
    return parse_settings(text, base=Path("/srv/routecal"))


def refusal(text: str) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        parse(text)
    return caught.value


def with_key(table: str, line: str) -> str:
    """SMALL with one line more; `table` is a dotted table of the pool that SMALL does not open."""
    return f"{SMALL}\n[pools.p.{table}]\n{line}\n"


def test_example_is_valid() -> None:
    settings = load_settings(ROOT / "routecal.toml")
    pool = settings.pool("chat")
    assert pool.kv.bytes_per_token == 327_680
    assert (
        [c.name for c in pool.classes]
        == [c.name for c in pool.goal.classes]
        == ["interactive", "long_context", "batch"]
    )
    assert pool.incumbent.family == "gated_utilisation"
    assert pool.incumbent.same_rack == "decode_first"
    assert pool.class_rules[0] == ClassRule("batch", header=("x-slo-class", "batch"))
    assert settings.notices == ()
    assert settings.storage.mlflow_uri == f"sqlite:///{ROOT}/data/runs/mlflow.db"


def test_schema_is_current() -> None:
    if os.environ.get("ROUTECAL_GOLDEN_UPDATE"):
        SCHEMA.write_text(settings_schema_text(), "utf-8")
    assert SCHEMA.read_text("utf-8") == settings_schema_text(), "data/schemas/settings.json is old: make golden-update"


def test_schema_accepts_the_example_and_refuses_unknown_keys() -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    table = json.loads(json.dumps(tomllib.loads((ROOT / "routecal.toml").read_text("utf-8")), default=str))
    jsonschema.validate(table, schema)
    table["pools"]["chat"]["kv"]["layer"] = 80
    with pytest.raises(jsonschema.ValidationError, match="layer"):
        jsonschema.validate(table, schema)


def test_defaults_are_filled_in_and_said() -> None:
    settings = parse(SMALL)
    pool = settings.pool("p")
    assert [c.name for c in pool.classes] == ["default"]
    assert (pool.classes[0].ttft_target_s, pool.classes[0].tpot_target_s) == (2.0, 0.05)
    assert "no class rules: all requests are of class `default`, TTFT <= 2000 ms, TPOT <= 50 ms" in settings.notices[0]
    assert pool.families == SIMPLE
    assert settings.storage.lake == Path("/srv/routecal/data/lake")


def test_rules_by_length_that_leave_nothing_out_need_no_default_class() -> None:
    rules = """
[[pools.p.class_rules]]
name = "short"
max_prompt_tokens = 4000
[[pools.p.class_rules]]
name = "long"
min_prompt_tokens = {low}
[pools.p.classes]
short = {{ttft_target_ms = 1000}}
long = {{ttft_target_ms = 4000}}
"""
    covered = parse(SMALL + rules.format(low=4000))
    assert [c.name for c in covered.pool("p").classes] == ["short", "long"]
    gap = parse(SMALL + rules.format(low=4001))
    assert [c.name for c in gap.pool("p").classes] == ["short", "long", "default"]
    assert "requests that meet no class rule" in gap.notices[0]


def test_cluster_of_a_pool() -> None:
    pool = load_settings(ROOT / "routecal.toml").pool("chat")
    now = to_cluster(pool)
    assert [n.name for n in now.prefill] == [f"prefill-{i}/dp0" for i in range(4)]
    assert now.racks == ("a", "b")
    assert (now.block_tokens, now.kv_bytes_per_token) == (16, 327_680)
    assert (now.routers.count, now.routers.period_ns, now.routers.delay_ns) == (2, 1_000_000_000, 50_000_000)
    october = to_cluster(pool, at_us=1_792_000_000_000_000)
    assert len(october.prefill) == 3


def test_cluster_learns_blocks_or_says_what_is_missing() -> None:
    pool = parse(SMALL).pool("p")
    assert [n.blocks for n in to_cluster(pool, blocks={"d0": 7, "d1": 8}).decode] == [7, 8]
    with pytest.raises(SettingsError, match=r"d0.*telemetry"):
        to_cluster(pool)


def test_history_ends_at_a_break() -> None:
    pool = load_settings(ROOT / "routecal.toml").pool("chat")
    assert pool.history(date(2026, 11, 20))[0] == date(2026, 11, 7)
    assert pool.history(date(2026, 11, 3)) == (date(2026, 11, 1), date(2026, 11, 2), date(2026, 11, 3))
    assert len(pool.history(date(2026, 10, 31))) == 14


def test_unknown_key_says_what_was_meant() -> None:
    error = refusal(with_key("engine", "chunk_token = 4096"))
    assert error.place == "routecal.toml: pools.p.engine.chunk_token"
    assert error.value == 4096
    assert error.hint == "did you mean `chunk_tokens`?"
    assert "known here: hour_utc, minute" in refusal(SMALL + "[schedule]\nx = 1").hint
    assert "did you mean `sources`?" in refusal(SMALL + "[[pools.p.source]]\npaths=['a']").hint
    assert "did you mean `role`" in refusal(SMALL.replace("role = ", "rolle = ", 1)).hint


def test_a_class_has_the_target_of_its_objective() -> None:
    pool = parse(with_key("classes.chat", 'objective = "deadline"\ndeadline_ms = 30000')).pool("p")
    assert pool.goal.classes[0] == ClassTarget("chat", deadline_s=30.0)
    fast = parse(with_key("classes.chat", 'objective = "token_throughput"\ntokens_per_s = 25\nttft_target_ms = 900'))
    assert fast.pool("p").goal.classes[0] == ClassTarget("chat", ttft_s=0.9, tokens_per_s=25.0)
    for line, rule in (
        ('objective = "deadline"\nttft_target_ms = 1', "must have a target"),
        ("ttft_target_ms = 1\ndeadline_ms = 5", "another objective"),
    ):
        assert rule in refusal(with_key("classes.chat", line)).rule


@pytest.mark.parametrize(
    ("table", "line", "named"),
    [
        ("engine", "lora = true", "LoRA"),
        ("engine", "speculative_decoding = true", "speculative decoding"),
        ("engine", 'tiers = ["hbm", "dram"]', "tiers"),
        ("engine", 'order = "lpm"', "order of the prefill queue"),
        ("router", 'families = ["gated_utilisation", "learned_choice"]', "this router family"),
    ],
)
def test_what_the_twin_does_not_model_is_refused_by_name(table: str, line: str, named: str) -> None:
    error = refusal(with_key(table, line))
    assert error.rule.startswith("the twin does not model")
    assert named in error.rule
    assert error.place.startswith(f"routecal.toml: pools.p.{table}")


@pytest.mark.parametrize(
    ("kv", "named"),
    [
        ('{attention = "mla", layers = 61, block_tokens = 64}', "mla without its geometry"),
        ('{attention = "hybrid", layers = 61, block_tokens = 64}', "hybrid"),
        ("{layers = 61, block_tokens = 64, kv_heads = 8}", "gqa without its geometry"),
        ("{layers = 8, kv_heads = 8, head_dim = 128, block_tokens = 16, hash_block_tokens = 512}", "prefix hashes"),
    ],
)
def test_geometry_that_is_not_modelled(kv: str, named: str) -> None:
    text = SMALL.replace("{layers = 80, kv_heads = 8, head_dim = 128, block_tokens = 16}", kv)
    assert named in refusal(text).rule


def test_mla_with_geometry() -> None:
    kv = '{attention = "mla", layers = 61, kv_lora_rank = 512, rope_dim = 64, dtype = "bf16", block_tokens = 64}'
    text = SMALL.replace("{layers = 80, kv_heads = 8, head_dim = 128, block_tokens = 16}", kv)
    assert parse(text).pool("p").kv.bytes_per_token == 61 * 576 * 2


def test_estimators_are_fitted_again_unless_settings_say_no() -> None:
    given = (parse_settings(text, base=Path()) for text in (SMALL, with_key("gates", "refits = 0")))
    assert [settings.pool("p").gates.refits for settings in given] == [8, 0]


@pytest.mark.parametrize(
    ("broken", "rule", "place"),
    [
        (SMALL.replace("schema_version = 1", ""), "required key", "schema_version"),
        (SMALL.replace("port_gbps = 100", "port_gbps = 0", 1), "greater than 0", "pools.p.nodes[0].port_gbps"),
        (SMALL.replace('role = "prefill"', 'role = "decode"'), "P and D nodes", "pools.p.nodes"),
        (SMALL.replace('"d1"', '"d0"'), "once at a time", "pools.p.nodes"),
        (SMALL.replace('"gated_utilisation"', '"round_robbin"'), "router family", "pools.p.incumbent.family"),
        (SMALL.replace("[pools.p]", "[pools.'a b']").replace("pools.p.", "pools.'a b'."), "name must match", "a b"),
        (with_key("router", 'families = ["lmetric"]'), "incumbent must be a family", "pools.p.incumbent.family"),
        (with_key("gates", 'waive = ["drill"]'), "a waiver must name a gate", "pools.p.gates.waive[0]"),
        (with_key("gates", "refits = -1"), "greater than or equal to 0", "pools.p.gates.refits"),
        (with_key("engine", 'decode_chosen = "hand_off"'), "'handoff'", "pools.p.engine.decode_chosen"),
        (with_key("engine", 'recompute = "steps"'), "must reserve first", "pools.p"),
        (with_key("router", "loss_frac = 1"), "less than 1", "pools.p.router.loss_frac"),
        (SMALL.replace('"prefill"', '"prefill"\nclasses = ["x"]'), "classes of the pool", "pools.p.nodes[0].classes"),
        (with_key("classes.a", "weight = 2"), "must have a target", "pools.p.classes.a"),
        (SMALL + "[[pools.p.uplinks]]\nfrom_rack='rack0'\nto_rack='b'\ngbps=1", "racks that have nodes", "to_rack"),
        (
            SMALL.replace("port_gbps = 100", "port_gbps = 100_000_000_000", 1),
            "less than or equal",
            "nodes[0].port_gbps",
        ),
        (SMALL.replace("blocks = 100", "blocks = 99999999999999999999"), "less than or equal", "nodes[0].blocks"),
        (with_key("classes.a", "ttft_target_ms = 1e300"), "less than or equal", "classes.a.ttft_target_ms"),
        (with_key("search", "trials = 1_000_000_000"), "less than or equal", "search.trials"),
        (SMALL + "[[pools.p.sources]]\npaths = ['a']\nformat = 'sglang-load'", "has a reader", "sources[0].format"),
        (SMALL + TAKEN, "must be able to hold", "pools.p.class_rules[1]"),
        ("a = " + "[" * 5_000 + "]" * 5_000, "must be TOML", "routecal.toml"),
        ("schema_version = " + "1" * 5_000, "must be TOML", "routecal.toml"),
        (SMALL + "[[pools.p.class_rules]]\nname='fast'", "a class of the pool", "class_rules[0].name"),
        (SMALL + "[[pools.p.aliases]]\nnode='d7'\nnames=['x']", "a node or a worker", "aliases[0].node"),
        (
            SMALL + "[[pools.p.breaks]]\nat=2026-11-01T00:00:00\nreason='x'",
            "must have an offset",
            "pools.p.breaks[0].at",
        ),
        (with_key("search", "startup = 0"), "greater than or equal to 1", "pools.p.search.startup"),
        (
            SMALL + "[[pools.p.aliases]]\nnode='d0'\nnames=['x']\n[[pools.p.aliases]]\nnode='d1'\nnames=['x']",
            "one node at a time",
            "pools.p",
        ),
        ("a = [", "settings must be TOML", "routecal.toml"),
    ],
)
def test_an_error_says_rule_and_place(broken: str, rule: str, place: str) -> None:
    error = refusal(broken)
    assert rule in error.rule
    assert place in error.place


def test_missing_file_and_missing_pool(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="must exist"):
        load_settings(tmp_path / "routecal.toml")
    with pytest.raises(SettingsError, match=r"got 'q'; hint: one of p"):
        parse(SMALL).pool("q")


def test_a_node_has_a_type_if_its_gpu_is_told() -> None:
    text = SMALL.replace('names = ["p0"]', 'names = ["p0"]\ngpu = "H100"\ntensor_parallel = 4')
    assert parse(text).pool("p").node_types() == {"p0": "h100/tp4"}
    of_the_pool = SMALL.replace('model = "m"', 'model = "m"\ntensor_parallel = 2').replace(
        'role = "decode"', 'role = "decode"\ngpu = "b200"'
    )
    assert parse(of_the_pool).pool("p").node_types() == {"d0": "b200/tp2", "d1": "b200/tp2"}
    assert parse(SMALL).pool("p").node_types() == {}
    assert "gpu" in str(refusal(SMALL.replace('names = ["p0"]', 'names = ["p0"]\ngpu = "a/b"')))


def test_a_gpu_without_a_data_sheet_is_told() -> None:
    told = parse(SMALL.replace('role = "decode"', 'role = "decode"\ngpu = "h10O"')).notices
    assert any("no data sheet of GPU h10O" in notice for notice in told)
    told = parse(SMALL.replace('role = "decode"', 'role = "decode"\ngpu = "NVIDIA-H100-80GB"')).notices
    assert not any("data sheet" in notice for notice in told)


@pytest.mark.parametrize("value", ["0", "-1", '"2"', "1.5", "true", "2000"])
def test_tensor_parallel_is_a_whole_number(value: str) -> None:
    for text in (
        SMALL.replace('role = "decode"', f'role = "decode"\ntensor_parallel = {value}'),
        SMALL.replace('model = "m"', f'model = "m"\ntensor_parallel = {value}'),
    ):
        assert refusal(text).place.endswith("tensor_parallel")


@pytest.mark.parametrize("value", ['""', '"a/tp2"', '"*"', "5", '"h 100"'])
def test_a_gpu_has_a_plain_name(value: str) -> None:
    assert refusal(SMALL.replace('role = "decode"', f'role = "decode"\ngpu = {value}')).place.endswith("gpu")


def test_a_profile_is_a_start_that_given_fields_override():
    rules = _discipline(EngineFile(profile="dynamo-replay", chunk_tokens=4096, contention="share"))
    assert rules == replace(PROFILES["dynamo-replay"], chunk_tokens=4096, contention="share")
    assert _discipline(EngineFile(release="activation")) == Discipline(release="activation")
