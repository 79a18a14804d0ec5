"""The file of a night: what keeps `current` back, who is in force, what a digest covers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from features.errors import PolicyError
from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, one_type
from models.portable.transfer import TransferLaw
from models.splits import Window
from pipelines.night.policy import in_force, in_force_within, kept_back, publish, settings_digest
from pipelines.night.revision import code_revision
from pipelines.settings import Keys, Pool
from policies.lengths import constant_length
from policies.policy import default_policy
from policies.policy_file import Origin, build, with_proof
from policies.policy_models import PolicyFile
from policies.signing import generate_key
from policies.store import PolicyStore
from tests.pipelines.night.emulated import write_settings

LAWS = Estimators(
    length=constant_length(200.0),
    prefill=one_type(StepLaw((0.01, 8e-5, 0.0, 0.0, 0.0))),
    decode=one_type(StepLaw((0.008, 3e-4, 0.0, 0.0))),
    transfer=TransferLaw({"local": 0.001, "cross": 0.001}, {"local": 0.9, "cross": 0.9}),
)
NO_KEYS = Keys(None, ())
AT = "2026-03-07T03:10:00Z"


def pool_in(folder: Path) -> Pool:
    return write_settings(folder).pool("small")


def proof(verdict: str = "better", cap: str = "current", gates: Any = None) -> dict[str, Any]:
    held = (
        [{"name": "validation", "status": "pass"}, {"name": "drills", "status": "waived"}] if gates is None else gates
    )
    return {"verdict": verdict, "promotion_cap": cap, "reason": "r", "details": {"gates": held}}


def made(pool: Pool, evidence: dict[str, Any] | None, day: date = date(2026, 3, 6)) -> PolicyFile:
    origin = Origin(pool.name, day, "m", "e", 64, 327_680, 2048, "rev", "pairs")
    return with_proof(build(default_policy(pool.classes), LAWS, origin), evidence=evidence, vectors=[])


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (proof(), ()),
        (None, ("The file has no evidence.",)),
        (proof(verdict="not distinguishable"), ("The verdict is not distinguishable.",)),
        (proof(cap="shadow"), ("Promotion ends at shadow.",)),
        (proof(gates=[]), ("The evidence has no gates.",)),
        (proof(gates=[{"name": "drills", "status": "not_run"}]), ("Gate drills is not_run.",)),
        (proof(gates=[{"name": "validation", "status": "fail"}]), ("Gate validation is fail.",)),
        (proof(gates=[{}, "drills"]), ("Gate None is None.", "Gate drills is None.")),
    ],
)
def test_gates_are_read_again_from_the_file(
    tmp_path: Path, evidence: dict[str, Any] | None, why: tuple[str, ...]
) -> None:
    assert kept_back(made(pool_in(tmp_path), evidence)) == why


def test_a_changed_file_is_kept_back(tmp_path: Path) -> None:
    file = made(pool_in(tmp_path), proof()).model_copy(update={"family": "lmetric"})
    assert kept_back(file) == ("The file's hash is not that of its content.",)


def test_publishing_moves_current_once(tmp_path: Path) -> None:
    pool = pool_in(tmp_path)
    store = PolicyStore(tmp_path / "store", pool.name)
    file = made(pool, proof())
    first = publish(store, file, NO_KEYS, issued_at=AT)
    assert first.move is not None
    assert not first.signed
    assert store.current() is not None
    again = publish(store, file, NO_KEYS, issued_at=AT)
    assert (again.move, again.kept_back) == (None, ("It is current already.",))
    assert len(store.history()) == 1


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (proof(verdict="not distinguishable"), "The verdict is not distinguishable."),
        (proof(verdict="worse"), "The verdict is worse."),
        (proof(cap="shadow"), "Promotion ends at shadow."),
        (proof(gates=[{"name": "validation", "status": "fail"}]), "Gate validation is fail."),
        (proof(gates=[{"name": "drills", "status": "not_run"}]), "Gate drills is not_run."),
    ],
)
def test_publishing_obeys_the_gates_of_the_file(tmp_path: Path, evidence: dict[str, Any], why: str) -> None:
    pool = pool_in(tmp_path)
    store = PolicyStore(tmp_path / "store", pool.name)
    found = publish(store, made(pool, evidence), NO_KEYS, issued_at=AT)
    assert (found.move, found.kept_back) == (None, (why,))
    assert store.current() is None
    assert found.path.exists()


def test_a_frozen_store_keeps_a_candidate_and_stays(tmp_path: Path) -> None:
    pool = pool_in(tmp_path)
    store = PolicyStore(tmp_path / "store", pool.name)
    store.freeze(at=AT, reason="incident")
    found = publish(store, made(pool, proof()), NO_KEYS, issued_at=AT)
    assert (found.move, found.kept_back) == (None, ("The store is frozen: incident.",))
    assert found.path.exists()


def test_a_night_that_is_not_trustworthy_writes_no_file(tmp_path: Path) -> None:
    pool = pool_in(tmp_path)
    store = PolicyStore(tmp_path / "store", pool.name)
    with pytest.raises(PolicyError, match="not trustworthy"):
        publish(store, made(pool, proof("not trustworthy", "none")), NO_KEYS, issued_at=AT)
    assert store.versions() == []


def test_a_key_that_is_named_must_be_there(tmp_path: Path) -> None:
    pool = pool_in(tmp_path)
    store = PolicyStore(tmp_path / "store", pool.name)
    with pytest.raises(PolicyError, match="readable"):
        publish(store, made(pool, proof()), Keys(tmp_path / "none.pem", ()), issued_at=AT)
    (tmp_path / "key.pem").write_bytes(generate_key()[0])
    assert publish(store, made(pool, proof()), Keys(tmp_path / "key.pem", ()), issued_at=AT).signed


def test_the_incumbent_of_a_day_was_in_force_at_its_end(tmp_path: Path) -> None:
    pool = pool_in(tmp_path)
    store = PolicyStore(tmp_path / "store", pool.name)
    file = made(pool, proof())
    publish(store, file, NO_KEYS, issued_at=AT)
    declared = in_force(store, pool, date(2026, 3, 6))
    assert declared.policy == pool.incumbent
    assert declared.reference == {"family": "lowest_utilisation", "policy_version": None, "content_hash": None}
    later = in_force(store, pool, date(2026, 3, 7))
    assert later.policy == replace(default_policy(pool.classes), lease_s=pool.router.lease_ns / 1e9)
    assert later.reference["content_hash"] == file.content_hash
    other = replace(pool, classes=pool.classes[:1])
    assert in_force(store, other, date(2026, 3, 7)).policy == pool.incumbent


def within(store: PolicyStore, pool: Pool, day: int, *named: str) -> tuple[str | None, str]:
    """Family in force on a day of March, or why there is none."""
    start_us = round(datetime(2026, 3, day, tzinfo=UTC).timestamp() * 1e6)
    held, reason = in_force_within(store, pool, Window(date(2026, 3, day), start_us, start_us + 86_400_000_000), named)
    return held and held.policy.family, reason


def test_a_window_has_one_policy_or_says_why_not(tmp_path: Path) -> None:
    pool = pool_in(tmp_path)
    store = PolicyStore(tmp_path / "store", pool.name)
    assert within(store, pool, 7) == ("lowest_utilisation", "")
    first = made(pool, proof())
    publish(store, first, NO_KEYS, issued_at=AT)
    assert within(store, pool, 6) == ("lowest_utilisation", "")
    assert within(store, pool, 7) == (None, "the policy in force changed within the validation window of 2026-03-07")
    assert within(store, pool, 8) == ("routecal", "")
    # A rollback to what was in force changes nothing; another file at midnight belongs to the day that begins.
    store.rollback(at="2026-03-08T12:00:00Z", reason="again", to=first.content_hash)
    assert within(store, pool, 8) == ("routecal", "")
    publish(store, made(pool, proof(), date(2026, 3, 8)), NO_KEYS, issued_at="2026-03-08T23:00:00Z")
    assert within(store, pool, 8) == ("routecal", "")
    assert within(store, pool, 9) == ("routecal", "")
    other = replace(pool, classes=pool.classes[:1])
    assert within(store, other, 9) == (None, "the policy in force on 2026-03-09 has other classes than the settings")


def test_a_log_that_names_another_policy_is_heard(tmp_path: Path) -> None:
    pool = pool_in(tmp_path)
    store = PolicyStore(tmp_path / "store", pool.name)
    assert within(store, pool, 7, "v1") == ("lowest_utilisation", "")
    assert "names policy v1, v2" in within(store, pool, 7, "v2", "v1")[1]
    file = made(pool, proof())
    publish(store, file, NO_KEYS, issued_at=AT)
    assert within(store, pool, 8, file.policy_version) == ("routecal", "")
    assert within(store, pool, 8, "v1") == (
        None,
        f"the log of 2026-03-08 names policy v1, in force was {file.policy_version}",
    )


def test_what_cannot_change_a_result_is_not_in_the_settings_digest(tmp_path: Path) -> None:
    pool = pool_in(tmp_path)
    moved = replace(pool, sources=(), search=replace(pool.search, workers=7))
    assert settings_digest(moved) == settings_digest(pool)
    assert settings_digest(replace(pool, warm_up_s=61.0)) != settings_digest(pool)


def test_the_revision_is_of_the_sources_alone(tmp_path: Path) -> None:
    def clone(name: str) -> Path:
        for part in ("features/a.py", "policies/b.py", "pipelines/c.sql"):
            (tmp_path / name / part).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / part).write_text(part)
        return tmp_path / name

    first, second, third = clone("first"), clone("second"), clone("third")
    (second / "features" / "__pycache__").mkdir()
    (second / "features" / "__pycache__" / "a.pyc").write_bytes(b"x")
    (third / "pipelines" / "c.sql").write_text("other")
    assert code_revision(first) == code_revision(second) != code_revision(third)
    assert code_revision().startswith("sha256:")
