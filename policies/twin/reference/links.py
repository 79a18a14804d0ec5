"""The links of the plain reference: transfers that share egress, uplink and ingress fairly. Rules: docs/twin.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from models.portable.transfer import TransferLaw, egress, ingress, uplink
from policies.twin.cluster import Cluster
from policies.twin.outcomes import Noise
from policies.twin.reference.request import TRANSFER_NOISE, Request, blocks_for, multiplier, rounded_ns

Resource = tuple[str, int]
"""("egress", P), ("uplink", index in the cluster) or ("ingress", D)."""


@dataclass(slots=True, eq=False)
class Flow:
    """A transfer that drains, or waits for its handshake (rate 0). `rest_bytes` is what was left at `since_ns`."""

    request: Request
    resources: list[Resource]
    efficiency: float
    rest_bytes: float
    since_ns: int
    rate: float = 0.0  # bytes per ns
    end_ns: int = 0


class Links:
    """All transfers of the pool."""

    def __init__(self, cluster: Cluster, law: TransferLaw, seed: int, noise: Noise | None) -> None:
        self.cluster = cluster
        self.law = law
        self.seed = seed
        self.noise_table = None if noise is None else noise.transfer
        self.capacity: dict[Resource, float] = {}  # bytes per ns
        for p, node in enumerate(cluster.prefill):
            self.capacity["egress", p] = node.port_gbps / 8 * law.port(egress(node.name))
        for u, link in enumerate(cluster.uplinks):
            self.capacity["uplink", u] = link.gbps / 8 * law.port(uplink(link.from_rack, link.to_rack))
        for d, node in enumerate(cluster.decode):
            self.capacity["ingress", d] = node.port_gbps / 8 * law.port(ingress(node.name))
        self.nominal = dict(self.capacity)
        self.port_name = {("egress", p): egress(node.name) for p, node in enumerate(cluster.prefill)}
        self.port_name |= {("ingress", d): ingress(node.name) for d, node in enumerate(cluster.decode)}
        self.port_name |= {("uplink", u): uplink(k.from_rack, k.to_rack) for u, k in enumerate(cluster.uplinks)}
        self.flows_on: dict[Resource, int] = dict.fromkeys(self.capacity, 0)
        self.draining: dict[int, Flow] = {}  # by request index
        self.shaking: dict[int, Flow] = {}  # by request index
        self.drained: dict[int, tuple[int, Request]] = {}  # by request index: when KV is visible
        self.met: set[tuple[int, int]] = set()  # pairs that have had a transfer
        self.shared = 0

    def _kind(self, request: Request) -> str:
        same = self.cluster.prefill[request.prefill_node].rack == self.cluster.decode[request.decode_node].rack
        return "local" if same else "cross"

    def _resources(self, request: Request) -> list[Resource]:
        from_rack = self.cluster.prefill[request.prefill_node].rack
        to_rack = self.cluster.decode[request.decode_node].rack
        resources: list[Resource] = [("egress", request.prefill_node)]
        if from_rack != to_rack:
            for u, link in enumerate(self.cluster.uplinks):
                if (link.from_rack, link.to_rack) == (from_rack, to_rack):
                    resources.append(("uplink", u))
        resources.append(("ingress", request.decode_node))
        return resources

    def _rate(self, flow: Flow) -> float:
        if self.cluster.discipline.contention == "none":
            return min(self.capacity[r] for r in flow.resources) * flow.efficiency
        return min(self.capacity[r] / self.flows_on[r] for r in flow.resources) * flow.efficiency

    def _share_again(self, now: int) -> None:
        for flow in self.draining.values():
            rate = self._rate(flow)
            if rate != flow.rate:
                flow.rest_bytes = max(0.0, flow.rest_bytes - flow.rate * (now - flow.since_ns))
                flow.since_ns = now
                flow.rate = rate
                flow.end_ns = now + math.floor(flow.rest_bytes / rate + 0.5)
                self.shared += 1

    def start(self, request: Request, now: int) -> None:
        """D reserved: the prompt's KV starts to move, after the handshake of a pair that is new."""
        noise = multiplier(self.noise_table, self.seed, TRANSFER_NOISE, request.index, 0)
        held = len(request.shared_on_d) if self.cluster.discipline.decode_prefix_reuse else 0
        request.sent_tokens = request.prompt_tokens - held * self.cluster.block_tokens
        size = request.sent_tokens * self.cluster.kv_bytes_per_token * self.law.wire_frac * noise
        flow = Flow(request, self._resources(request), self.law.efficiency[self._kind(request)], size, now)
        hidden_ns = self.law.overlap_frac * (request.prefill_finished_ns - request.prefill_started_ns)
        pair = (request.prefill_node, request.decode_node)
        if pair not in self.met:
            self.met.add(pair)
            handshake_ns = self.law.handshake_s * 1e9
            wait_ns = math.floor(handshake_ns - hidden_ns + 0.5)
            hidden_ns = max(hidden_ns - handshake_ns, 0.0)
            if wait_ns > 0:
                flow.end_ns = now + wait_ns
                self.shaking[request.index] = flow
                return
        self._drain(flow, hidden_ns, now)

    def _drain(self, flow: Flow, hidden_ns: float, now: int) -> None:
        for resource in flow.resources:
            self.flows_on[resource] += 1
        self._share_again(now)
        flow.rate = self._rate(flow)
        flow.since_ns = now
        size = flow.rest_bytes
        flow.rest_bytes = max(size - hidden_ns * flow.rate, self.law.last_frac * size)
        flow.end_ns = now + math.floor(flow.rest_bytes / flow.rate + 0.5)
        self.draining[flow.request.index] = flow

    def events(self) -> list[tuple[int, int]]:
        """(time, request index) of everything that will happen if no flow starts or ends before."""
        ends = [(flow.end_ns, index) for flows in (self.shaking, self.draining) for index, flow in flows.items()]
        return ends + [(visible_ns, index) for index, (visible_ns, _) in self.drained.items()]

    def handle(self, index: int, now: int) -> tuple[Literal["shaken", "drained", "visible"], Request]:
        """The event of this request that is due now."""
        if index in self.shaking:
            flow = self.shaking.pop(index)
            self._drain(flow, 0.0, now)
            return "shaken", flow.request
        if index in self.drained:
            _, request = self.drained.pop(index)
            request.transfer_finished_ns = now
            return "visible", request
        flow = self.draining.pop(index)
        for resource in flow.resources:
            self.flows_on[resource] -= 1
        self._share_again(now)
        flow.request.transfer_drained_ns = now
        blocks = blocks_for(flow.request.sent_tokens, self.cluster.block_tokens)
        alpha_ns = rounded_ns(self.law.fixed_s(self._kind(flow.request), blocks))
        self.drained[index] = (now + alpha_ns, flow.request)
        return "drained", flow.request

    def change_speeds(self, port: str, now: int) -> None:
        """A window of slowness of this port begins or ends now."""
        for resource, name in self.port_name.items():
            if name == port:
                self.capacity[resource] = self.nominal[resource]
                for slow in self.cluster.faults.slow:
                    if slow.port == port and slow.holds(now):
                        self.capacity[resource] *= slow.factor
        self._share_again(now)

    def forget(self, *, prefill: int | None = None, decode: int | None = None) -> None:
        """A node is gone, and its connections with it."""
        self.met = {(p, d) for p, d in self.met if p != prefill and d != decode}

    def drop(self, request: Request, now: int) -> None:
        """The request's KV does not move any longer, if it does."""
        self.shaking.pop(request.index, None)
        self.drained.pop(request.index, None)
        flow = self.draining.pop(request.index, None)
        if flow is not None:
            for resource in flow.resources:
                self.flows_on[resource] -= 1
            self._share_again(now)

    def sending(self, prefill: int) -> int:
        """Draining flows from a P."""
        return self.flows_on["egress", prefill]

    def own_flows(self, uplink: int, router: int, routers: int) -> int:
        """A router's own requests that drain over an uplink."""
        return sum(
            1
            for flow in self.draining.values()
            if ("uplink", uplink) in flow.resources and flow.request.index % routers == router
        )
