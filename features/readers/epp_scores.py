"""`llm-d-epp-scores`: the llm-d endpoint picker's JSON log at debug level (zap; `-v=4`), rows of `decision_parts`.

Three messages tell a decision (pkg/epp/scheduling/scheduler_profile.go): "Calculated score" (a plugin's score of an
endpoint, before its weight), "Candidate pods for picking" (the weighted totals, plugin `total`) and "Completed running
picker plugin successfully" (what was picked, plugin `pick`). "Running scheduler profile" names the profile that the
request's next lines are of. All others are skipped as `other_message`. Times are those of the lines: whole seconds, if
the log is not configured otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import Batch, ReadContext, Reader
from features.readers.head import Head
from features.readers.lines import ROW, Form
from features.readers.picked_lines import Kind, Pick, read_picked, time_us

SCORE, TOTALS = "Calculated score", "Candidate pods for picking"
PICKED, PROFILE = "Completed running picker plugin successfully", "Running scheduler profile"
TOTAL, PICK = "total", "pick"
"""`plugin` of a weighted total and of a pick; plugins of the router are `<type>/<name>`."""
_IDS = ("x-request-id", "requestId", "request_id")
_ENDPOINT = pl.Struct(
    {"NamespacedName": pl.Struct({"Namespace": pl.String(), "Name": pl.String()}), "Name": pl.String()}
)
_SCORED = pl.Struct({"Endpoint": _ENDPOINT, **_ENDPOINT.to_schema(), "Score": pl.Float64()})
_SCORE_LINE: dict[str, Any] = {
    "ts": pl.String(),
    "msg": pl.String(),
    **dict.fromkeys(_IDS, pl.String()),
    "plugin": pl.String(),
    "endpoint": pl.String(),
    "score": pl.Float64(),
}
_OTHER_LINE: dict[str, Any] = {
    **_SCORE_LINE,
    "profile": pl.String(),
    "endpoints-weighted-score": pl.List(_SCORED),
    "pods-weighted-score": pl.List(_SCORED),
    "result": pl.Struct({"TargetEndpoints": pl.List(_SCORED)}),
}
_ODD_ID = "requestID"
_ODD_LINE = {name: dtype for name, dtype in (_OTHER_LINE | {_ODD_ID: pl.String()}).items() if name != "requestId"}
"""Names that differ in case only cannot be looked for at once."""
_LOOSE = frozenset({"endpoint"})


def _messages(*texts: str) -> tuple[str, ...]:
    return tuple(f'"msg":{blank}"{text}' for text in texts for blank in ("", " "))


_PICK = Pick(
    kinds=(
        Kind((f'"{_ODD_ID}"',), Form(_ODD_LINE, loose=_LOOSE)),
        Kind(_messages(f'{SCORE}"'), Form(_SCORE_LINE, loose=_LOOSE)),
        Kind(_messages(*(f'{text}"' for text in (TOTALS, PICKED, PROFILE))), Form(_OTHER_LINE, loose=_LOOSE)),
    ),
    marks=_messages(""),
)
_OPEN_REQUESTS = 10_000
"""Requests whose profile is remembered for the lines that follow: a decision takes milliseconds, a log has no end."""
_COLUMNS = ("request_id", "decided_at_us", "profile", "endpoint", "plugin", "score", "chosen", ROW)


def _sniff(head: Head) -> str:
    if not any("msg" in value and "ts" in value for value in head.objects):
        return ""
    if re.search(f'"msg": ?"(?:{SCORE}|{TOTALS}|{PICKED})"', head.text):
        return "lines are messages of llm-d's endpoint picker about scores"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    del context
    running = pl.DataFrame(schema={"request_id": pl.String, "profile": pl.String})
    for picked in read_picked(path, _PICK):
        lines = picked.frame.with_columns(
            pl.coalesce(*_IDS, _ODD_ID).alias("request_id"), time_us(picked.frame["ts"]).alias("decided_at_us")
        )
        lines, running = _with_profiles(lines, running)
        told = _those(lines, lines["msg"].is_in([SCORE, TOTALS, PICKED]))
        nameless = told["request_id"].null_count()
        told = _those(told, told["request_id"].is_not_null())
        frame = _scores(told)
        if (told["msg"] != SCORE).any():
            frame = pl.concat([frame, _totals(told), _picks(told)]).sort(ROW, maintain_order=True)
        skipped = {
            "other_message": picked.others + lines.height - told.height - nameless,
            "no_request_id": nameless,
            "no_endpoint": told.height - frame[ROW].n_unique(),
        }
        yield Batch(frame, picked.bad, skipped)


def _those(lines: pl.DataFrame, hold: pl.Series) -> pl.DataFrame:
    """Lines for which `hold` is true; all of them need no copy."""
    return lines if hold.all() else lines.filter(hold)


def _with_profiles(lines: pl.DataFrame, running: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Each line with the profile that its request last began, and those that the next lines may go on with."""
    if running.is_empty() and not (lines["msg"] == PROFILE).any():
        return lines.with_columns(pl.lit("unknown").alias("profile")), running
    before = running.with_columns(msg=pl.lit(""))
    both = pl.concat([before, lines], how="diagonal").with_columns(
        pl.when(pl.col("msg").is_in(["", PROFILE])).then("profile").forward_fill().over("request_id").alias("profile")
    )
    begun = both.with_row_index("at").drop_nulls("profile").group_by("request_id").agg(pl.col("profile", "at").last())
    after = begun.sort("at").tail(_OPEN_REQUESTS).drop("at")
    name = pl.col("profile").str.to_lowercase()
    kind = (
        pl.when(name.is_null())
        .then(pl.lit("unknown"))
        .when(name.str.contains("prefill"))
        .then(pl.lit("prefill"))
        .when(name.str.contains("decode"))
        .then(pl.lit("decode"))
        .when(name.str.contains("encode"))
        .then(pl.lit("encode"))
        .otherwise(pl.lit("colocated"))
    )
    return both.slice(before.height).with_columns(kind.alias("profile")), after


