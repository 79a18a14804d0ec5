"""Names of classes, knobs and arms as parts of MLflow's keys."""

from __future__ import annotations

import re

_FORBIDDEN = re.compile(r"[^0-9A-Za-z_\-. /]")


def clean(name: str) -> str:
    """A name in characters that MLflow takes, and a path that is its own normal form, which MLflow demands too."""
    parts = _FORBIDDEN.sub("_", name).split("/")
    return "/".join(part if part.strip(".") else "_" for part in parts)
