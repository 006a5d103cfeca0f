"""The report: one dict from the store (``build_report``), and renderers that know nothing but that dict."""

from soak.report.as_json import render_json
from soak.report.build import build_report
from soak.report.evidence import build_evidence, render_evidence
from soak.report.markdown import render_markdown
from soak.report.text import render_text

__all__ = [
    "build_evidence",
    "build_report",
    "render_evidence",
    "render_json",
    "render_markdown",
    "render_text",
]
