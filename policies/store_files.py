"""JSON files of the policy store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from features.errors import PolicyError


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object. PolicyError if the file holds anything else."""
    try:
        value = json.loads(path.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise PolicyError("a file of the store must be JSON", value=str(error), place=str(path)) from error
    if not isinstance(value, dict):
        raise PolicyError("a file of the store must hold one object", value=type(value).__name__, place=str(path))
    return value
