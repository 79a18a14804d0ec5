"""The asset graph: what there is, what it hangs on, and that everything says its grain."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from pipelines.defs.partitions import NIGHTS
from pipelines.defs.resources import project_resources
from pipelines.nightly_job import TIMED, nightly_definitions
from policies.evidence.gates import GATES
from tests.pipelines.nights import settings_file

NAMES = {
    "requests", "node_loads", "decisions", "ingest_report", "night_inputs", "estimators", "contest", "fidelity",
    "candidates", "evidence", "tracked_night", "policy", "published", "night_report", "diagnosis",
    "predictions",
}  # fmt: skip
BLOCKING = {"accounting_identity", "enough_requests", "content_hash", "signature", "conformance_vectors"}


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    return nightly_definitions(project_resources(settings_file(tmp_path_factory.mktemp("project"))))


def test_every_asset_is_a_partitioned_night_and_says_its_grain(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    specs = {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
    assert set(specs) == NAMES
    for name, spec in specs.items():
        assert graph.get(spec.key).partitions_def == NIGHTS, name
        assert (spec.description or "").startswith(("One row ", "One page ")), name
        assert spec.kinds, name
        assert list(spec.owners) == ["team:routing"], name
        assert spec.group_name in {"logs", "learn", "judge", "publish"}, name


def test_publication_comes_after_policy_and_evidence(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    above = {key.to_user_string() for key in graph.get_ancestor_asset_keys(dg.AssetKey("published"))}
    # Nothing that decides hangs on the diagnosis.
    assert above == NAMES - {"published", "night_report", "diagnosis"}
    assert dg.AssetKey("published") in graph.get(dg.AssetKey("night_report")).parent_keys


def test_checks_and_which_of_them_block(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    checks = {key.name: graph.get_check_spec(key) for key in graph.asset_check_keys}
    predicted = {f"{name}_error" for name in ("prefill", "decode", "transfer", "cache")} | {"length_coverage"}
    of_gates = {f"gate_{name}" for name in GATES}
    assert set(checks) == BLOCKING | {"estimator_errors", "estimators_accepted"} | predicted | of_gates
    assert {name for name, spec in checks.items() if spec.blocking} == BLOCKING


def test_the_job_runs_its_steps_in_one_process(definitions: dg.Definitions) -> None:
    job = definitions.resolve_job_def("nightly")
    assert job.executor_def.name == "in_process"
    assert set(TIMED) <= {node.name for node in job.nodes}


def test_code_location_and_nightly_job_have_the_same_assets(
    definitions: dg.Definitions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.definitions import defs

    monkeypatch.setenv("ROUTECAL_SETTINGS", str(settings_file(tmp_path)))
    loaded = defs()
    assert loaded.resolve_asset_graph().get_all_asset_keys() == definitions.resolve_asset_graph().get_all_asset_keys()
    assert loaded.resolve_asset_graph().asset_check_keys == definitions.resolve_asset_graph().asset_check_keys
