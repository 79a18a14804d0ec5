"""JSON form of views and conformance vectors. Pydantic at the edge; inside they are the dataclasses of `policies.view`.

The models of a view are made from those dataclasses, so that the published form cannot drift from what decides.
A tie seed is a decimal string: JSON numbers end at 2⁵³.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from policies.kernel_types import TERMS
from policies.policy import SOURCE_TERMS
from policies.view import DecodeView, PrefillView, RequestView, RouterView, UplinkView

Seed = Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,19})$", description="unsigned 64-bit number, decimal digits")]
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
Some = Annotated[int, Field(gt=0, le=2**31)]
MAX_CHUNKS = 65_536


class Strict(BaseModel):
    """No unknown keys, no silent conversion, no NaN and no infinity."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _model_of(source: type, parts: Mapping[str, object] = MappingProxyType({})) -> type[Strict]:
    """A strict model with the fields of a dataclass; `parts` names the types of those that JSON writes otherwise."""
    counts: dict[Any, Any] = {int: Count, int | None: Count | None, tuple[int, int] | None: tuple[Count, Count] | None}
    hints = {name: counts.get(hint, hint) for name, hint in get_type_hints(source).items()}
    defaults = {f.name: f.default for f in dataclasses.fields(source) if f.default is not dataclasses.MISSING}
    fields: dict[str, Any] = {name: (hint, defaults.get(name, ...)) for name, hint in (hints | dict(parts)).items()}
    doc = (source.__doc__ or "").strip()
    return create_model(source.__name__, __base__=Strict, __doc__=doc, __module__=__name__, **fields)


ViewModel = _model_of(
    RouterView,
    {
        "request": _model_of(RequestView, {"tie_seed": Seed}),
        "prefill": tuple[_model_of(PrefillView), ...],  # type: ignore[misc]  # a model made at run time
        "decode": tuple[_model_of(DecodeView), ...],  # type: ignore[misc]
        "uplinks": tuple[_model_of(UplinkView), ...],  # type: ignore[misc]
        "block_tokens": Some,
        "chunk_tokens": Some,
    },
)


class Rules(Strict):
    """What a vector sets in place of the policy's own; everything else is the file's."""

    family: str
    unknown: Literal["worst", "exclude"]
    when_full: Literal["queue", "reject"]
    same_rack: Literal["none", "prefill_first", "decode_first"]
    temperature_p_s: float
    temperature_d_s: float
    decode_moment: Literal["arrival", "decode_first", "handoff", "recheck"] = "arrival"
    draws_p: Count = 0
    draws_d: Count = 0
    hysteresis_s: float = 0.0


class ExpectedPair(Strict):
    """One candidate pair, by node index."""

    prefill: Count
    decode: Count
    terms: Annotated[
        tuple[float | None, ...],
        Field(min_length=SOURCE_TERMS, max_length=len(TERMS), description="in the order " + ", ".join(TERMS)),
    ]
    score: float
    ttft_s: float | None
    tpot_s: float | None


class Exclusion(Strict):
    """A node (the other index is null) or a pair that a rule removed."""

    prefill: Count | None
    decode: Count | None
    rule: str


class Expected(Strict):
    """The decision: node indices, null = refused; scores of pairs, or keys of nodes."""

    prefill: Count | None
    decode: Count | None
    pairs: tuple[ExpectedPair, ...]
    prefill_keys: tuple[float | None, ...]
    decode_keys: tuple[float | None, ...]
    excluded: tuple[Exclusion, ...]
    capacity_dropped: bool


class VectorModel(Strict):
    """One decision that every router must reproduce. `covers` names the rules that it exercises."""

    name: str
    covers: tuple[str, ...]
    rules: Rules
    view: ViewModel  # type: ignore[valid-type]  # made above from the dataclass
    expected: Expected

    @model_validator(mode="after")
    def _can_be_decided(self) -> VectorModel:
        request, chunk_tokens = self.view.request, self.view.chunk_tokens  # type: ignore[attr-defined]  # as above
        if request.prompt_tokens > MAX_CHUNKS * chunk_tokens:  # a file must not keep its reader busy
            raise ValueError(f"a vector's prompt must not have more than {MAX_CHUNKS} chunks")
        return self


def view_to_json(view: RouterView) -> dict[str, Any]:
    """Plain values of a view, as its model reads them."""
    made = dataclasses.asdict(view)
    made["request"]["tie_seed"] = str(view.request.tie_seed)
    return made


def view_from_model(model: BaseModel) -> RouterView:
    """The view behind a validated model."""
    made = model.model_dump()
    request = made["request"] | {"tie_seed": int(made["request"]["tie_seed"])}
    return RouterView(
        request=RequestView(**request),
        prefill=tuple(PrefillView(**p) for p in made["prefill"]),
        decode=tuple(DecodeView(**d) for d in made["decode"]),
        uplinks=tuple(UplinkView(**u) for u in made["uplinks"]),
        **{key: made[key] for key in ("block_tokens", "kv_bytes_per_token", "chunk_tokens", "turn", "last_pair")},
    )
