"""Which metrics a PromQL expression uses, by its text: names that begin with ``soak_``, recorded ones, Prometheus' own."""

import re
from collections.abc import Collection

from soak.metric_catalog import CATALOG

PROMETHEUS_OWN = {"up", "scrape_duration_seconds"}
EXPORTED = {s.name for s in CATALOG if s.kind != "histogram"} | {
    f"{s.name}_{part}" for s in CATALOG if s.kind == "histogram" for part in ("bucket", "sum", "count")
}


def metrics_of(expr: str) -> set[str]:
    """Return the names of the series that the expression selects."""
    bare = re.sub(r'"[^"]*"', '""', expr)
    selected = set(re.findall(r"([a-zA-Z_:][\w:]*)\s*\{", bare))
    return selected | set(re.findall(r"\b(?:soak_|job_instance:)[\w:]+", bare))


def unknown_metrics(expr: str, recorded: Collection[str] = ()) -> set[str]:
    """Return the names that nobody exports nor records."""
    return metrics_of(expr) - EXPORTED - PROMETHEUS_OWN - set(recorded)
