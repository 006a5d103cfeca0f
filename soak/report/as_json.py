"""The report as JSON: the interface for other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def render_json(report: Mapping[str, Any]) -> str:
    """Return the report as indented JSON, ending in a newline. Raises ``ValueError`` for NaN, which is not JSON."""
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
