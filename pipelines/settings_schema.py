"""The JSON Schema of routecal.toml, for editors: data/schemas/settings.json."""

from __future__ import annotations

import json
from typing import Any

from pipelines.settings_file import SettingsFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def settings_schema() -> dict[str, Any]:
    """Schema of the parsed TOML; moments are strings, as JSON has no dates."""
    return {"$schema": DIALECT, **SettingsFile.model_json_schema(), "title": "routecal.toml"}


def settings_schema_text() -> str:
    """The file's content: sorted nowhere, so that keys stand in the order of the model."""
    return json.dumps(settings_schema(), indent=2, ensure_ascii=False) + "\n"
