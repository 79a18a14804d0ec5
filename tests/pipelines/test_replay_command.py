"""`routecal replay`: a trace, a cluster file and a policy in; the agreed keys out; every wrong input said plainly."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from features.errors import SettingsError
from pipelines import cli, replay_trace
from pipelines.cluster_file import cluster_schema_text, load_cluster, parse_cluster
from policies.policy import ClassPolicy, Policy, default_policy
from policies.policy_file import build, to_bytes
from tests.policies.files import small_origin

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "data" / "demo" / "cluster.toml"
SCHEMA = ROOT / "data" / "schemas" / "cluster.json"
KEYS = {
    "policy", "requests", "completed", "rejected", "cancelled", "preemptions", "goodput_frac", "ttft_ms", "tpot_ms",
    "e2e_ms", "reused_tokens", "transferred_bytes", "output_tokens_per_s", "simulated_s", "wall_s",
}  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sixty requests in Mooncake format, pairs of which share their prompt; caches are the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROUTECAL_TRACE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "trace.jsonl"
    row = {"input_length": 1500, "output_length": 20}
    lines = [json.dumps({"timestamp": 400 * k, **row, "hash_ids": [k // 2, 100 + k // 2, 900 + k]}) for k in range(60)]
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def replayed(trace: Path, *more: str | Path, cluster: Path = EXAMPLE, policy: str | Path = "routecal") -> Result:
    return run("replay", "--trace", trace, "--cluster", cluster, "--policy", policy, "--json", *more)


def found(result: Result) -> dict:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_keys_that_scripts_rely_on(trace: Path) -> None:
    result = replayed(trace)
    value = found(result)
    assert set(value) >= KEYS
    assert (value["policy"], value["requests"], value["completed"]) == ("routecal", 60, 60)
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        assert list(value[name]) == ["p50", "p95", "p99"]
        assert 0 < value[name]["p50"] <= value[name]["p99"]
    assert value["transferred_bytes"] == 60 * 1500 * 327_680
    assert value["reused_tokens"] % 512 == 0
    assert "60 rows of mooncake: 60 requests are replayed" in result.stderr
    assert "60 completed" in result.stderr


def test_priorities_of_classes_reach_the_requests_and_are_part_of_the_cached_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 10 * k, "input_length": 600 + 600 * (k % 2), "output_length": 2, "hash_ids": [k]}
        for k in range(6)
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    classes = """
[[class_rules]]
name = "default"
max_prompt_tokens = 1000
[[class_rules]]
name = "long"
[classes.long]
ttft_target_ms = 9000
priority = {priority}
[classes.default]"""
    example = EXAMPLE.read_text().replace("[engine]", '[engine]\norder = "priority"', 1)
    found = []
    for priority in (0, 7, 7, 8):
        text = example.replace("[classes.default]", classes.replace("{priority}", str(priority)), 1)
        read = replay_trace.read_trace([path], parse_cluster(text, place="x"), cache=tmp_path / "cache")
        given = read.workload.priority
        found.append((read.cached, None if given is None else given.tolist()))
    assert found == [(False, None), (False, [0, 7] * 3), (True, [0, 7] * 3), (False, [0, 8] * 3)]


def test_the_same_seed_gives_the_same_and_the_trace_is_parsed_once(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = found(replayed(trace, "--seed", "7"))
    monkeypatch.setattr(replay_trace, "_parsed", None)
    again = replayed(trace, "--seed", "7")
    assert found(again) | {"wall_s": 0} == first | {"wall_s": 0}
    assert "rows of mooncake" not in again.stderr
    (kept,) = [path for path in (tmp_path / "cache").iterdir() if path.name[0] != "."]
    (kept / "prompt_tokens.npy").write_bytes(b"")
    monkeypatch.undo()
    monkeypatch.setenv("ROUTECAL_TRACE_CACHE", str(tmp_path / "cache"))
    assert found(replayed(trace, "--seed", "7")) | {"wall_s": 0} == first | {"wall_s": 0}


def test_another_trace_is_not_taken_for_the_cached_one(trace: Path) -> None:
    found(replayed(trace))
    trace.write_text(trace.read_text().replace("1500", "1600"))
    assert found(replayed(trace))["transferred_bytes"] == 60 * 1600 * 327_680


def test_load_moves_arrivals_together(trace: Path) -> None:
    slow, fast = found(replayed(trace)), found(replayed(trace, "--load", "40"))
    assert fast["simulated_s"] < slow["simulated_s"] / 10
    assert fast["ttft_ms"]["p99"] > slow["ttft_ms"]["p99"]


@pytest.mark.parametrize("family", ["round_robin", "lmetric"])
def test_other_families(trace: Path, family: str) -> None:
    assert found(replayed(trace, policy=family))["policy"] == family


def test_json_says_the_same_as_toml(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(tomllib.loads(EXAMPLE.read_text("utf-8"))))
    assert found(replayed(trace, cluster=path)) | {"wall_s": 0} == found(replayed(trace)) | {"wall_s": 0}


def policy_file(path: Path, **changes) -> Path:
    policy: Policy = default_policy((ClassPolicy("default", ttft_target_s=2.0, tpot_target_s=0.03),))
    laws = load_cluster(EXAMPLE).laws
    assert laws is not None
    path.write_bytes(to_bytes(build(policy, laws, small_origin(**changes))))
    return path


def test_a_policy_file_decides_and_its_estimators_drive_a_cluster_without_laws(trace: Path, tmp_path: Path) -> None:
    file = policy_file(tmp_path / "policy.json", block_tokens=512)
    bare = tmp_path / "bare.toml"
    bare.write_text(EXAMPLE.read_text("utf-8").split("[laws]")[0])
    by_name, by_file = found(replayed(trace)), found(replayed(trace, policy=file))
    assert by_file["policy"] == "demo/2026-11-03"
    own = found(replayed(trace, policy=file, cluster=bare))
    for key in KEYS - {"wall_s", "policy"}:
        assert by_name[key] == by_file[key] == own[key]


def test_what_the_policy_file_was_not_learned_for_is_said(trace: Path, tmp_path: Path) -> None:
    result = replayed(trace, policy=policy_file(tmp_path / "policy.json"))
    assert result.exit_code == 0
    assert "learned with block_tokens = 16; the cluster has 512" in result.stderr


def test_classes_of_the_cluster_file_must_be_those_of_the_policy_file(tmp_path: Path) -> None:
    cluster = load_cluster(EXAMPLE)
    with pytest.raises(SettingsError, match="same classes"):
        cluster.with_classes((ClassPolicy("chat", ttft_target_s=1.0),))
    taken = replace(cluster, described=False).with_classes((ClassPolicy("chat", ttft_target_s=1.0),))
    assert [(c.name, c.ttft_s) for c in taken.pool.goal.classes] == [("chat", 1.0)]


def in_example(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


@pytest.mark.parametrize(
    ("change", "rule", "place"),
    [
        (in_example("layers = 80", "layer = 80"), "a key must be one that routecal knows", "c: kv.layer"),
        (in_example("port_gbps = 160", "port_gbps = -1"), "greater than 0", "c: nodes[0].port_gbps"),
        (in_example("blocks = 2048 ", "# "), "usable blocks must be known", "c: nodes, p0"),
        (in_example("p0 = 1.0", "p9 = 1.0"), "a node of the cluster", "c: laws.prefill.node_factor"),
        (
            in_example("{ local = 1.0,", "{ local = 3.0,"),
            "less than or equal to 1",
            "c: laws.transfer.efficiency.local",
        ),
        (in_example('"d0", "d1"', '"p0", "d1"'), "described once", "c: nodes"),
        (in_example('role = "decode"', 'role = "prefill"'), "P and D nodes", "c: nodes"),
        (in_example("[engine]", "[engine]\nlora = true"), "does not model LoRA", "c: engine.lora"),
        (in_example("token_cap = 1048576", "token_cap = nan"), "finite", "c: laws.decode.token_cap"),
        (in_example("[kv]", "[kv"), "TOML or JSON", "c"),
        (lambda _: "{", "TOML or JSON", "c"),
        (lambda _: "{}", "required key", "c: schema_version"),
    ],
)
def test_a_bad_cluster_file_is_named(change: Callable[[str], str], rule: str, place: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse_cluster(change(EXAMPLE.read_text("utf-8")), place="c")
    assert rule in error.value.rule
    assert error.value.place == place


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("--policy", "rutecal"), "a family or a policy file"),
        (("--trace", "nothing.jsonl"), "a log must exist"),
        (("--cluster", "nothing.toml"), "a cluster file must be readable"),
        (("--load", "0"), "--load must be above 0"),
        (("--load", "nan"), "--load must be above 0"),
        (("--trace", "empty.jsonl"), "at least one row"),
        (("--trace", "loads.jsonl"), "must be of a known format"),
        (("--policy", "trace.jsonl"), "policy file must be"),
    ],
)
def test_wrong_use_ends_with_2(trace: Path, arguments: tuple[str, str], rule: str) -> None:
    (trace.parent / "empty.jsonl").write_text("")
    (trace.parent / "loads.jsonl").write_text(
        json.dumps({"polled_at_us": 1_700_006_400_000_000, "target": "http://e:1", "status": 200, "body": {}}) + "\n"
    )
    known = {"--trace": str(trace), "--cluster": str(EXAMPLE), "--policy": "routecal"} | dict([arguments])
    result = run("replay", *[part for pair in known.items() for part in pair], "--json")
    assert result.exit_code == 2, result.stdout
    assert rule in json.loads(result.stdout)["error"]["rule"]
    assert "Traceback" not in result.stderr


def test_a_family_needs_laws(trace: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.toml"
    bare.write_text(EXAMPLE.read_text("utf-8").split("[laws]")[0])
    result = replayed(trace, cluster=bare)
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["place"] == "laws"


def test_requests_of_a_class_that_nobody_describes(trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    text = EXAMPLE.read_text("utf-8").replace("[classes.default]", "[classes.chat]")
    other.write_text(text + '\n[[class_rules]]\nname = "chat"\nmin_prompt_tokens = 0\n')
    value = found(replayed(trace, cluster=other))
    assert value["goodput_frac_by_class"].keys() == {"chat"}


def test_schema_is_current() -> None:
    if os.environ.get("ROUTECAL_GOLDEN_UPDATE"):
        SCHEMA.write_text(cluster_schema_text(), "utf-8")
    assert SCHEMA.read_text("utf-8") == cluster_schema_text(), "data/schemas/cluster.json is old: make golden-update"
    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    table = tomllib.loads(EXAMPLE.read_text("utf-8"))
    jsonschema.validate(table, schema)
    table["kv"]["layer"] = 80
    with pytest.raises(jsonschema.ValidationError, match="layer"):
        jsonschema.validate(table, schema)
