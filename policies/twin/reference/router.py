"""A router of the plain reference: its samples, its own bookings and the view of one decision. Rules: docs/twin.md."""

from __future__ import annotations

import math

from models.portable.estimators import Estimators
from models.portable.length_online import LengthTracker
from models.portable.transfer import uplink
from policies.families.registry import shares_blocks
from policies.lengths import MEDIAN
from policies.policy import Policy
from policies.twin.cluster import Cluster
from policies.twin.outcomes import NOT_YET, Status
from policies.twin.reference.aging import Backlog, brought_up
from policies.twin.reference.decode_state import DecodeState
from policies.twin.reference.prefill import PrefillState
from policies.twin.reference.remembered import Booking, LastPair, Sample
from policies.twin.reference.request import SAMPLE_LOSS, Request, blocks_for, draw, rounded_ns
from policies.view import DecodeView, PrefillView, RequestView, RouterView, UplinkView


class Router:
    """Router `index` of the cluster's; sees the pool through its samples only."""

    def __init__(self, index: int, cluster: Cluster, policy: Policy, believed: Estimators, seed: int) -> None:
        self.index = index
        self.cluster = cluster
        self.policy = policy
        self.believed = believed
        self.seed = seed
        self.levels = [c.quantile for c in policy.classes]
        self.shares_blocks = shares_blocks(policy)
        self.lengths = LengthTracker(believed.length)
        self.unlearned: list[Request] = []  # own requests whose answer has taught nothing yet
        self.setup = cluster.routers
        self.live = self.setup.period_ns == 0
        self.samples: list[Sample] = []  # in time order
        self.bookings: list[Booking] = []
        self.lease_ns = self.setup.lease_ns if policy.lease_s is None else rounded_ns(policy.lease_s)
        self.last_pairs: dict[int, LastPair] = {}  # by class
        self.refused: set[str] = set()  # nodes that have just refused the request that is decided
        self.turn = 0
        self.turn_d = 0  # Ds that were chosen for computed prompts
        self.ticks = 0
        self.expired = 0
        self.stale = 0

    @property
    def next_tick_ns(self) -> int:
        """When the next sample is taken (not for a live router)."""
        offset = self.index * self.setup.period_ns // self.setup.count
        return self.ticks * self.setup.period_ns + offset

    def take_sample(self, now: int, prefill: list[PrefillState], decode: list[DecodeState]) -> None:
        """Keep every node's state, with rates over the time since the sample before, unless the sample is lost."""
        self.ticks += 1
        lost = draw(self.seed, SAMPLE_LOSS, self.index, self.ticks - 1) >> 11 < self.setup.loss_frac * 2**53
        if not self.live and (lost or any(gap.holds(now) for gap in self.cluster.faults.gaps)):
            return
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
                    growth[d] = self._smooth(before.growth[d], generated_blocks / seconds, seconds)
                    freed = new.freed_blocks - old.freed_blocks
                    release[d] = self._smooth(before.release[d], freed / seconds, seconds)
        self.samples.append(Sample(now, prefill, decode, growth, release))

    def _smooth(self, before: float | None, rate: float, seconds: float) -> float:
        half_life_s = self.policy.half_life_s
        if half_life_s == 0 or before is None:
            return rate
        return before + seconds / (seconds + half_life_s) * (rate - before)

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

    def book(self, request: Request, now: int, *, on_d: bool) -> None:
        """Remember an own placement; `on_d`: its D stands fast."""
        blocks = blocks_for(request.prompt_tokens + request.estimated_output, self.cluster.block_tokens)
        self.bookings.append(Booking(request, now, request.expected_new_tokens, blocks, now if on_d else None))

    def book_decode(self, request: Request, now: int) -> None:
        """The D of a computed prompt is chosen: its booking stands there, from now on."""
        booking = next(b for b in self.bookings if b.request is request)
        booking.on_d_ns = now
        booking.counted_as_expired = False

    def chose(self, request: Request, pair: tuple[int, int] | None, now: int) -> None:
        """Remember the pair of an arrival."""
        last = self.last_pairs.get(request.class_index)
        if pair is not None and (last is None or last.pair != pair):
            self.last_pairs[request.class_index] = LastPair(pair, now)

    def _last_pair(self, class_index: int, now: int) -> tuple[int, int] | None:
        last = self.last_pairs.get(class_index)
        if self.policy.hysteresis_s == 0 or last is None or now - last.since_ns > rounded_ns(self.policy.dwell_s):
            return None
        return last.pair

    def view(
        self,
        request: Request,
        now: int,
        tie_seed: int,
        hit_tokens: list[int],
        held_tokens: list[int],
        own_flows: list[int],
        prefilled_on: int | None = None,
    ) -> RouterView:
        """What this router knows when it decides on `request`; counts the decision. `prefilled_on`: as in the view."""
        slo_class = self.policy.classes[request.class_index].name
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
                prefilled_on=prefilled_on,
            ),
            prefill=tuple(
                self._prefill_view(p, sample, now, hit_tokens[p], slo_class) for p in range(len(self.cluster.prefill))
            ),
            decode=tuple(self._decode_view(d, request, sample, now, held) for d, held in enumerate(held_tokens)),
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
            turn=self.turn if prefilled_on is None else self.turn_d,
            last_pair=self._last_pair(request.class_index, now) if prefilled_on is None else None,
        )
        if prefilled_on is None:
            self.turn += 1
        else:
            self.turn_d += 1
        self._count_expired(now)
        return result

    def _accepts(self, name: str, sample: Sample | None, now: int) -> bool:
        """Whether the node accepts requests, as far as the router knows."""
        if name in self.refused:
            return False
        faults = self.cluster.faults
        if self.live or faults.seen == "at_once":
            return not faults.is_closed(name, now)
        return sample is None or not faults.is_closed(name, sample.taken_ns)

    def _prefill_view(self, p: int, sample: Sample | None, now: int, hit_tokens: int, slo_class: str) -> PrefillView:
        node = self.cluster.prefill[p]
        own = [b.request for b in self._bookings_on_p(p) if b.request.status is None]
        state = None if sample is None else sample.prefill[p]
        unseen = [] if sample is None else [b for b in self._bookings_on_p(p) if sample.taken_ns < b.booked_ns]
        unseen = [] if self.live else [b for b in unseen if b.request.status is not Status.CANCELLED]
        backlog = self._backlog(p, sample, unseen, now)
        corrected = self.setup.correct_age and not self.live
        return PrefillView(
            name=node.name,
            rack=self.cluster.racks.index(node.rack),
            accepting=self._accepts(node.name, sample, now),
            compatible=node.serves(slo_class),
            total_blocks=node.blocks,
            port_bytes_per_s=node.port_gbps * 1e9 / 8,
            hit_tokens=hit_tokens,
            backlog_tokens=None if backlog is None else backlog.tokens,
            backlog_requests=None if backlog is None else backlog.requests,
            available_blocks=None if state is None else float(state.available_blocks),
            sending_requests=None if state is None else float(state.sending_requests),
            age_s=None if sample is None else 0.0 if corrected else (now - sample.taken_ns) / 1e9,
            waiting_requests=None if state is None else float(state.waiting_requests),
            running_requests=None if state is None else float(state.running_requests),
            own_tokens=float(sum(r.expected_new_tokens for r in own if r.prefill_finished_ns == NOT_YET)),
            own_prompts=float(sum(r.prefill_finished_ns == NOT_YET for r in own)),
            own_requests=float(len(own)),
        )

    def _backlog(self, p: int, sample: Sample | None, unseen: list[Booking], now: int) -> Backlog | None:
        if sample is None:
            return None
        state, budget = sample.prefill[p], float(self.cluster.discipline.chunk_tokens)
        pace = budget / self.believed.prefill.prefill_s(self.cluster.prefill[p].name, budget, 0.0)
        corrected = self.setup.correct_age and not self.live
        backlog = Backlog(float(state.backlog_tokens), float(state.backlog_requests), sample.taken_ns, pace)
        if not corrected:
            backlog.pace = 0.0
        backlog.add((b.booked_ns, b.new_tokens) for b in unseen)
        backlog.drain(now)
        return backlog

    def _decode_view(self, d: int, request: Request, sample: Sample | None, now: int, held: int) -> DecodeView:
        node = self.cluster.decode[d]
        there = [b for b in self.bookings if b.request.decode_node == d and b.on_d_ns is not None]
        own = [b.request for b in there if b.request.status is None and b.request is not request]
        active = {block for r in own for block in self._full_blocks(r)}
        state = None if sample is None else sample.decode[d]
        unseen = [b for b in there if b.request is not request and self._booked_on_d(b, sample, now)]
        running = [] if state is None else [state.running_classes.count(c) for c in range(len(self.policy.classes))]
        view = DecodeView(
            name=node.name,
            rack=self.cluster.racks.index(node.rack),
            accepting=self._accepts(node.name, sample, now),
            compatible=node.serves(self.policy.classes[request.class_index].name),
            port_bytes_per_s=node.port_gbps * 1e9 / 8,
            resident_tokens=held,
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
            running_by_class=None if state is None else tuple(float(count) for count in running),
            waiting_requests=None if state is None else float(state.waiting_requests),
            own_requests=float(len(own)),
            own_blocks=float(len(active)),
            new_blocks=float(len(self._full_blocks(request) - active)),
        )
        if sample is None or self.live or not self.setup.correct_age:
            return view
        return brought_up(view, (now - sample.taken_ns) / 1e9, self.cluster.block_tokens)

    def _full_blocks(self, request: Request) -> set[tuple[int, int]]:
        """A request's full prompt blocks: those of a hash are shared if the router shares any, the others its own."""
        full = request.prompt_tokens // self.cluster.block_tokens
        listed = request.hashes[:full] if self.shares_blocks else ()
        return {(-1, h) for h in listed} | {(request.index, k) for k in range(len(listed), full)}

    def _bookings_on_p(self, p: int) -> list[Booking]:
        return [b for b in self.bookings if b.request.prefill_node == p]

    def _lease_ended(self, booking: Booking, now: int) -> bool:
        return booking.on_d_ns is not None and now >= booking.on_d_ns + self.lease_ns

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
                and booking.request.status is None
                and not booking.counted_as_expired
            ):
                booking.counted_as_expired = True
                self.expired += 1
