"""What a published policy file promised, to stand beside what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from features.diagnosis.compare import Comparison
from features.errors import PolicyError
from policies.policy_models import PolicyFile
from policies.store import PolicyStore


@dataclass(frozen=True, slots=True)
class Prediction:
    """Goodput less the incumbent's on the validation days, as the file's evidence has it, with its interval.

    `incumbent`: the version that it was judged against.
    """

    policy_version: str
    content_hash: str
    verdict: str
    gain: float
    low: float
    high: float
    incumbent: str | None


def predicted_gain(store: PolicyStore, version: str) -> Prediction | None:
    """The evidence of the version that logs name: by `policy_version` or by content hash; None without one.

    Of several files of one version, the one that was current last.
    """
    file = _file(store, version)
    if file is None or file.evidence is None:
        return None
    details: Mapping[str, Any] = file.evidence.details
    winner = next((arm for arm in details.get("arms", ()) if arm["name"] == details.get("winner")), None)
    if winner is None:
        return None
    lead = winner["against_incumbent"]
    return Prediction(
        policy_version=file.policy_version,
        content_hash=file.content_hash or "",
        verdict=file.evidence.verdict,
        gain=lead["value"],
        low=lead["low"],
        high=lead["high"],
        incumbent=None if file.incumbent is None else file.incumbent.policy_version,
    )


def with_prediction(found: Comparison, store: PolicyStore | None) -> dict[str, Any]:
    """A comparison as plain values, with the key `predicted`: {…Prediction, realised, inside, same_reference} or None.

    `inside`: the realised difference of the share within targets lies in the predicted interval, or their intervals
    meet. Goodput weighs classes, the realised share does not; `same_reference`: the file was judged against the version
    that is compared with.
    """
    plain = found.to_dict()
    known = None if store is None or found.by != "policy_version" else predicted_gain(store, found.value)
    if known is None:
        return plain | {"predicted": None}
    realised = next((effect for effect in found.effects if effect.measure == "slo"), None)
    value: dict[str, Any] = asdict(known) | {"same_reference": known.incumbent == found.reference}
    if realised is None:
        return plain | {"predicted": value | {"realised": None, "inside": None}}
    low = realised.difference if realised.low is None else realised.low
    high = realised.difference if realised.high is None else realised.high
    inside = low <= known.high and known.low <= high
    return plain | {"predicted": value | {"realised": realised.difference, "inside": inside}}


def prediction_text(value: Mapping[str, Any]) -> str:
    """The prediction in a sentence."""
    gain, low, high = (100 * value[key] for key in ("gain", "low", "high"))
    said = f"predicted {gain:+.1f} points of goodput [{low:+.1f}, {high:+.1f}]"
    incumbent = value["incumbent"] or "an unnamed incumbent"
    against = "" if value["same_reference"] else f" against {incumbent}, which is not this reference"
    if value["realised"] is None:
        return f"{said}{against}; what came of it is unknown."
    agrees = "they agree" if value["inside"] else "they do not agree"
    return f"{said}{against}; realised {100 * value['realised']:+.1f} points: {agrees}."


def _file(store: PolicyStore, version: str) -> PolicyFile | None:
    moves = [move for move in store.history() if version in (move.policy_version, move.content_hash)]
    if moves:
        return store.find(moves[-1].content_hash)
    day = version.rpartition("/")[2]
    digits = version.removeprefix("sha256:")
    names = [
        path.stem.split("-")[-1]
        for path in store.versions()
        if (version == f"{store.pool}/{day}" and path.stem.startswith(f"{day}-")) or path.stem.endswith(f"-{digits}")
    ]
    if len(names) > 1:
        raise PolicyError(
            "a version must name one policy file", value=version, place=str(store.folder),
            hint="several candidates have it and none was current; log the content hash",
        )  # fmt: skip
    return store.find(names[0]) if names else None
