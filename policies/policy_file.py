"""The policy file: built from a policy and its estimators, written, read strictly, hashed."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from features.errors import ModelError, PolicyError
from models.portable.estimators import Estimators
from models.portable_json import to_dict
from policies.canonical import canonical_bytes, hash_without
from policies.families.registry import check_family, params_json, params_row
from policies.kernel_types import TERMS
from policies.policy import ClassPolicy, Policy
from policies.policy_models import EVIDENCE_KEYS, SCHEMA_VERSION, UNHASHED, JsonObject, PolicyFile

_WHOLE = re.compile(r"-?\d{1,308}")
VALID_DAYS = 7
LEASE_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """What a file says about itself besides the decision.

    `digests`: sha256 of every input by name. `fallback`, `incumbent`: {family, policy_version, content_hash} or None.
    The file is valid from the end of its partition day for `valid_days`.
    """

    pool: str
    day: date
    model: str
    engine: str
    block_tokens: int
    kv_bytes_per_token: int
    chunk_tokens: int
    code_revision: str
    capability_level: str
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fallback: Mapping[str, str | None] | None = None
    incumbent: Mapping[str, str | None] | None = None
    lease_s: float = LEASE_S
    valid_days: int = VALID_DAYS


def build(policy: Policy, estimators: Estimators, origin: Origin) -> PolicyFile:
    """A file without evidence and vectors; hashes filled in."""
    starts = datetime(origin.day.year, origin.day.month, origin.day.day) + timedelta(days=1)  # noqa: DTZ001  # UTC day
    body: JsonObject = {
        "schema_version": SCHEMA_VERSION,
        "policy_version": f"{origin.pool}/{origin.day.isoformat()}",
        "pool": origin.pool,
        "compatibility": {
            "model": origin.model,
            "engine": origin.engine,
            "block_tokens": origin.block_tokens,
            "kv_bytes_per_token": origin.kv_bytes_per_token,
            "chunk_tokens": origin.chunk_tokens,
        },
        "family": policy.family,
        **({"family_params": params_json(policy)} if policy.params else {}),
        "classes": [_class_to_json(c) for c in policy.classes],
        "router": {
            "high_water": policy.high_water,
            "horizon_s": policy.horizon_s,
            "wait_cap_s": policy.wait_cap_s,
            "release_floor_blocks_per_s": policy.release_floor,
            "unknown": policy.unknown,
            "when_full": policy.when_full,
            "same_rack": policy.same_rack,
            "temperature_p_s": policy.temperature_p_s,
            "temperature_d_s": policy.temperature_d_s,
            "lease_s": origin.lease_s if policy.lease_s is None else policy.lease_s,
            "decode_moment": policy.decode_moment,
            "draws_p": policy.draws_p,
            "draws_d": policy.draws_d,
            "hysteresis_s": policy.hysteresis_s,
            "dwell_s": policy.dwell_s,
            "half_life_s": policy.half_life_s,
        },
        "risk_tables": {"ttft": list(policy.risk_ttft), "tpot": list(policy.risk_tpot)},
        "estimators": to_dict(estimators),
        "validity": {
            "valid_from": f"{starts.isoformat()}Z",
            "valid_until": f"{(starts + timedelta(days=origin.valid_days)).isoformat()}Z",
        },
        "fallback": None if origin.fallback is None else dict(origin.fallback),
        "incumbent": None if origin.incumbent is None else dict(origin.incumbent),
        "inputs": {
            "digests": dict(origin.digests),
            "code_revision": origin.code_revision,
            "capability_level": origin.capability_level,
        },
        "evidence": None,
        "vectors": [],
    }
    return sealed(body)


def with_proof(file: PolicyFile, *, evidence: Mapping[str, Any] | None, vectors: list[JsonObject]) -> PolicyFile:
    """The file with its evidence and conformance vectors; `decision_hash` stays, `content_hash` is new."""
    return sealed(to_json(file) | {"evidence": evidence, "vectors": vectors, "envelope": None})


def sealed(value: Mapping[str, Any]) -> PolicyFile:
    """A validated file whose hashes are those of its content."""
    # Through the models once, so that the hashes are of the validated values.
    file = _validated(dict(value) | {"content_hash": None, "decision_hash": None})
    hashes = {"content_hash": content_hash(file), "decision_hash": decision_hash(file)}
    return file.model_copy(update=hashes)


def content_hash(file: PolicyFile) -> str:
    """sha256 of the canonical bytes of everything but the hashes and the envelope."""
    return hash_without(to_json(file), UNHASHED)


def decision_hash(file: PolicyFile) -> str:
    """The same without evidence and vectors: equal decisions of the same night, equal hash."""
    return hash_without(to_json(file), UNHASHED + EVIDENCE_KEYS)


def to_json(file: PolicyFile) -> JsonObject:
    """Plain JSON values: every key that the file states. What it leaves out stays out, and its hashes hold."""
    return file.model_dump(mode="json", exclude_unset=True)


def to_bytes(file: PolicyFile) -> bytes:
    """What is written to disk: canonical JSON. Keys outside the hashes are left out while they are empty."""
    value = to_json(file)
    return canonical_bytes({key: item for key, item in value.items() if key not in UNHASHED or item is not None})


def parse(data: bytes, *, place: str = "$") -> PolicyFile:
    """A strict reading. PolicyError names the first rule that is broken, the value and its JSON path.

    The stated hashes are not compared with the content here; `policies.signing.verify` does. What two readers may take
    for two different things (a key that stands twice, a number beyond float64) is refused, whoever signed it.
    """
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_each_key_once, parse_int=_whole, parse_constant=_whole
        )
    except PolicyError as error:
        raise PolicyError(error.rule, value=error.value, place=place) from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise PolicyError("a policy file must be JSON", value=str(error), place=place) from error
    if not isinstance(value, dict):
        raise PolicyError("a policy file must be one JSON object", value=type(value).__name__, place=place)
    return _validated(value, place)


def _each_key_once(pairs: list[tuple[str, Any]]) -> JsonObject:
    held = dict(pairs)
    if len(held) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise PolicyError("a key must stand once in its object", value=twice)
    return held


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise PolicyError("a number must be one of JSON and fit a float64", value=text[:40])
    return int(text)


def policy_of(file: PolicyFile) -> Policy:
    """What decides."""
    router, tables = file.router, file.risk_tables
    return Policy(
        family=file.family,
        classes=tuple(
            ClassPolicy(
                name=c.name,
                objective=c.objective,
                ttft_target_s=c.ttft_target_s,
                tpot_target_s=c.tpot_target_s,
                weights=tuple(getattr(c.weights, term) for term in TERMS),
                quantile=c.quantile,
                reserve_blocks=c.reserve_blocks,
            )
            for c in file.classes
        ),
        high_water=router.high_water,
        horizon_s=router.horizon_s,
        wait_cap_s=router.wait_cap_s,
        release_floor=router.release_floor_blocks_per_s,
        unknown=router.unknown,
        when_full=router.when_full,
        same_rack=router.same_rack,
        temperature_p_s=router.temperature_p_s,
        temperature_d_s=router.temperature_d_s,
        risk_ttft=tables.ttft,
        risk_tpot=tables.tpot,
        decode_moment=router.decode_moment,
        draws_p=router.draws_p,
        draws_d=router.draws_d,
        hysteresis_s=router.hysteresis_s,
        dwell_s=router.dwell_s,
        half_life_s=router.half_life_s,
        lease_s=router.lease_s,
        params=() if file.family_params is None else params_row(file.family, file.family_params),
    )


def estimators_of(file: PolicyFile) -> Estimators:
    """The estimators that the file ships."""
    return file.estimators


def json_schema() -> JsonObject:
    """JSON Schema 2020-12 of a policy file: `data/schemas/policy.json`."""
    made = PolicyFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "routecal policy file"} | {
        key: item for key, item in made.items() if key != "title"
    }


def _class_to_json(c: ClassPolicy) -> JsonObject:
    return {
        "name": c.name,
        "objective": c.objective,
        "ttft_target_s": c.ttft_target_s,
        "tpot_target_s": c.tpot_target_s,
        "weights": dict(zip(TERMS, c.weights, strict=True)),
        "quantile": c.quantile,
        "reserve_blocks": c.reserve_blocks,
    }


def _validated(value: JsonObject, place: str = "$") -> PolicyFile:
    if value.get("schema_version") == "1.0":
        raise PolicyError(
            f"a policy file must be of schema {SCHEMA_VERSION}",
            value="1.0",
            place=f"{place}.schema_version",
            hint="1.0 carries estimators of an older form, which no longer decide; publish a file of a newer night",
        )
    try:
        # Through JSON text: strict mode then takes arrays as tuples and still refuses every other conversion.
        file = PolicyFile.model_validate_json(json.dumps(value), strict=True)
        to_dict(file.estimators)
    except ValidationError as error:
        raise _first_error(error, place) from error
    except ModelError as error:
        at = error.place if error.place.startswith("estimators") else f"estimators {error.place}".strip()
        raise PolicyError(error.rule, value=error.value, place=f"{place}.{at}", hint=error.hint) from error
    check_family(file.family)
    policy_of(file)  # raises PolicyError for what the models cannot say, such as tables that fall
    return file


def _first_error(error: ValidationError, place: str) -> PolicyError:
    first = error.errors(include_url=False)[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    hint = ""
    if first["type"] == "extra_forbidden":
        hint = "a misspelt key, or a file of a newer schema"
    elif first["type"] == "missing":
        hint = "a key is never left out; unknown and none are null"
    shown = first["input"] if isinstance(first["input"], str | int | float | bool) else type(first["input"]).__name__
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return PolicyError(f"{first['msg']}{more}", value=shown, place=f"{place}{path}", hint=hint)
