"""The night's policy file: what it is made from, its proof, its signature, and whether `current` may move to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from features.errors import PolicyError
from models.portable.estimators import Estimators
from models.splits import Window
from pipelines.night.fit import Fitted
from pipelines.night.inputs import Inputs
from pipelines.night.revision import code_revision
from pipelines.settings import Keys, Pool
from policies.canonical import sha256
from policies.conformance import check, vectors
from policies.conformance_views import Geometry
from policies.evidence.evidence import Evidence, to_json
from policies.policy import Policy
from policies.policy_file import Origin, build, content_hash, parse, policy_of, with_proof
from policies.policy_models import PolicyFile
from policies.signing import Verification, load_private, load_public, sign, verify
from policies.store import Move, PolicyStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

NS_PER_S = 1_000_000_000
NOT_TRUSTWORTHY = "not trustworthy"
_FORM = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class InForce:
    """What routes on a day. `reference`: {family, policy_version, content_hash}, the last two None = as declared."""

    policy: Policy
    reference: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Published:
    """A candidate in the store. `move`: of `current`, None = it stayed. `kept_back`: why it stayed."""

    file: PolicyFile
    path: Path
    move: Move | None
    kept_back: tuple[str, ...]

    @property
    def signed(self) -> bool:
        """Whether the stored file has a signature."""
        return self.file.envelope is not None and bool(self.file.envelope.signatures)


def in_force(store: PolicyStore, pool: Pool, day: date) -> InForce:
    """The policy at the end of a day: the store's, else the declared incumbent.

    A stored policy of other classes than the settings' is of another pool by now; then the declared one counts.
    """
    move = store.in_force(f"{day.isoformat()}T23:59:59Z")
    return (_moved_to(store, pool, move) if move is not None else None) or _declared(pool)


def in_force_within(
    store: PolicyStore, pool: Pool, window: Window, named: Collection[str]
) -> tuple[InForce | None, str]:
    """The one policy that routed the requests of a window; None where there is no such policy, and why.

    `named`: the policy versions that the log gives for those requests, none where it gives none.
    """
    first, last = _at(window.start_us), _at(window.end_us - 1)
    move = store.in_force(first)
    began = None if move is None else move.content_hash
    if any(first < m.at <= last and m.content_hash != began for m in store.history()):
        return None, f"the policy in force changed within the validation window of {window.day}"
    held = _declared(pool) if move is None else _moved_to(store, pool, move)
    if held is None:
        return None, f"the policy in force on {window.day} has other classes than the settings"
    version = held.reference["policy_version"]
    if len(named) > 1 or (version is not None and set(named) - {version}):
        said = ", ".join(sorted(named))
        return None, f"the log of {window.day} names policy {said}, in force was {version or 'the declared incumbent'}"
    return held, ""


def _declared(pool: Pool) -> InForce:
    return InForce(pool.incumbent, {"family": pool.incumbent.family, "policy_version": None, "content_hash": None})


def _moved_to(store: PolicyStore, pool: Pool, move: Move) -> InForce | None:
    """The policy of a move, None if it is of other classes than the settings'."""
    file = store.find(move.content_hash)
    policy = policy_of(file)
    if [c.name for c in policy.classes] != [c.name for c in pool.classes]:
        return None
    reference = {"family": file.family, "policy_version": file.policy_version, "content_hash": content_hash(file)}
    return InForce(policy, reference)


def _at(us: int) -> str:
    """A time as the store writes it, whole seconds."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime(_FORM)


def draft(pool: Pool, inputs: Inputs, fitted: Fitted, policy: Policy, incumbent: InForce) -> PolicyFile:
    """The file before its proof: its `decision_hash` is final. A router falls back on what is in force."""
    rules = pool.discipline
    return build(
        policy,
        fitted.estimators,
        Origin(
            pool=pool.name,
            day=inputs.day,
            model=pool.model,
            engine=(
                f"prefill_max_seqs={rules.prefill_max_seqs} decode_max_seqs={rules.decode_max_seqs} "
                f"reservations_per_boundary={rules.reservations_per_boundary} release={rules.release}"
            ),
            block_tokens=pool.kv.block_tokens,
            kv_bytes_per_token=pool.kv.bytes_per_token,
            chunk_tokens=rules.chunk_tokens,
            code_revision=code_revision(),
            capability_level=inputs.capability.level,
            digests={**inputs.digests, **fitted.digests, f"settings/{pool.name}": settings_digest(pool)},
            fallback=incumbent.reference,
            incumbent=incumbent.reference,
            lease_s=pool.router.lease_ns / NS_PER_S,
        ),
    )


def settings_digest(pool: Pool) -> str:
    """Digest of what the settings say of a pool, less where its logs lie and how many processes search: neither can
    change a result.
    """
    return sha256(repr(replace(pool, sources=(), search=replace(pool.search, workers=1))).encode())


def evidence_json(evidence: Evidence, origin: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The evidence as a policy file carries it. `origin`: of the estimators, as `Fitted` has it."""
    return {
        "verdict": evidence.verdict,
        "promotion_cap": evidence.promotion_cap,
        "reason": " ".join(evidence.reasons),
        "details": {**to_json(evidence), "estimators": dict(origin or {})},
    }


