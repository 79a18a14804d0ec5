"""Names of tenants and sessions as keyed hashes: what is stored and published says which are equal, not who they are.

What a hash means is kept in `<lake>/.private/names/`, readable by the owner alone, for the operator who must find a
tenant again. No view, report or policy file reads it.
"""

from __future__ import annotations

import fcntl
import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from features.errors import LakeError, SettingsError
from features.files import whole_file
from features.lake import Lake

KEY_VARIABLE = "ROUTECAL_NAME_KEY"
"""Environment variable with the key of the hashes; the same key gives the same hashes on every machine."""
KEY_BYTES_MIN = 16
NAMED = ("tenant", "session_id")
"""Columns that are hashed."""
_DIGEST_BYTES = 10
_CACHED = 100_000
_MAP = {"pool": pl.String, "column": pl.String, "hash": pl.String, "name": pl.String}


def check_key(key: bytes, place: str = KEY_VARIABLE) -> bytes:
    """`key`, if it is long enough not to be guessed.

    Raises SettingsError otherwise.
    """
    if len(key) < KEY_BYTES_MIN:
        raise SettingsError(
            f"a key of names must have {KEY_BYTES_MIN} bytes or more", place=place, hint="openssl rand -hex 16"
        )
    return key


class Names:
    """Hashes names under one key and keeps what the hashes mean, for the pool of one ingest."""

    def __init__(self, key: bytes, pool: str, lake: Lake) -> None:
        self._key, self._pool, self._lake = check_key(key), pool, lake
        self._cache: dict[tuple[str, str], str] = {}
        self._new: list[pl.DataFrame] = []
        self._files = 0

    def hashed(self, frame: pl.DataFrame, digest: str) -> pl.DataFrame:
        """`frame` with the columns NAMED hashed; unknown stays unknown. `digest`: of the log that it is of."""
        for column in NAMED:
            if column not in frame.columns or frame[column].null_count() == frame.height:
                continue
            known = frame[column].drop_nulls().unique(maintain_order=True)
            hashes = pl.Series("hash", [self.hash_of(column, name) for name in known], dtype=pl.String)
            of = {"pool": [self._pool] * len(known), "column": [column] * len(known)}
            self._new.append(pl.DataFrame({**of, "hash": hashes, "name": known}, schema=_MAP))
            frame = frame.with_columns(pl.col(column).replace_strict(known, hashes, return_dtype=pl.String))
        if sum(rows.height for rows in self._new) >= _CACHED:
            self._write(digest)
        return frame

    def close(self, digest: str) -> None:
        """Writes what is left of a log's names."""
        if self._new:
            self._write(digest)
        self._files = 0

    def _write(self, digest: str) -> None:
        """The same log replaces its own files."""
        folder = private_folder(self._lake.root) / "names"
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{self._pool}-{digest[:16]}-{self._files}.parquet"
        with whole_file(path) as out:
            Path(out.name).chmod(0o600)
            pl.concat(self._new).unique(maintain_order=True).write_parquet(out)
        self._files += 1
        self._new.clear()

    def hash_of(self, column: str, name: str) -> str:
        """What stands for a name of a column."""
        known = self._cache.get((column, name))
        if known is None:
            text = f"{self._pool}\x00{column}\x00{name}".encode()
            known = hashlib.blake2b(text, key=self._key[:64], digest_size=_DIGEST_BYTES).hexdigest()
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            self._cache[column, name] = known
        return known


def private_folder(root: Path) -> Path:
    """The lake's folder that only its owner may read.

    Raises LakeError if it cannot be made.
    """
    folder = root / ".private"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise LakeError("a lake must be writable", value=error.strerror, place=str(folder)) from error
    return folder


def meanings(lake: Lake, hashed: str | None = None) -> Iterator[pl.DataFrame]:
    """What hashes of this machine's lake mean, or one of them: (pool, column, hash, name), a frame a file.

    Several logs may name the same. Raises LakeError if a file is damaged or closed to us.
    """
    for path in sorted((lake.root / ".private" / "names").glob("*.parquet")):
        try:
            names = pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            hint = "its log can be ingested again"
            raise LakeError("names must be readable", value=type(error).__name__, place=str(path), hint=hint) from error
        yield names if hashed is None else names.filter(pl.col("hash") == hashed)


def key_of_lake(root: Path) -> bytes:
    """The lake's own key, drawn when it is first needed: hashes of two lakes then differ."""
    path = root / ".private" / "key"
    if not path.exists():
        with _one_at_a_time(root):
            if not path.exists():  # another ingest may have drawn one
                keep_key(root, secrets.token_hex(32).encode())
    try:
        return check_key(path.read_bytes(), str(path))
    except OSError as error:
        raise LakeError("the lake's key of names must be readable", value=error.strerror, place=str(path)) from error


def keep_key(root: Path, key: bytes) -> None:
    """Makes `key` the lake's own."""
    path = private_folder(root) / "key"
    with whole_file(path) as out:
        Path(out.name).chmod(0o600)
        out.write(check_key(key))


@contextmanager
def _one_at_a_time(root: Path) -> Iterator[None]:
    with (private_folder(root) / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
