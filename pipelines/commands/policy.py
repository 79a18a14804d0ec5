"""`routecal policy`: what a policy file says, whether it holds, and its way into the store."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from features.errors import PolicyError
from pipelines.commands.options import AsJson, SettingsPath, settings_if_any
from pipelines.console import command, emit, say, show_error

if TYPE_CHECKING:
    from policies.policy_models import PolicyFile

SAID_NO = 1
SHOWN_FAILURES = 10

PolicyPath: TypeAlias = Annotated[Path, typer.Argument(metavar="FILE", help="A policy file.")]
KeyPaths: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--key", metavar="PEM", help="Trusted public key; repeat for several. Without it the settings' own."),
]

ConfigPath: TypeAlias = Annotated[Path, typer.Argument(metavar="CONFIG", help="A router's config.")]
FormatName: TypeAlias = Annotated[
    str, typer.Option("--format", help="dynamo, dynamo-env, llm-d, llm-d-gie, smg, sglang-router or vllm-router.")
]
OutPath: TypeAlias = Annotated[Path | None, typer.Option("--out", metavar="PATH", help="Write the config there.")]

policy_app = typer.Typer(name="policy", no_args_is_help=True, rich_markup_mode=None)


@policy_app.callback()
def policy() -> None:
    """Read, check and publish policy files."""


@policy_app.command()
@command
def validate(path: PolicyPath, *, as_json: AsJson = False) -> None:
    """Whether a file follows the schema and agrees with itself. Ends with 1 if it does not."""
    data = _read(path)
    try:
        file = _parsed(data, path)
    except PolicyError as error:
        if isinstance(error.__cause__, UnicodeDecodeError | json.JSONDecodeError | RecursionError):
            raise  # no policy file at all, rather than one that breaks a rule
        show_error(error, as_json=False)
        if as_json:
            emit({"valid": False, "content_hash": None, "rule": error.rule, "place": error.place})
        raise typer.Exit(SAID_NO) from None
    from policies.policy_file import content_hash

    found = content_hash(file)
    valid = file.content_hash in {None, found}
    say(f"{file.policy_version}: {'valid' if valid else f'states {file.content_hash}, but its content is {found}'}")
    if as_json:
        emit({"valid": valid, "content_hash": found, "policy_version": file.policy_version})
    if not valid:
        raise typer.Exit(SAID_NO)


@policy_app.command()
@command
def verify(
    path: PolicyPath, *, keys: KeyPaths = None, settings_path: SettingsPath = None, as_json: AsJson = False
) -> None:
    """Check hashes, signatures and conformance vectors. Ends with 1 if one of them fails."""
    from policies.conformance import check
    from policies.policy_file import content_hash
    from policies.signing import load_public
    from policies.signing import verify as verify_signatures

    file = _parsed(_read(path), path)
    trusted = tuple(load_public(_read(key), place=str(key)) for key in _trusted(keys, settings_path))
    signatures = verify_signatures(file, trusted)
    failures = check(file)
    # Without a trusted key nobody can say who signed; intact content is all that can be claimed, and it is said.
    accepted = {"trusted"} if trusted else {"trusted", "untrusted", "unsigned"}
    # A file without vectors shows of no router that it decides alike: nothing was checked, so nothing conforms.
    valid = signatures.state in accepted and not failures and bool(file.vectors)
    say(f"{file.policy_version} {content_hash(file)}")
    say(f"signatures: {signatures.reason}")
    if not trusted:
        say("no trusted key was given: this says that the file is whole, not who made it (--key PEM)")
    say(f"conformance: {len(file.vectors)} vectors, {len({f.vector for f in failures})} failed")
    if not file.vectors:
        say("  a file must carry vectors: without them no router can show that it decides as tested")
    for failure in failures[:SHOWN_FAILURES]:
        say(f"  {failure.vector}: `{failure.field}` must be {failure.expected!r}, got {failure.found!r}")
    if as_json:
        emit({
            "valid": valid, "content_hash": content_hash(file), "signed_by": list(signatures.signed_by),
            "vectors": len(file.vectors), "failed": len({f.vector for f in failures}), "signatures": signatures.state,
            "reason": signatures.reason, "policy_version": file.policy_version,
        })  # fmt: skip
    if not valid:
        raise typer.Exit(SAID_NO)


@policy_app.command()
@command
def show(path: PolicyPath, *, as_json: AsJson = False) -> None:
    """A file for people; with --json all of it."""
    from pipelines.commands.policy_text import policy_lines
    from policies.policy_file import to_json

    file = _parsed(_read(path), path)
    if as_json:
        emit(to_json(file))
        return
    sys.stdout.write("".join(f"{line}\n" for line in policy_lines(file)))


@policy_app.command()
@command
def publish(path: PolicyPath, *, settings_path: SettingsPath = None, as_json: AsJson = False) -> None:
    """Sign and keep a file, and make it current if its gates allow that. Ends with 1 if they do not."""
    from pipelines.night.policy import publish as run
    from policies.signing import verify as verify_signatures
    from policies.store import PolicyStore

    settings = settings_if_any(settings_path)
    if settings is None:
        raise PolicyError("publishing needs a store", hint="--settings FILE")
    file = _parsed(_read(path), path)
    checked = verify_signatures(file, ())
    if checked.state == "tampered":
        raise PolicyError("a file must be as it was made", value=checked.reason, place=str(path))
    settings.pool(file.pool)
    issued_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    done = run(PolicyStore(settings.storage.store, file.pool), file, settings.keys, issued_at=issued_at)
    say(f"kept as {done.path}")
    if settings.keys.private_key is None:
        say("not signed: the settings name no private key")
    for reason in done.kept_back:
        say(f"not made current: {reason}")
    if done.move is not None:
        say(f"current since {done.move.at}")
    if as_json:
        emit({
            "policy": str(done.path), "content_hash": done.file.content_hash, "current": done.move is not None,
            "kept_back": list(done.kept_back), "signed": done.file.envelope is not None,
        })  # fmt: skip
    if done.move is None:
        raise typer.Exit(SAID_NO)


@policy_app.command()
@command
def export(path: PolicyPath, *, form: FormatName, out: OutPath = None, as_json: AsJson = False) -> None:
    """The policy as the config of the router whose algorithm it is. Without --out it goes to stdout."""
    from policies.policy_file import policy_of
    from policies.router_configs.registry import find, write_config

    file = _parsed(_read(path), path)
    text = write_config(form, policy_of(file))
    say(f"{file.policy_version}: config of {file.family} for {find(form).source}; the router takes it when it restarts")
    if out is not None:
        out.write_text(text, "utf-8")
    if as_json:
        emit({"format": form, "family": file.family, "policy_version": file.policy_version, "config": text})
    elif out is None:
        sys.stdout.write(text)


@policy_app.command(name="import")
@command
def import_(path: ConfigPath, *, form: FormatName, as_json: AsJson = False) -> None:
    """What a router's present config says: a family and its parameters, as settings of an incumbent take them."""
    from policies.families.params import to_json
    from policies.families.registry import BY_NAME
    from policies.router_configs.registry import read_config

    found = read_config(form, _text(path))
    values, moment = to_json(found.params), BY_NAME[found.family].moment
    for note in found.notes:
        say(f"not modelled: {note}")
    if as_json:
        emit({
            "family": found.family, "decode_moment": moment, "family_params": values, "not_modelled": list(found.notes),
        })  # fmt: skip
        return
    sys.stdout.write(f'family = "{found.family}"\ndecode_moment = "{moment}"\n')
    sys.stdout.write("".join(f'params."{name}" = {json.dumps(value)}\n' for name, value in values.items()))


def _text(path: Path) -> str:
    try:
        return _read(path).decode("utf-8")
    except UnicodeDecodeError:
        raise PolicyError("a config must be UTF-8 text", place=str(path)) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PolicyError("a file must be readable", value=error.strerror, place=str(path)) from None


def _parsed(data: bytes, path: Path) -> PolicyFile:
    from policies.policy_file import parse

    return parse(data, place=str(path))


def _trusted(keys: list[Path] | None, settings_path: Path | None) -> tuple[Path, ...]:
    """Keys of the command line, else of the settings."""
    if keys:
        return tuple(keys)
    settings = settings_if_any(settings_path)
    return settings.keys.trusted_keys if settings else ()
