"""A whole night on an emulated pool: from logs to a signed candidate, the same every time."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import pytest

from features.errors import ModelError, PolicyError, SourceError
from models.splits import SplitMode
from pipelines.night.nightly import NightResult, run_night
from pipelines.night.policy import kept_back
from policies.conformance import check
from policies.evidence.sweep import SweepPlan, most_loads
from policies.policy_file import content_hash, parse
from policies.signing import generate_key, load_public, verify
from policies.store import PolicyStore
from tests.pipelines.night import emulated


@dataclass(frozen=True, slots=True)
class Place:
    """A project folder with logs, and what told its progress."""

    folder: Path
    told: list[tuple[str, int, int, float | None]]

    def night(self, day: date = emulated.LAST_DAY) -> NightResult:
        """The night of a day, signed if the folder has a key."""
        keys = '[keys]\nprivate_key = "key.pem"\n' if (self.folder / "key.pem").exists() else ""
        settings = emulated.write_settings(self.folder, more=keys)
        pool = settings.pool("small")
        return run_night(
            settings, pool, day, progress=lambda *now: self.told.append(now), issued_at="2026-03-07T03:10:00Z"
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("one")
    emulated.write_logs(emulated.write_settings(folder), folder / "logs")
    private, public = generate_key()
    (folder / "key.pem").write_bytes(private)
    (folder / "key.pub").write_bytes(public)
    return Place(folder, [])


@pytest.fixture(scope="module")
def night(place: Place) -> NightResult:
    return place.night()


def test_a_night_ends_in_a_verdict_and_a_file_that_holds(place: Place, night: NightResult) -> None:
    assert night.verdict in ("better", "not distinguishable", "worse"), night.reasons
    assert night.path is not None
    assert night.path.exists()
    file = parse(night.path.read_bytes())
    assert content_hash(file) == night.content_hash
    assert verify(file, (load_public((place.folder / "key.pub").read_bytes()),)).state == "trusted"
    assert check(file) == []
    assert len(file.vectors) >= 40
    assert file.inputs.capability_level == "router family"
    assert set(file.inputs.digests) >= {"requests/2026-03-02", "node_loads/2026-03-06", "settings/small"}
    assert file.incumbent is not None
    assert (file.incumbent.family, file.incumbent.content_hash) == ("lowest_utilisation", None)


def test_estimators_find_the_slow_nodes(night: NightResult) -> None:
    assert night.fitted is not None
    laws = night.fitted.estimators
    assert laws.prefill.node_factor["p1/dp0"] / laws.prefill.node_factor["p0/dp0"] == pytest.approx(1.3, rel=0.05)
    assert laws.decode.node_factor["d1/dp0"] / laws.decode.node_factor["d0/dp0"] == pytest.approx(1.3, rel=0.05)
    assert night.fitted.notes == ()
    assert laws.risk != type(laws.risk)()


def test_the_twin_passes_its_fidelity_gate(night: NightResult) -> None:
    gates = {gate["name"]: gate for gate in night.evidence["details"]["gates"]}
    assert gates["forced_placement"]["status"] == "pass", gates["forced_placement"]
    assert gates["policy_replay"]["status"] == "pass", gates["policy_replay"]
    assert gates["policy_replay"]["detail"].startswith("lowest_utilisation: ")
    assert gates["drills"]["status"] == "pass", gates["drills"]
    assert night.fitted is not None
    assert len({refit.prefill.by_type["*"].coef for refit in (night.fitted.estimators, *night.fitted.refits)}) == 9
    assert gates["estimator_refits"]["status"] in ("pass", "fail"), gates["estimator_refits"]
    arms = {arm["name"]: arm for arm in night.evidence["details"]["arms"]}
    assert {"incumbent", "default", "searched", "lowest_utilisation"} <= set(arms)
    # What the log served and what the twin makes of the incumbent's policy are the same traffic.
    assert arms["incumbent"]["requests"] == pytest.approx(emulated.RATE_PER_S * emulated.WINDOW_S, rel=0.1)


def test_progress_names_the_stages_in_order(place: Place, night: NightResult) -> None:
    stages = list(dict.fromkeys(stage for stage, *_ in place.told))
    assert stages == [
        "ingest",
        "inputs",
        "predictions",
        "fit",
        "workloads",
        "fidelity",
        "search",
        "evidence",
        "publish",
    ]
    searches = [now[1:] for now in place.told if now[0] == "search"]
    assert searches[0][2] is None
    done, total, best = searches[-1]
    assert done <= total
    totals = [total for _, total, _ in searches]
    assert totals == sorted(totals, reverse=True)  # what a search leaves over is no longer to come
    assert best == pytest.approx(
        max(s["best_soft_frac"] for s in night.evidence["details"]["search"]["searches"].values())
    )
    assert [now[1:3] for now in place.told if now[0] == "fidelity"][-1] == (6, 6)
    replays = [done for stage, done, *_ in place.told if stage == "evidence"]
    (most,) = {total for stage, _, total, _ in place.told if stage == "evidence"}
    arms = len(night.evidence["details"]["arms"])
    assert night.evidence["details"]["winner"] == "incumbent"  # so refits and drills need no replays
    loads = sum(len(arm["load_carried"]["curve"]) - 1 for arm in night.evidence["details"]["arms"])
    assert replays[-1] == 2 * arms + loads + night.evidence["details"]["explanation"]["replays"]
    assert replays[-1] == most - (arms * most_loads(SweepPlan()) - loads)
    assert set(night.timings_s) == set(stages)


def test_the_evidence_explains_itself_and_counts_its_replays(place: Place, night: NightResult) -> None:
    assert night.file is not None
    assert night.file.evidence is not None
    found = night.file.evidence.details["explanation"]
    assert isinstance(found, dict)
    assert {"ablation", "sensitivity", "loads", "regret", "slices", "flows", "switchback"} <= set(found)
    days = len(night.evidence["details"]["validation_days"]) + len(night.evidence["details"]["test_days"])
    at_load_one = len(night.evidence["details"]["arms"]) * days
    replays = max(done for stage, done, *_ in place.told if stage == "evidence")
    assert found["replays"] > 0
    assert replays >= found["replays"] + at_load_one


def test_a_second_lake_gives_the_same_content(place: Place, night: NightResult, tmp_path: Path) -> None:
    shutil.copytree(place.folder / "logs", tmp_path / "logs")
    again = Place(tmp_path, []).night()
    assert again.content_hash == night.content_hash
    assert not again.signed
    assert any("unsigned" in note for note in again.notes)


def test_a_rerun_returns_the_record_and_opens_no_test_day(place: Place, night: NightResult) -> None:
    again = place.night()
    assert again.repeated
    assert not night.repeated
    assert again.content_hash == night.content_hash
    assert again.test_openings == night.test_openings == 1
    assert "evidence" not in again.timings_s
    assert again.reasons == night.reasons
    assert len(PolicyStore(place.folder / "store", "small").versions()) == 1


def test_current_moves_only_if_the_file_allows_it(place: Place, night: NightResult) -> None:
    store = PolicyStore(place.folder / "store", "small")
    assert night.file is not None
    allowed = kept_back(night.file) == ()
    assert (night.move is not None) == allowed
    assert (store.current() is not None) == allowed


def test_one_day_gives_estimators_and_no_policy(place: Place, tmp_path: Path) -> None:
    shutil.copytree(place.folder / "logs", tmp_path / "logs")
    found = Place(tmp_path, []).night(emulated.FIRST_DAY)
    assert found.inputs.split.mode is SplitMode.TRAIN_ONLY
    assert (found.verdict, found.promotion_cap, found.file) == ("not trustworthy", "none", None)
    assert found.fitted is not None
    assert not (tmp_path / "store").exists()


def test_two_days_are_cut_inside_and_too_short_to_believe(place: Place, tmp_path: Path) -> None:
    shutil.copytree(place.folder / "logs", tmp_path / "logs")
    found = Place(tmp_path, []).night(date(2026, 3, 3))
    assert found.inputs.split.mode is SplitMode.INSIDE_DAYS
    assert (found.verdict, found.promotion_cap, found.file) == ("not trustworthy", "none", None)
    assert any("20 are needed" in reason for reason in found.reasons)
    assert found.evidence["details"]["test_days"] == ["2026-03-02.test", "2026-03-03.test"]
    # The look at the test windows is on record all the same.
    assert found.test_openings == 1
    assert PolicyStore(tmp_path / "store", "small").versions() == []


def test_a_key_that_cannot_be_read_ends_the_night_before_it_works(place: Place, tmp_path: Path) -> None:
    shutil.copytree(place.folder / "logs", tmp_path / "logs")
    (tmp_path / "key.pem").write_text("no key")
    other = Place(tmp_path, [])
    with pytest.raises(PolicyError, match="key"):
        other.night()
    assert [stage for stage, *_ in other.told if stage == "fit"] == []


def test_a_day_without_logs_is_an_error(place: Place) -> None:
    with pytest.raises(SourceError, match="a log must exist"):
        place.night(date(2026, 3, 9))


def test_request_logs_that_tell_nothing_of_d_are_not_enough_for_a_policy(place: Place, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for path in (place.folder / "logs").glob("requests-*"):
        rows = [json.loads(line) | {"decode_admitted_at_us": None} for line in path.read_text().splitlines()]
        (tmp_path / "logs" / path.name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = emulated.SETTINGS.replace('names = ["d0/dp0", "d1/dp0"]', 'names = ["d0/dp0", "d1/dp0"]\nblocks = 2500')
    at = text.index('[[pools.small.sources]]\npaths = ["logs/loads')
    settings = emulated.write_settings(tmp_path, text=text[:at] + text[text.index("[pools.small.gates]") :])
    found = run_night(settings, settings.pool("small"), emulated.LAST_DAY)
    assert found.inputs.capability.level == "pairs"
    assert found.verdict == "not trustworthy"
    assert "decode_steps" in found.reasons[0]
    with pytest.raises(ModelError, match="must have traffic"):
        run_night(settings, replace(settings.pool("small"), sources=()), date(2026, 3, 20))
