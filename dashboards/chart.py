"""The vocabulary of the dashboard: rows of charts, each with its queries and with what their data must look like."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

Kind = Literal["stat", "lines", "stacked", "heatmap", "timeline"]


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query.

    ``{I}`` in it stands for the selector of the chosen instance, ``{I, x="y"}`` for that and more. ``low``, ``high`` and
    ``peak`` say what is plausible for a short healthy run: each sample lies within low and high, the largest reaches peak.
    """

    text: str
    legend: str
    low: float = 0.0
    high: float = inf
    peak: float = 0.0

    @property
    def expr(self) -> str:
        """The query with its selectors, as Grafana gets it."""
        return self.text.replace("{I", '{instance="$instance"')


@dataclass(frozen=True, slots=True)
class Chart:
    """One panel. ``unit`` is Grafana's id of a unit; ``steps`` are thresholds, (from, colour), the first from below.

    ``width`` and ``height`` are in cells of Grafana's grid, which is 24 wide. ``states`` name the values 0, 1, ...
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = "lines"
    width: int = 8
    height: int = 8
    steps: tuple[tuple[float | None, str], ...] = ()
    states: tuple[tuple[str, str], ...] = ()
    names: bool = False
    """Show a stat's series names in place of its values."""


@dataclass(frozen=True, slots=True)
class Row:
    """Charts under one heading."""

    title: str
    charts: tuple[Chart, ...]