def proven(
    pool: Pool, file: PolicyFile, policy: Policy, estimators: Estimators, evidence: Mapping[str, Any]
) -> PolicyFile:
    """The file with its evidence and with conformance vectors of every family that the router can run."""
    geometry = Geometry(pool.kv.block_tokens, pool.kv.bytes_per_token, pool.discipline.chunk_tokens)
    return with_proof(
        file, evidence=evidence, vectors=vectors(policy, estimators, geometry, families=tuple(pool.families))
    )


def publish(
    store: PolicyStore, file: PolicyFile, keys: Keys, *, issued_at: str, mlflow_run: str | None = None
) -> Published:
    """Sign a proven file if there is a key, keep it, and make it current if its own gates allow that.

    Errors as `keep`.
    """
    path = keep(store, file, keys, issued_at=issued_at, mlflow_run=mlflow_run)
    return move(store, path, keys, issued_at=issued_at)


def keep(store: PolicyStore, file: PolicyFile, keys: Keys, *, issued_at: str, mlflow_run: str | None = None) -> Path:
    """Sign a proven file if there is a key, and keep it as a candidate. Content that is kept already stays as it is.

    Raises PolicyError for a file that is not trustworthy, or a key that cannot be read.
    """
    if file.evidence is None or file.evidence.verdict == NOT_TRUSTWORTHY:
        raise PolicyError("a file that is not trustworthy must not be kept", value=file.policy_version)
    if keys.private_key is not None:
        key = load_private(_read(keys.private_key), place=str(keys.private_key))
        openings = store.test_openings(file.day)
        file = sign(file, key, issued_at=issued_at, mlflow_run=mlflow_run, test_openings=openings)
    return store.add(file)


def move(store: PolicyStore, path: Path, keys: Keys, *, issued_at: str) -> Published:
    """Make a kept file current if what stands in it allows that; it is read and checked anew."""
    kept = parse(_read(path), place=str(path))
    reasons = [*kept_back(kept), *refused(kept, keys)]
    current = store.current()
    if current is not None and content_hash(current) == content_hash(kept):
        reasons.append("It is current already.")
    frozen = store.frozen()
    if frozen is not None:
        reasons.append(f"The store is frozen: {frozen['reason']}.")
    if reasons:
        return Published(kept, path, None, tuple(reasons))
    # A policy of day D is in force from D's end on, also where the night runs on a clock behind its logs.
    starts = f"{(date.fromisoformat(kept.day) + timedelta(days=1)).isoformat()}T00:00:00Z"
    last = max((m.at for m in store.history()), default="")
    moved = store.promote(kept, at=max(issued_at, starts, last), reason="its gates hold and the verdict is better")
    return Published(kept, path, moved, ())


def signatures(file: PolicyFile, keys: Keys) -> Verification:
    """The file's signatures against the trusted keys of the settings and the key that they sign with."""
    return verify(file, trusted_keys(keys))


def trusted_keys(keys: Keys) -> tuple[Ed25519PublicKey, ...]:
    """Every key of the settings whose signature counts. A night reads them first, not only when it has a file to sign.

    Raises PolicyError for a key that cannot be read.
    """
    trusted = [load_public(_read(path), place=str(path)) for path in keys.trusted_keys]
    if keys.private_key is not None:
        trusted.append(load_private(_read(keys.private_key), place=str(keys.private_key)).public_key())
    return tuple(trusted)


def refused(file: PolicyFile, keys: Keys) -> tuple[str, ...]:
    """Why a file must not be believed: signatures or conformance vectors do not hold; none = it may.

    Where the settings name a key, a trusted one must have signed.
    """
    found = []
    checked = signatures(file, keys)
    accepted = {"trusted"} if keys.private_key or keys.trusted_keys else {"trusted", "untrusted", "unsigned"}
    if checked.state not in accepted:
        found.append(f"Its signature does not hold: {checked.reason}.")
    failed = {failure.vector for failure in check(file)}
    if failed:
        found.append(f"{len(failed)} of {len(file.vectors)} conformance vectors fail, such as {min(failed)}.")
    return tuple(found)


def kept_back(file: PolicyFile) -> tuple[str, ...]:
    """Why `current` must not move to a file by itself; read from the file alone, none = it may."""
    if file.evidence is None:
        return ("The file has no evidence.",)
    found = []
    if content_hash(file) != file.content_hash:
        found.append("The file's hash is not that of its content.")
    if file.evidence.verdict != "better":
        found.append(f"The verdict is {file.evidence.verdict}.")
    if file.evidence.promotion_cap != "current":
        found.append(f"Promotion ends at {file.evidence.promotion_cap}.")
    gates = file.evidence.details.get("gates")
    if not isinstance(gates, list) or not gates:
        return (*found, "The evidence has no gates.")
    for gate in gates:
        status = gate.get("status") if isinstance(gate, dict) else None
        if status not in ("pass", "waived"):
            found.append(f"Gate {gate.get('name') if isinstance(gate, dict) else gate} is {status}.")
    return tuple(found)


def now() -> str:
    """The time of issue, UTC, YYYY-MM-DDTHH:MM:SSZ."""
    return datetime.now(UTC).strftime(_FORM)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PolicyError("a file must be readable", value=error.strerror, place=str(path)) from error
