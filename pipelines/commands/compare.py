"""`routecal compare`: the live effect of a policy version, and what was predicted of it."""

from __future__ import annotations

import tempfile
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from features.errors import SettingsError
from pipelines.commands.options import AsJson, LakePath, SettingsPath, iso_day, lake_root, settings_if_any
from pipelines.console import emit, say

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN_STRATA = 8


def compare(
    *,
    pool_name: Annotated[str, typer.Option("--pool", metavar="P", help="The pool.")],
    days: Annotated[str, typer.Option("--days", metavar="A..B", help="UTC days of arrival, both ends included.")],
    by: Annotated[
        str, typer.Option("--by", help="policy_version, router_id, prefill_node, decode_node, slo_class.")
    ] = "policy_version",
    reference: Annotated[
        str | None, typer.Option("--reference", help="What the others are compared with; default: seen first.")
    ] = None,
    lake: LakePath = None,
    settings_path: SettingsPath = None,
    as_json: AsJson = False,
) -> None:
    """Compare what was served under each version: targets met, TTFT, TPOT, matched by hour × class × prompt size."""
    from features.diagnosis.compare import MEASURES
    from features.diagnosis.compare import compare as run
    from features.diagnosis.facts import DiagnosisFacts
    from features.lake import Lake
    from pipelines.night.diagnosis import pool_facts
    from pipelines.night.predicted import with_prediction
    from policies.store import PolicyStore

    start, end = _span(days)
    settings = settings_if_any(settings_path)
    known = settings is not None and (settings_path is not None or pool_name in settings.pools)
    held = Lake(lake_root(lake, settings))
    span = [day for day in held.days("requests", pool_name) if start <= day <= end]
    last = span[-1] if span else end
    facts = pool_facts(settings.pool(pool_name), last) if settings is not None and known else DiagnosisFacts()
    with tempfile.TemporaryDirectory(prefix="routecal-compare-") as spill:
        found = run(held, span, pool_name, by, facts=facts, spill=Path(spill), reference=reference)
    store = None if settings is None else PolicyStore(settings.storage.store, pool_name)
    shown = [with_prediction(one, store) for one in found]
    if not shown:
        say(f"all requests of these days have the same {by}: there is nothing to compare")
    for one in shown:
        _tell(one, MEASURES)
    if as_json:
        emit({"pool": pool_name, "days": [day.isoformat() for day in span], "by": by, "comparisons": shown})


def _span(text: str) -> tuple[date, date]:
    first, dots, last = text.partition("..")
    start = iso_day("--days", first)
    end = iso_day("--days", last) if dots else start
    if end < start:
        raise SettingsError("--days must not end before it begins", value=text)
    return start, end


def _tell(one: Mapping[str, Any], measures: Mapping[str, str]) -> None:
    from pipelines.night.predicted import prediction_text

    say(f"{one['value']} ({one['value_requests']} requests) against {one['reference']} ({one['reference_requests']})")
    for effect in one["effects"]:
        interval = "no interval" if effect["low"] is None else f"[{effect['low']:+.4g}, {effect['high']:+.4g}]"
        say(
            f"  {measures[effect['measure']]}: {effect['value_mean']:.4g} against {effect['reference_mean']:.4g}, "
            f"{effect['difference']:+.4g} {interval}; {effect['value_n']} and {effect['reference_n']} requests in "
            f"{effect['strata']} strata"
        )
    say(f"  matched: {one['matched_frac']:.0%} of the requests; served at the same time: {one['together_frac']:.0%}")
    for stratum in one["unmatched"][:_SHOWN_STRATA]:
        say(
            f"  without a match: {stratum['requests']} of {stratum['side']} at {stratum['hour']:02d}h, "
            f"{stratum['slo_class']}, {stratum['prompt_bucket']} tokens"
        )
    if len(one["unmatched"]) > _SHOWN_STRATA:
        say(f"  and {len(one['unmatched']) - _SHOWN_STRATA} strata more, see --json")
    if one["predicted"] is not None:
        say(f"  {prediction_text(one['predicted'])}")
    for note in one["notes"]:
        say(f"  {note}")
