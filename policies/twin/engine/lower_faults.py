"""A cluster's faults as the engine reads them."""

from __future__ import annotations

import numpy as np

from features.errors import TwinError
from models.portable.transfer import egress, ingress, uplink
from policies.kernel_types import Int64
from policies.twin.cluster import Cluster
from policies.twin.engine import faults, parts


def closed_windows(cluster: Cluster) -> Int64:
    """(windows, 4): node, start, stop, kind (0 drain, 1 outage). TwinError for a node that is not there."""
    names = [n.name for n in (*cluster.prefill, *cluster.decode)]
    windows = [(w, 0) for w in cluster.faults.drains] + [(w, 1) for w in cluster.faults.outages]
    unknown = sorted({w.node for w, _ in windows} - set(names))
    if unknown:
        raise TwinError("faults must name nodes of the cluster", value=unknown[0], place="faults")
    rows = [(names.index(w.node), w.start_ns, w.stop_ns, kind) for w, kind in windows]
    return np.array(rows, np.int64).reshape(-1, 4)


def fault_rows(cluster: Cluster, x: parts.Links) -> parts.FaultRows:
    """Outages and changes of speed, in their order. TwinError for a port that is not there."""
    prefill = [n.name for n in cluster.prefill]
    rows: list[tuple[int, int, int, int, float]] = []
    for outage in cluster.faults.outages:
        on_p = outage.node in prefill
        node = prefill.index(outage.node) if on_p else [n.name for n in cluster.decode].index(outage.node)
        rows.append((outage.start_ns, 0, faults.OUTAGE_P if on_p else faults.OUTAGE_D, node, 0.0))
    ports = {egress(name): (faults.EGRESS, k, float(x.egress[k])) for k, name in enumerate(prefill)}
    ports |= {ingress(n.name): (faults.INGRESS, k, float(x.ingress[k])) for k, n in enumerate(cluster.decode)}
    ports |= {
        uplink(u.from_rack, u.to_rack): (faults.UPLINK, k, float(x.uplink[k])) for k, u in enumerate(cluster.uplinks)
    }
    for slow in cluster.faults.slow:
        if slow.port not in ports:
            raise TwinError("faults must name ports of the cluster", value=slow.port, place="faults")
        kind, node, speed = ports[slow.port]
        for now in (slow.start_ns, slow.stop_ns):
            then = speed
            for other in cluster.faults.slow:
                if other.port == slow.port and other.holds(now):
                    then *= other.factor
            rows.append((now, 1, kind, node, then))
    rows.sort(key=lambda row: row[:2])
    return parts.FaultRows(
        events=np.array([(time, kind, node) for time, _, kind, node, _ in rows], np.int64).reshape(-1, 3),
        speed=np.array([row[4] for row in rows], np.float64),
        first=np.zeros(1, np.int64),
    )
