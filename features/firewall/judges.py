"""The firewall of one log: rules of its rows at once, and what only the whole log can show at its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import polars as pl

from features.firewall.chains import ChainEvidence
from features.firewall.clocks import STAGE_ORDER, ClockEvidence, moved, shifted
from features.firewall.counters import CounterEvidence
from features.firewall.facts import PoolFacts
from features.firewall.physics import physics
from features.firewall.shares import ShareEvidence
from features.quality import Rules, split
from features.staging import StagedFile


@dataclass(slots=True)
class Verdict:
    """What a log's evidence did to its staged rows: those quarantined, and those set right by rule."""

    quarantined: list[pl.DataFrame] = field(default_factory=list)
    corrected: Counter[str] = field(default_factory=Counter)
    offsets_us: dict[str, int] = field(default_factory=dict)


class Judge:
    """Nothing to judge beyond single rows."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def see(self, accepted: pl.DataFrame) -> None:
        """Takes in rows that kept the rules of rows."""

    def judge(self, staged: StagedFile, table: str) -> Verdict:
        """Judges the staged rows of the log as a whole, and takes out those that break a rule."""
        del staged, table
        return Verdict()


class RequestJudge(Judge):
    """Clocks of nodes, chains of hashes, and figures that are a part of the whole."""

    def __init__(self, facts: PoolFacts) -> None:
        super().__init__(physics(facts))
        self._clocks = ClockEvidence()
        self._chains = ChainEvidence()
        self._shares = ShareEvidence(facts)

    def see(self, accepted: pl.DataFrame) -> None:
        """Takes in rows as evidence."""
        self._clocks.see(accepted)
        self._chains.see(accepted)
        self._shares.see(accepted)

    def judge(self, staged: StagedFile, table: str) -> Verdict:
        """Sets clocks right, then judges the order of stages, chains, and what measures only a part."""
        verdict = Verdict(offsets_us=self._clocks.offsets_us())
        order = STAGE_ORDER if self._clocks.disorder or verdict.offsets_us else {}
        rules = {**order, **self._chains.rules(), **self._shares.rules()}
        if not rules:
            return verdict

        def change(rows: pl.DataFrame) -> pl.DataFrame:
            right = shifted(rows, verdict.offsets_us) if verdict.offsets_us else rows
            kept = split(table, right, rules)
            if kept.quarantined.height:
                verdict.quarantined.append(kept.quarantined)
            if verdict.offsets_us:
                verdict.corrected["clock_skew"] += moved(kept.accepted, verdict.offsets_us)
            return kept.accepted

        staged.rewrite(table, change)
        return verdict


def judge_of(table: str, facts: PoolFacts) -> Judge:
    """The judge of a log that fills `table`."""
    if table == "requests":
        return RequestJudge(facts)
    return Judge({"counter_went_back": CounterEvidence().go_on} if table == "node_loads" else {})
