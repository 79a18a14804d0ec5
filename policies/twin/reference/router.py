"""A router of the plain reference: its samples, its own bookings and the view of one decision. Rules: docs/twin.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

from models.portable.length import LengthLaw
from models.portable.length_online import LengthTracker
from models.portable.transfer import uplink
from policies.lengths import MEDIAN
from policies.policy import Policy
from policies.twin.cluster import Cluster
from policies.twin.outcomes import NOT_YET, Status
from policies.twin.reference.decode import DecodeState
from policies.twin.reference.prefill import PrefillState
from policies.twin.reference.request import Request, blocks_for
from policies.view import DecodeView, PrefillView, RequestView, RouterView, UplinkView


@dataclass(frozen=True, slots=True)
class Sample:
    """The pool at `taken_ns`. `growth` and `release` of every D in blocks/s, None = unknown."""

    taken_ns: int
    prefill: list[PrefillState]
    decode: list[DecodeState]
    growth: list[float | None]
    release: list[float | None]


@dataclass(slots=True, eq=False)
class Booking:
    """What a router remembers of a request that it placed at `booked_ns`."""

    request: Request
    booked_ns: int
    new_tokens: int  # on P
    blocks: int  # on D, estimated
    counted_as_expired: bool = False


class Router:
    """Router `index` of the cluster's; sees the pool through its samples only."""

    def __init__(self, index: int, cluster: Cluster, policy: Policy, lengths: LengthLaw) -> None:
        self.index = index
        self.cluster = cluster
        self.levels = [c.quantile for c in policy.classes]
        self.lengths = LengthTracker(lengths)
        self.unlearned: list[Request] = []  # own requests whose answer has taught nothing yet
        self.setup = cluster.routers
        self.live = self.setup.period_ns == 0
        self.samples: list[Sample] = []  # in time order
        self.bookings: list[Booking] = []
        self.turn = 0
        self.ticks = 0
        self.expired = 0
        self.stale = 0

    @property
    def next_tick_ns(self) -> int:
        """When the next sample is taken (not for a live router)."""
        offset = self.index * self.setup.period_ns // self.setup.count
        return self.ticks * self.setup.period_ns + offset

    def take_sample(self, now: int, prefill: list[PrefillState], decode: list[DecodeState]) -> None:
        """Keep the state of every node, with rates over the time since the sample before."""
        growth: list[float | None] = [None] * len(decode)
        release: list[float | None] = [None] * len(decode)
        if self.samples:
            before = self.samples[-1]
            seconds = (now - before.taken_ns) / 1e9
            for d, (old, new) in enumerate(zip(before.decode, decode, strict=True)):
                if now == before.taken_ns:
                    growth[d], release[d] = before.growth[d], before.release[d]
                else:
                    generated_blocks = (new.generated_tokens - old.generated_tokens) / self.cluster.block_tokens
                    growth[d] = generated_blocks / seconds
                    release[d] = (new.freed_blocks - old.freed_blocks) / seconds
        self.samples.append(Sample(now, prefill, decode, growth, release))
        self.ticks += 1

    def usable_sample(self, now: int) -> Sample | None:
        """The newest sample that the router has seen by now."""
        for sample in reversed(self.samples):
            if self.live or sample.taken_ns + self.setup.delay_ns < now:
                return sample
        return None

    def estimate(self, request: Request, now: int) -> None:
        """Learn from own answers that have ended before now, then say what is expected of this one."""
        if request.arrival is None:
            return
        ended = [r for r in self.unlearned if r.status is Status.COMPLETED and r.finished_ns < now]
        for answer in sorted(ended, key=lambda r: (r.finished_ns, r.index)):
            self.unlearned.remove(answer)
            assert answer.arrival is not None
            self.lengths.observe(answer.arrival, answer.output_tokens)
        quantiles = self.lengths.quantiles(request.arrival)
        law = self.lengths.law
        request.estimated_output = max(1, math.ceil(quantiles[law.place(self.levels[request.class_index])]))
        request.expected_output = max(1, math.ceil(quantiles[law.place(MEDIAN)]))
        if request.learned:
            self.unlearned.append(request)

    def book(self, request: Request, now: int) -> None:
        """Remember an own placement."""
        blocks = blocks_for(request.prompt_tokens + request.estimated_output, self.cluster.block_tokens)
        self.bookings.append(Booking(request, now, request.expected_new_tokens, blocks))

    def view(
        self, request: Request, now: int, tie_seed: int, hit_tokens: list[int], own_flows: list[int]
    ) -> RouterView:
        """What this router knows when it decides on `request`; counts the decision."""
        sample = self.usable_sample(now)
        if sample is not None and sample.taken_ns < now:
            self.stale += 1
        racks = self.cluster.racks
        result = RouterView(
            request=RequestView(
                prompt_tokens=request.prompt_tokens,
                estimated_output_tokens=request.estimated_output,
                expected_output_tokens=request.expected_output,
                class_index=request.class_index,
                waited_s=(now - request.arrival_ns) / 1e9,
                tie_seed=tie_seed,
            ),
            prefill=tuple(self._prefill_view(p, sample, now, hit_tokens[p]) for p in range(len(self.cluster.prefill))),
            decode=tuple(self._decode_view(d, sample, now) for d in range(len(self.cluster.decode))),
            uplinks=tuple(
                UplinkView(
                    uplink(u.from_rack, u.to_rack),
                    racks.index(u.from_rack),
                    racks.index(u.to_rack),
                    u.gbps * 1e9 / 8,
                    float(flows),
                )
                for u, flows in zip(self.cluster.uplinks, own_flows, strict=True)
            ),
            block_tokens=self.cluster.block_tokens,
            kv_bytes_per_token=self.cluster.kv_bytes_per_token,
            chunk_tokens=self.cluster.discipline.chunk_tokens,
            turn=self.turn,
        )
        self.turn += 1
        self._count_expired(now)
        return result

    def _prefill_view(self, p: int, sample: Sample | None, now: int, hit_tokens: int) -> PrefillView:
        node = self.cluster.prefill[p]
        state = None if sample is None else sample.prefill[p]
        unseen = [] if sample is None else [b for b in self._bookings_on_p(p) if sample.taken_ns < b.booked_ns]
        if self.live:
            unseen = []
        return PrefillView(
            name=node.name,
            rack=self.cluster.racks.index(node.rack),
            accepting=True,
            compatible=True,
            total_blocks=node.blocks,
            port_bytes_per_s=node.port_gbps * 1e9 / 8,
            hit_tokens=hit_tokens,
            backlog_tokens=None if state is None else float(state.backlog_tokens + sum(b.new_tokens for b in unseen)),
            backlog_requests=None if state is None else float(state.backlog_requests + len(unseen)),
            available_blocks=None if state is None else float(state.available_blocks),
            sending_requests=None if state is None else float(state.sending_requests),
            age_s=None if sample is None else (now - sample.taken_ns) / 1e9,
        )

    def _decode_view(self, d: int, sample: Sample | None, now: int) -> DecodeView:
        node = self.cluster.decode[d]
        state = None if sample is None else sample.decode[d]
        unseen = [b for b in self.bookings if b.request.decode_node == d and self._booked_on_d(b, sample, now)]
        return DecodeView(
            name=node.name,
            rack=self.cluster.racks.index(node.rack),
            accepting=True,
            compatible=True,
            port_bytes_per_s=node.port_gbps * 1e9 / 8,
            resident_tokens=0,
            usable_blocks=float(node.blocks),
            active_blocks=None if state is None else float(state.active_blocks),
            reserved_blocks=None if state is None else 0.0,
            inflight_blocks=None if state is None else float(state.inflight_blocks),
            reclaimable_blocks=None if state is None else 0.0,
            booked_blocks=float(sum(b.blocks for b in unseen)),
            queued_blocks=None if state is None else float(state.queued_blocks),
            running_requests=None if state is None else float(state.running_requests),
            running_tokens=None if state is None else float(state.running_tokens),
            receiving_requests=None if state is None else float(state.receiving_requests),
            receiving_tokens=None if state is None else float(state.receiving_tokens),
            booked_requests=float(len(unseen)),
            booked_tokens=float(sum(b.request.prompt_tokens for b in unseen)),
            growth_blocks_per_s=None if sample is None else sample.growth[d],
            release_blocks_per_s=None if sample is None else sample.release[d],
            age_s=None if sample is None else (now - sample.taken_ns) / 1e9,
        )

    def _bookings_on_p(self, p: int) -> list[Booking]:
        return [b for b in self.bookings if b.request.prefill_node == p]

    def _lease_ended(self, booking: Booking, now: int) -> bool:
        return now >= booking.booked_ns + self.setup.lease_ns

    def _booked_on_d(self, booking: Booking, sample: Sample | None, now: int) -> bool:
        reserved_ns = booking.request.transfer_started_ns
        seen = sample is not None and reserved_ns != NOT_YET and sample.taken_ns >= reserved_ns
        ended = booking.request.status is not None
        return not seen and not ended and not self._lease_ended(booking, now)

    def _count_expired(self, now: int) -> None:
        """A booking is found ended by lease by the first decision after that, if D has not reserved by then."""
        for booking in self.bookings:
            if (
                self._lease_ended(booking, now)
                and booking.request.transfer_started_ns == NOT_YET
                and not booking.counted_as_expired
            ):
                booking.counted_as_expired = True
                self.expired += 1
