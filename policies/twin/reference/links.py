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
    """A transfer that drains. `rest_bytes` is what was left at `since_ns`."""

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
        self.flows_on: dict[Resource, int] = dict.fromkeys(self.capacity, 0)
        self.draining: dict[int, Flow] = {}  # by request index
        self.drained: dict[int, tuple[int, Request]] = {}  # by request index: when KV is visible
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
        """D reserved: the whole prompt's KV starts to move."""
        noise = multiplier(self.noise_table, self.seed, TRANSFER_NOISE, request.index, 0)
        size = request.prompt_tokens * self.cluster.kv_bytes_per_token * self.law.wire_frac * noise
        flow = Flow(request, self._resources(request), self.law.efficiency[self._kind(request)], size, now)
        for resource in flow.resources:
            self.flows_on[resource] += 1
        self._share_again(now)
        flow.rate = self._rate(flow)
        flow.end_ns = now + math.floor(flow.rest_bytes / flow.rate + 0.5)
        self.draining[request.index] = flow

    def events(self) -> list[tuple[int, int]]:
        """(time, request index) of everything that will happen if no flow starts or ends before."""
        ends = [(flow.end_ns, index) for index, flow in self.draining.items()]
        return ends + [(visible_ns, index) for index, (visible_ns, _) in self.drained.items()]

    def handle(self, index: int, now: int) -> tuple[Literal["drained", "visible"], Request]:
        """The event of this request that is due now."""
        if index in self.drained:
            _, request = self.drained.pop(index)
            request.transfer_finished_ns = now
            return "visible", request
        flow = self.draining.pop(index)
        for resource in flow.resources:
            self.flows_on[resource] -= 1
        self._share_again(now)
        flow.request.transfer_drained_ns = now
        blocks = blocks_for(flow.request.prompt_tokens, self.cluster.block_tokens)
        alpha_ns = rounded_ns(self.law.fixed_s(self._kind(flow.request), blocks))
        self.drained[index] = (now + alpha_ns, flow.request)
        return "drained", flow.request

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
