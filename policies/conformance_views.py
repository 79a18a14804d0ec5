"""The view that conformance cases start from, and how they change it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from models.portable.estimators import Estimators
from models.portable.steps import StepLaws
from models.portable.transfer import uplink
from policies.canonical import Json
from policies.policy import Policy
from policies.view import DecodeView, PrefillView, RequestView, RouterView, UplinkView

PORT = 25e9  # bytes/s
UPLINK = 12.5e9
SEED = 0x5DEE_CE66_D1CE_CAFE  # above 2^53: a router must not read it as a double


@dataclass(frozen=True, slots=True)
class Geometry:
    """The pool's units."""

    block_tokens: int
    kv_bytes_per_token: int
    chunk_tokens: int


def base_view(policy: Policy, estimators: Estimators, geometry: Geometry) -> RouterView:
    """Two P and three D in two racks, nothing unknown, room everywhere."""
    block, chunk = geometry.block_tokens, geometry.chunk_tokens
    prompt = chunk + 5 * block + 1
    need = -(-(prompt + 4 * block) // block)
    spare = max(c.reserve_blocks for c in policy.classes) + 4.0 * policy.horizon_s
    usable = float(8 * need) + 4.0 * float(-(-spare // 1))
    names_p = _names(estimators.prefill, ("p0", "p1"))
    names_d = _names(estimators.decode, ("d0", "d1", "d2"))
    prefill = tuple(
        PrefillView(
            name=names_p[i],
            rack=i,
            accepting=True,
            compatible=True,
            total_blocks=8 * need,
            port_bytes_per_s=PORT,
            hit_tokens=0,
            backlog_tokens=float((i + 1) * chunk // 2 + 17),
            backlog_requests=float(i + 1),
            available_blocks=float(4 * need),
            sending_requests=float(i),
            age_s=0.002 * i,
            waiting_requests=float(i),
            running_requests=1.0,
            own_tokens=float(i * chunk // 4),
            own_prompts=float(i),
            own_requests=float(2 * i + 1),
        )
        for i in range(2)
    )
    decode = tuple(
        DecodeView(
            name=names_d[j],
            rack=j % 2,
            accepting=True,
            compatible=True,
            port_bytes_per_s=PORT,
            resident_tokens=0,
            usable_blocks=usable,
            active_blocks=float((j + 1) * need // 2),
            reserved_blocks=float(j),
            inflight_blocks=float(need // 4),
            reclaimable_blocks=float(2 * j),
            booked_blocks=float(need // 8),
            queued_blocks=0.0,
            running_requests=float(6 + 5 * j),
            running_tokens=float((j + 1) * need * block // 2),
            receiving_requests=float(1 + j % 2),
            receiving_tokens=float(need * block // 4),
            booked_requests=1.0,
            booked_tokens=float(need * block // 8),
            growth_blocks_per_s=2.0 + j,
            release_blocks_per_s=1.0 + 2.0 * j,
            age_s=0.002 * j,
            running_by_class=tuple(float(2 + c + j) for c in range(len(policy.classes))),
            waiting_requests=float(j),
            own_requests=float(2 + j),
            own_blocks=float(need + 3 * j),
            new_blocks=float(need - j),
        )
        for j in range(3)
    )
    return RouterView(
        request=RequestView(prompt, 4 * block, 2 * block, 0, 0.05, SEED),
        prefill=prefill,
        decode=decode,
        uplinks=(UplinkView(uplink("a", "b"), 0, 1, UPLINK, 1.0), UplinkView(uplink("b", "a"), 1, 0, UPLINK, 0.0)),
        block_tokens=block,
        kv_bytes_per_token=geometry.kv_bytes_per_token,
        chunk_tokens=chunk,
        turn=3,
    )


def _names(laws: StepLaws, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    """As many nodes of the laws as `otherwise` has, one of every type first."""
    known = [*sorted({*laws.node_factor, *laws.node_type}), *otherwise]
    first = {laws.node_type.get(name): name for name in reversed(known)}
    return tuple(sorted(known, key=lambda name: first[laws.node_type.get(name)] != name))[: len(otherwise)]


def on_p(view: RouterView, at: int, **changes: Json) -> RouterView:
    """The view with one P changed."""
    return replace(view, prefill=tuple(replace(p, **changes) if i == at else p for i, p in enumerate(view.prefill)))


def on_d(view: RouterView, at: int, **changes: Json) -> RouterView:
    """The view with one D changed."""
    return replace(view, decode=tuple(replace(d, **changes) if j == at else d for j, d in enumerate(view.decode)))


def on_all_d(view: RouterView, **changes: Json) -> RouterView:
    """The view with every D changed."""
    return replace(view, decode=tuple(replace(d, **changes) for d in view.decode))


def on_request(view: RouterView, **changes: Json) -> RouterView:
    """The view with another request."""
    return replace(view, request=replace(view.request, **changes))
