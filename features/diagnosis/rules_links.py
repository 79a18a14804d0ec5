"""Findings about the KV path: which link slow transfers have in common, and links that are full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from features.diagnosis.finding import Finding, Tables, percent

SLOW_RATE = 0.6
"""A pair is slow if its larger transfers would get less than this part of the usual rate by themselves."""
FEWEST_TRANSFERS, FEWEST_OF_PAIR = 20, 5
PURE = 0.8
"""Part of a link's transfers that must be on slow pairs."""
COSTLY_TTFT = 0.1
"""Part of its requests' TTFT that goes into transfers beyond the usual rate, from which a slow link matters."""
COSTLY_MS = 20.0
FULL_BUSY, FULL_USE, FULL_FLOWS, FULL_TTFT = 0.85, 0.6, 3.0, 0.3
"""A link is full if it is busy that part of the time, at that part of its line rate, with that many transfers at once,
and they take that part of TTFT."""
_RANK = {"path": 0, "ingress": 1, "egress": 1, "pair": 2}


@dataclass(frozen=True, slots=True)
class _Link:
    kind: str
    name: str
    pairs: tuple[int, ...]


def congested_links(tables: Tables) -> list[Finding]:
    """`congested_link`: slower than its peers, or full."""
    slow = _slow_links(tables.get("pair_rates", []))
    named = {finding.subject for finding in slow}
    return [*slow, *(f for f in _full_links(tables.get("links", [])) if f.subject not in named)]


def _slow_links(pairs: Sequence[dict[str, Any]]) -> list[Finding]:
    """Links that together explain the slow pairs: the coarsest kind first, then the one with most lost time."""
    known = [pair for pair in pairs if pair["transfers"] >= FEWEST_OF_PAIR]
    usual = _usual_rate(known)
    if usual is None:
        return []
    lost = [max(0.0, 1 - pair["alone_bytes_per_s"] / usual) * pair["transfer_ms"] for pair in known]
    slow = {at for at, pair in enumerate(known) if pair["alone_bytes_per_s"] < SLOW_RATE * usual}
    found: list[Finding] = []
    pure = [link for link in _links(known) if _purity(link, known, slow) >= PURE]
    while slow:
        candidates = [link for link in pure if slow & set(link.pairs)]
        if not candidates:
            break
        # A link explains pairs only together: of one pair nothing tells which end is slow.
        several = [link for link in candidates if link.kind == "pair" or len(link.pairs) > 1]
        best = max(several, key=lambda k: (sum(lost[at] for at in set(k.pairs) & slow), -_RANK[k.kind], k.name))
        finding = _slow(best, known, lost, usual)
        if finding is not None:
            found.append(finding)
        slow -= set(best.pairs)
    return found


def _links(pairs: Sequence[dict[str, Any]]) -> list[_Link]:
    groups: dict[tuple[str, str], list[int]] = {}
    for at, pair in enumerate(pairs):
        groups.setdefault(("pair", f"{pair['p']} → {pair['d']}"), []).append(at)
        groups.setdefault(("egress", pair["p"]), []).append(at)
        groups.setdefault(("ingress", pair["d"]), []).append(at)
        if pair["crosses"]:
            groups.setdefault(("path", pair["path"]), []).append(at)
    return [_Link(kind, name, tuple(at)) for (kind, name), at in groups.items()]


def _purity(link: _Link, pairs: Sequence[dict[str, Any]], slow: set[int]) -> float:
    total = sum(pairs[at]["transfers"] for at in link.pairs)
    return float(sum(pairs[at]["transfers"] for at in link.pairs if at in slow) / total)


def _usual_rate(pairs: Sequence[dict[str, Any]]) -> float | None:
    """The rate that a quarter of the pairs reach: one congested path may hold the other three quarters."""
    rates = sorted(pair["alone_bytes_per_s"] for pair in pairs)
    return rates[min(len(rates) - 1, (3 * len(rates)) // 4)] if len(rates) > 1 else None


def _slow(link: _Link, pairs: Sequence[dict[str, Any]], lost: list[float], usual: float) -> Finding | None:
    mine = [pairs[at] for at in link.pairs]
    n = sum(pair["transfers"] for pair in mine)
    lost_ms = sum(lost[at] for at in link.pairs) / n
    share = sum(lost[at] for at in link.pairs) / max(sum(pair["ttft_ms"] or 0.0 for pair in mine), 1e-9)
    if n < FEWEST_TRANSFERS or lost_ms < COSTLY_MS or share < COSTLY_TTFT:
        return None
    rate = sum(pair["alone_bytes_per_s"] * pair["transfers"] for pair in mine) / n
    what = described(link.kind, link.name)
    return Finding(
        name="congested_link",
        severity="severe" if share >= 3 * COSTLY_TTFT else "warning",
        subject=what,
        value=8e-9 * rate,
        unit="Gb/s",
        compared_to=8e-9 * usual,
        comparison="what the faster pairs of the pool get",
        low=None,
        high=None,
        n=n,
        counted="larger transfers",
        text=f"{what} gives {8e-9 * rate:.0f} Gb/s where other links give {8e-9 * usual:.0f} Gb/s; that costs its "
        f"larger "
        f"transfers {lost_ms:.0f} ms each, {percent(share)} of their TTFT ({n} transfers).",
    )


def _full_links(links: Sequence[dict[str, Any]]) -> list[Finding]:
    found = []
    for row in links:
        full = (
            row["kind"] != "pair"
            and (row["line_use_frac"] or 0.0) >= FULL_USE
            and (row["busy_frac"] or 0.0) >= FULL_BUSY
            and row["flows_mean"] >= FULL_FLOWS
            and (row["ttft_share_frac"] or 0.0) >= FULL_TTFT
            and row["transfers"] >= FEWEST_TRANSFERS
        )
        if not full:
            continue
        what = described(row["kind"], row["name"])
        found.append(
            Finding(
                name="congested_link",
                severity="severe",
                subject=what,
                value=row["busy_frac"],
                unit="share of the time in use",
                compared_to=FULL_BUSY,
                comparison="the threshold",
                low=None,
                high=None,
                n=row["transfers"],
                counted="transfers",
                text=f"{what} is in use {percent(row['busy_frac'])} of the time at {percent(row['line_use_frac'])} "
                f"of its line "
                f"rate, by {row['flows_mean']:.1f} transfers at once ({row['transfers']} transfers).",
            )
        )
    return found


def described(kind: str, name: str) -> str:
    """A link as findings name it."""
    return {"path": f"path {name}", "ingress": f"ingress of {name}", "egress": f"egress of {name}"}.get(kind, name)
