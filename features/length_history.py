"""What a router knows of a request's length when it arrives, from answers that had ended strictly before.

No row depends on a later event. Columns: LENGTH_HISTORY.
"""

from __future__ import annotations

import polars as pl

from features.sessions import lineage
from features.trailing import RECENT_ANSWERS, RECENT_LEAST

DELAY_ROWS = 60
"""Without finish times an answer counts as ended when the log's row this much later arrives."""
LENGTH_HISTORY = (
    "cached_frac", "session_turn", "previous_output", "session_mean_output", "hour", "recent_output", "ended_at_us",
)  # fmt: skip
UNFINISHED = ("cancelled", "rejected", "failed")
_HOUR_US, _DAY_US = 3_600_000_000, 86_400_000_000


def with_length_history(requests: pl.DataFrame) -> pl.DataFrame:
    """Requests sorted by arrival with the columns LENGTH_HISTORY; whole days, so that neighbours count.

    cached_frac: share of the prompt's blocks that came in an earlier request, what routers hope to find on some P;
    without hashes the logged hit / prompt, which is known a moment later than arrival. session_turn, previous_output,
    session_mean_output: requests of the session before this one, the last and the mean of its answers; null without a
    session. Sessions are `session_id`, else hash chains. hour: of the day, UTC, [0, 24). recent_output: geometric mean
    of the answers of its class and app that ended last. ended_at_us: when the answer was known, null = never.

    Without finish times answers end with the arrival of the row DELAY_ROWS later, and before the next turn.
    """
    rows = requests.sort("arrived_at_us", "request_id")
    chains = lineage(rows)
    arrived = pl.col("arrived_at_us")
    rows = rows.with_columns(
        _at=pl.int_range(pl.len()),
        _answer=pl.when(~_is_unfinished()).then(pl.col("output_tokens")).cast(pl.Float64),
        _group=length_group(),
        _session=pl.coalesce(
            pl.format("s{}", "session_id"), pl.when(pl.lit(chains.session >= 0)).then(pl.format("h{}", chains.session))
        )
        if rows.height
        else pl.lit(None, pl.String),
        cached_frac=pl.coalesce(
            pl.Series(chains.seen_frac, dtype=pl.Float64).fill_nan(None),
            (pl.col("prefill_cached_tokens") / pl.col("prompt_tokens")).cast(pl.Float64),
        ),
        # polars divides by a constant in the last bit differently at the end of a column.
        hour=pl.Series(rows["arrived_at_us"].to_numpy() % _DAY_US / _HOUR_US),
        ended_at_us=pl.coalesce("finished_at_us", arrived.shift(-DELAY_ROWS)),
    )
    rows = _recent(rows)
    rows = _of_session(rows)
    return rows.drop("_at", "_answer", "_group", "_session")


def length_group() -> pl.Expr:
    """The group that a request's answer counts to: `<class>/<app>`, or `<class>` without an app."""
    of_class = pl.col("slo_class").fill_null("*")
    return pl.when(pl.col("app").is_null()).then(of_class).otherwise(pl.concat_str(of_class, pl.lit("/"), "app"))


def _is_unfinished() -> pl.Expr:
    return pl.col("finish_reason").is_in(list(UNFINISHED)).fill_null(value=False)


def _recent(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds recent_output: an exponentially weighted mean of log1p(answer) over the group's ends before the arrival."""
    ends = (
        rows.filter(pl.col("_answer").is_not_null() & pl.col("ended_at_us").is_not_null())
        .sort("ended_at_us", "_at")
        .select(
            "_group",
            _ended="ended_at_us",
            recent_output=pl.col("_answer")
            .log1p()
            .ewm_mean(alpha=1.0 / RECENT_ANSWERS, adjust=True, min_samples=RECENT_LEAST)
            .over("_group")
            .exp()
            - 1.0,
        )
    )
    return rows.join_asof(
        ends,
        left_on="arrived_at_us",
        right_on="_ended",
        by="_group",
        strategy="backward",
        allow_exact_matches=False,
        check_sortedness=False,
    ).drop("_ended")


def _of_session(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds session_turn, previous_output and session_mean_output."""
    inside = rows.filter(pl.col("_session").is_not_null())
    arrivals = inside.select(
        "_session", "_at", time="arrived_at_us", kind=pl.lit(0, pl.Int8), answer=pl.lit(None, pl.Float64)
    )
    # Without a finish time: the next turn of a session shows that the answer had ended.
    ends = inside.filter(pl.col("_answer").is_not_null()).select(
        "_session",
        "_at",
        time=pl.coalesce("finished_at_us", "arrived_at_us"),
        kind=pl.lit(1, pl.Int8),
        answer="_answer",
    )
    # An end at the very time of an arrival comes after it: strictly before.
    events = pl.concat([arrivals, ends]).sort("_session", "time", "kind", "_at")
    answer = pl.col("answer")
    known = events.select(
        "_at",
        "kind",
        session_turn=(pl.col("kind") == 0).cast(pl.Int64).cum_sum().over("_session") - 1,
        previous_output=answer.forward_fill().over("_session"),
        total=answer.fill_null(0.0).cum_sum().over("_session"),
        answers=(pl.col("kind") == 1).cast(pl.Int64).cum_sum().over("_session"),
    ).filter(pl.col("kind") == 0)
    found = known.select(
        "_at",
        "session_turn",
        "previous_output",
        session_mean_output=pl.when(pl.col("answers") > 0).then(pl.col("total") / pl.col("answers")),
    )
    return rows.join(found, on="_at", how="left", maintain_order="left")