def _scores(told: pl.DataFrame) -> pl.DataFrame:
    """One row a plugin and endpoint. An endpoint is an object {name, namespace} or `namespace/name`."""
    text = pl.col("endpoint")
    name = pl.when(text.str.starts_with("{")).then(text.str.extract(r'"[nN]ame": ?"([^"]+)"')).otherwise(text)
    rows = _those(told, told["msg"] == SCORE)
    # Few endpoints have many scores each: their names are worked out once.
    names = rows.select(text.unique()).with_columns(node_of(name).alias("node"))
    node = text.replace_strict(names["endpoint"], names["node"], return_dtype=pl.String)
    return rows.select(
        *_COLUMNS[:3], node.alias("endpoint"), "plugin", "score", pl.lit(None, pl.Boolean).alias("chosen"), ROW
    )


def _totals(told: pl.DataFrame) -> pl.DataFrame:
    listed = pl.coalesce("endpoints-weighted-score", "pods-weighted-score")
    rows = told.filter(pl.col("msg") == TOTALS).select(*_COLUMNS[:3], listed.alias("scored"), ROW)
    return _scored(rows, TOTAL).with_columns(pl.lit(None, pl.Boolean).alias("chosen")).select(_COLUMNS)


def _picks(told: pl.DataFrame) -> pl.DataFrame:
    """The first target is the choice; what follows are fallbacks for a proxy that cannot reach it."""
    first = pl.col("result").struct.field("TargetEndpoints").list.head(1)
    rows = told.filter(pl.col("msg") == PICKED).select(*_COLUMNS[:3], first.alias("scored"), ROW)
    return _scored(rows, PICK).with_columns(pl.lit(value=True).alias("chosen")).select(_COLUMNS)


def _scored(rows: pl.DataFrame, plugin: str) -> pl.DataFrame:
    """One row an endpoint of the list `scored`."""
    one = pl.col("scored").struct
    inner = pl.col("Endpoint").struct
    return (
        rows.filter(pl.col("scored").list.len() > 0)
        .explode("scored")
        .with_columns(one.field("Endpoint"), one.field("NamespacedName"), one.field("Name"), one.field("Score"))
        .with_columns(
            node_of(
                pl.coalesce(
                    inner.field("NamespacedName").struct.field("Name"),
                    inner.field("Name"),
                    pl.col("NamespacedName").struct.field("Name"),
                    pl.col("Name"),
                )
            ).alias("endpoint"),
            pl.lit(plugin).alias("plugin"),
            pl.col("Score").alias("score"),
        )
    )


def node_of(name: pl.Expr) -> pl.Expr:
    """`<pod>/dp<rank>` of an endpoint's name: the namespace in front is dropped, `-rank-<n>` behind is the rank."""
    bare = name.str.replace(r"^.*/", "")
    return bare.str.replace(r"-rank-\d+$", "") + "/dp" + bare.str.extract(r"-rank-(\d+)$").fill_null("0")


READER = Reader(
    "llm-d-epp-scores", "decision_parts", "debug log of llm-d's endpoint picker: scores and picks", _sniff, _read
)
