"""A proxy's own metrics, fetched and read as whoever scrapes them does."""

from __future__ import annotations

import asyncio
import re
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from soak.lab.local import LocalLab
from soak.proxies.base import MetricsFormat

DEADLINE_S = 30.0
_STUB_STATUS = re.compile(
    r"Active connections: \d+ \nserver accepts handled requests\n \d+ \d+ (\d+) \nReading: \d+ Writing: \d+ Waiting: \d+ \n"
)


async def page_of(lab: LocalLab) -> str:
    """Fetch the page, at most for so long."""

    def fetch() -> str:
        with urllib.request.urlopen(lab.proxy_address.metrics_url, timeout=DEADLINE_S) as answer:
            return str(answer.read().decode())

    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.to_thread(fetch)


def counted(page: str, form: MetricsFormat) -> dict[str, float]:
    """Return what a page says of requests, by name and labels."""
    if form is MetricsFormat.STUB_STATUS:
        found = _STUB_STATUS.fullmatch(page)
        assert found is not None, page
        return {"requests": float(found[1])}
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return {
        f"{s.name}{sorted(s.labels.items())}": s.value
        for s in samples
        if ("request" in s.name or "_rq_" in s.name) and "bucket" not in s.name
    }
