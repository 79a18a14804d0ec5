"""Names of tenants and sessions: hashed in everything but the lake's private folder."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from features.errors import LakeError, SettingsError
from features.ingest import ingest
from features.lake import Lake
from features.naming import ClassRule
from features.privacy import Names, key_of_lake, meanings
from features.views import query
from pipelines import cli
from tests.features.logs import lines, request

DAY = date(2026, 1, 5)
TENANT, SESSION = "acme-holding", "jane.doe@acme.example"
KEY, OTHER_KEY = b"one key of sixteen bytes or more", b"and another one, as long as that"


def load(root: Path, *rows: dict[str, Any], key: bytes | None = KEY, pool: str = "a", **options: Any) -> pl.DataFrame:
    log = root.parent / f"{root.name}.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(lines(*rows))
    ingest(log, format="auto", pool=pool, lake=Lake(root), name_key=key, **options)
    return Lake(root).read("requests", DAY, pool)


def named(i: int, tenant: str | None = TENANT, session: str | None = SESSION, **changes: Any) -> dict[str, Any]:
    return request(i, tenant=tenant, session_id=session, **changes)


def routecal(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_names_stand_in_no_file_of_the_lake_but_the_private_ones(tmp_path: Path) -> None:
    good = [named(i, session=f"{SESSION}/{i}") for i in range(30)]
    broken = named(90, prompt_tokens=-1)
    torn = b'{"tenant": "' + TENANT.encode() + b'", "session_id"\n'
    log = tmp_path / "x.jsonl"
    log.write_bytes(lines(*good, broken) + torn)
    lake = Lake(tmp_path / "lake")
    report = ingest(log, format="auto", pool="a", lake=lake, name_key=KEY)
    assert (report.accepted, report.quarantined) == (30, 2)
    assert TENANT not in json.dumps(report.to_dict())
    private = lake.root / ".private"
    public = [path for path in lake.root.rglob("*") if path.is_file() and private not in path.parents]
    assert sum(path.suffix == ".parquet" for path in public) == 2  # requests and quarantine
    for path in public:
        content = path.read_bytes()
        text = pl.read_parquet(path).write_json() if path.suffix == ".parquet" else ""
        for name in (TENANT, SESSION):
            assert name.encode() not in content, path
            assert name not in text, path


def test_equal_names_have_equal_hashes_under_one_key_only(tmp_path: Path) -> None:
    rows = [named(0), named(1), named(2, tenant="other"), named(3, tenant=None, session=None)]
    one = load(tmp_path / "one", *rows)
    first, second, third, unknown = one["tenant"].to_list()
    assert first == second != third
    assert unknown is None
    assert one["session_id"].null_count() == 1
    assert load(tmp_path / "two", *rows).select("tenant", "session_id").equals(one.select("tenant", "session_id"))
    for changed in (
        load(tmp_path / "three", *rows, key=OTHER_KEY),
        load(tmp_path / "four", *rows, pool="b"),
        load(tmp_path / "five", *rows, key=None),
        load(tmp_path / "six", *rows, key=None),
    ):
        assert not {*one["tenant"].drop_nulls()} & {*changed["tenant"].drop_nulls()}
    assert key_of_lake(tmp_path / "five") != key_of_lake(tmp_path / "six")


def test_a_name_has_another_hash_as_tenant_than_as_session(tmp_path: Path) -> None:
    (row,) = load(tmp_path / "lake", named(0, tenant="same", session="same")).rows(named=True)
    assert row["tenant"] != row["session_id"]


def test_the_map_says_what_a_hash_means(tmp_path: Path) -> None:
    rows = load(tmp_path / "lake", named(0), named(1, tenant="other"), named(2))
    found = pl.concat(meanings(Lake(tmp_path / "lake")))
    wanted = {("a", "tenant", TENANT), ("a", "tenant", "other"), ("a", "session_id", SESSION)}
    assert {(pool, column, name) for pool, column, _, name in found.rows()} == wanted
    by_hash = dict(found.select("hash", "name").rows())
    assert [by_hash[value] for value in rows["tenant"]] == [TENANT, "other", TENANT]
    (one,) = meanings(Lake(tmp_path / "lake"), rows["tenant"][1])
    assert one["name"].to_list() == ["other"]


def test_private_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    load(tmp_path / "lake", named(0), key=None)
    private = tmp_path / "lake" / ".private"
    modes = {path.relative_to(private).parts[0]: path.stat().st_mode & 0o777 for path in private.glob("*")}
    assert private.stat().st_mode & 0o777 == 0o700
    assert (modes["key"], modes["names"]) == (0o600, 0o700)
    (names,) = (private / "names").iterdir()
    assert names.stat().st_mode & 0o777 == 0o600


def test_a_short_key_is_refused_and_no_key_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="16 bytes or more at ROUTECAL_NAME_KEY; hint: openssl") as error:
        load(tmp_path / "lake", named(0), key=b"swordfish")
    assert "swordfish" not in str(error.value)
    log = tmp_path / "x.jsonl"
    log.write_bytes(lines(named(0)))
    command: list[str | Path] = ["ingest", log, "--pool", "a", "--lake", tmp_path / "cli", "--json"]
    monkeypatch.setenv("ROUTECAL_NAME_KEY", "swordfish")
    refused = routecal(*command)
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["error"]["place"] == "ROUTECAL_NAME_KEY"
    assert not (tmp_path / "cli").exists()
    monkeypatch.setenv("ROUTECAL_NAME_KEY", KEY.decode())
    taken = routecal(*command)
    assert taken.exit_code == 0
    for said in (refused, taken):
        assert "swordfish" not in said.output
        assert KEY.decode() not in said.output
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY in path.read_bytes()]
    by_key = load(tmp_path / "lake", named(0))
    assert Lake(tmp_path / "cli").read("requests", DAY, "a")["tenant"].equals(by_key["tenant"])


def test_sql_cannot_read_the_private_folder(tmp_path: Path) -> None:
    load(tmp_path / "lake", named(0), key=None)
    private = tmp_path / "lake" / ".private"
    for place in (private / "names" / "*.parquet", *(private / "names").iterdir(), private / "key"):
        for read in ("read_parquet", "read_text", "read_blob", "read_csv"):
            with pytest.raises(LakeError, match="a query must run"):
                query(tmp_path / "lake", f"SELECT * FROM {read}('{place}')")
    with pytest.raises(LakeError):
        query(tmp_path / "lake", f"SELECT * FROM glob('{private}/*')")


def test_class_rules_are_judged_by_the_raw_name(tmp_path: Path) -> None:
    rows = load(tmp_path / "lake", named(0), named(1, tenant="x"), class_rules=[ClassRule("vip", tenant=TENANT)])
    assert rows["slo_class"].to_list() == ["vip", "default"]


def test_memory_of_the_map_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.privacy._CACHED", 100)
    lake = Lake(tmp_path / "lake")
    names = Names(KEY, "a", lake)
    hashes = []
    for at in range(0, 1_000, 50):
        frame = pl.DataFrame({"tenant": [f"t{at + i}" for i in range(50)]})
        hashes += names.hashed(frame, "0" * 64)["tenant"].to_list()
        assert len(names._cache) <= 150
        assert sum(rows.height for rows in names._new) < 100
    names.close("0" * 64)
    held = pl.concat(meanings(lake))
    assert dict(held.select("name", "hash").rows()) == {f"t{i}": value for i, value in enumerate(hashes)}
    assert len(set(hashes)) == 1_000


def test_the_same_log_replaces_its_own_names(tmp_path: Path) -> None:
    for _ in range(3):
        load(tmp_path / "lake", named(0), named(1, tenant="other"))
    assert pl.concat(meanings(Lake(tmp_path / "lake"))).height == 3


def test_two_ingests_at_once_draw_one_key(tmp_path: Path) -> None:
    found: list[bytes] = []
    threads = [Thread(target=lambda: found.append(key_of_lake(tmp_path / "lake"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_damaged_names_are_an_error(tmp_path: Path) -> None:
    load(tmp_path / "lake", named(0))
    (path,) = (tmp_path / "lake" / ".private" / "names").iterdir()
    path.write_bytes(b"nonsense")
    with pytest.raises(LakeError, match="names must be readable"):
        list(meanings(Lake(tmp_path / "lake")))


def test_routecal_names_finds_a_tenant_again(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    rows = load(root, named(0), named(1, tenant="other"))
    hashed = rows["tenant"][0]
    found = routecal("names", hashed, "--lake", root, "--json")
    assert found.exit_code == 0
    assert json.loads(found.stdout) == {"names": [{"pool": "a", "column": "tenant", "hash": hashed, "name": TENANT}]}
    assert routecal("names", hashed, "--lake", root).stdout == f"a  tenant  {hashed}  {TENANT}\n"
    everything = json.loads(routecal("names", "--lake", root, "--json").stdout)["names"]
    assert [row["name"] for row in everything if row["column"] == "tenant"] == sorted(
        [TENANT, "other"], key=lambda name: dict(zip([TENANT, "other"], rows["tenant"], strict=True))[name]
    )
    nothing = routecal("names", "0" * 20, "--lake", root, "--json")
    assert (nothing.exit_code, json.loads(nothing.stdout)) == (1, {"names": []})
    assert "of that hash" in nothing.stderr
    nowhere = routecal("names", "--lake", tmp_path / "nowhere", "--json")
    assert (nowhere.exit_code, json.loads(nowhere.stdout)["error"]["rule"]) == (2, "a lake must exist")


def test_a_damaged_key_of_the_lake_is_named_by_its_place(tmp_path: Path) -> None:
    key = tmp_path / "lake" / ".private" / "key"
    key.parent.mkdir(parents=True)
    key.write_bytes(b"short")
    with pytest.raises(SettingsError, match=r"16 bytes or more.*\.private/key"):
        load(tmp_path / "lake", named(0), key=None)
    key.unlink()
    key.mkdir()
    with pytest.raises(LakeError, match=r"must be readable.*\.private/key"):
        load(tmp_path / "lake", named(0), key=None)
