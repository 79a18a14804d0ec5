"""The key under which names of tenants and sessions are hashed, from the environment."""

from __future__ import annotations

import os

from features.privacy import KEY_VARIABLE, check_key


def name_key() -> bytes | None:
    """The environment's key; None = the lake's own, drawn at its first use.

    Raises SettingsError if it is too short.
    """
    text = os.environ.get(KEY_VARIABLE)
    return check_key(text.encode()) if text else None
