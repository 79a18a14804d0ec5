"""Trailing statistics of answers that logs and routers compute alike. No imports: routers read this too."""

RECENT_ANSWERS = 200
"""The mean of recent answers weighs the answer before the last k ones by (1 - 1/this)^k."""
RECENT_LEAST = 10
"""Answers that a group must have had before its mean counts as known."""
