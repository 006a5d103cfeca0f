"""What a person sees while a run is in the foreground: a live picture on a terminal, plain lines anywhere else.

Draws ``Status`` and ``Event`` only, on stderr, so that stdout stays free for the report. Never slows the daemon: ``update``
keeps the newest status, drawing happens at most four times a second, and a terminal that went away is not an error.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from soak.model import Event
from soak.plan import format_duration
from soak.status import Status

REFRESH_S = 0.25
PLAIN_EVERY_S = 10.0
EVENTS_SHOWN = 6
_BAR = 24

QUIET_EVENTS = frozenset({"host.starved", "load.priority", "load.second", "probe.ok", "proxy.workers_known"})
"""Events that come too often to be told."""


class View(Protocol):
    """Where the daemon shows a run. No method raises or blocks."""

    def update(self, status: Status) -> None:
        """Show the newest status. Called about once a second."""
        ...

    def event(self, event: Event) -> None:
        """Tell something that happened."""
        ...

    def close(self) -> None:
        """Give the terminal back. Idempotent."""
        ...


class NullView:
    """Shows nothing (a detached daemon, ``--json`` without a terminal)."""

    def update(self, status: Status) -> None:
        """Show nothing."""

    def event(self, event: Event) -> None:
        """Tell nothing."""

    def close(self) -> None:
        """Nothing to give back."""


def open_view(stream: TextIO | None = None) -> View:
    """Return the live picture when the stream (default: stderr) is a terminal, else plain lines."""
    stream = stream or sys.stderr
    console = Console(file=stream)
    return RichView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView(stream)


class PlainView:
    """A line every ten seconds and one for each event worth telling; for logs, pipes and CI."""

    def __init__(
        self, stream: TextIO, *, now: Callable[[], float] = monotonic, every_s: float = PLAIN_EVERY_S
    ) -> None:
        self._stream = stream
        self._now = now
        self._every_s = every_s
        self._last = float("-inf")
        self._state = ""
        self._closed = False

    def update(self, status: Status) -> None:
        """Print a line when the state changed or the last line is old enough."""
        if status.state == self._state and self._now() - self._last < self._every_s:
            return
        self._last, self._state = self._now(), status.state
        self._print(plain_line(status))

    def event(self, event: Event) -> None:
        """Print one line."""
        if event.name not in QUIET_EVENTS:
            self._print(f"{_at(event.at_s)}  {event_text(event.name, event.data)}")

    def close(self) -> None:
        """Print nothing more."""
        self._closed = True

    def _print(self, text: str) -> None:
        if self._closed:
            return
        try:
            self._stream.write(f"{text}\n")
            self._stream.flush()
        except (OSError, ValueError):  # the reader went away: the run goes on
            self._closed = True


class RichView:
    """The live picture."""

    def __init__(
        self, console: Console, *, now: Callable[[], float] = monotonic, refresh_s: float = REFRESH_S
    ) -> None:
        self._console = console
        self._now = now
        self._refresh_s = refresh_s
        self._drawn = float("-inf")
        self._status: Status | None = None
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._closed = False
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._safely(self._live.start)

    def update(self, status: Status) -> None:
        """Keep the newest status; draw when the last picture is old enough."""
        self._status = status
        self._draw()

    def event(self, event: Event) -> None:
        """Add to the last events."""
        if event.name not in QUIET_EVENTS:
            self._events.append(f"{_at(event.at_s)}  {event_text(event.name, event.data)}")
            self._draw()

    def close(self) -> None:
        """Remove the picture: what stays on the screen is the report."""
        if not self._closed:
            self._safely(self._live.stop)
            self._closed = True

    def _draw(self) -> None:
        if self._closed or self._status is None or self._now() - self._drawn < self._refresh_s:
            return
        self._drawn = self._now()
        picture = render(self._status, tuple(self._events), self._console.width, self._console.height)
        self._safely(lambda: self._live.update(picture, refresh=True))

    def _safely(self, act: Callable[[], None]) -> None:
        """A terminal that was closed must not end the run."""
        try:
            act()
        except (OSError, ValueError):
            self._closed = True
            with contextlib.suppress(OSError, ValueError):
                self._live.stop()


def render(status: Status, events: tuple[str, ...], width: int, height: int) -> RenderableType:
    """Return the picture for a terminal of this size; what matters most comes first, the rest is cut."""
    rows: list[RenderableType] = [_headline(status), _progress(status, width), Text("")]
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="ellipsis", no_wrap=True)
    for name, text in _facts(status):
        facts.add_row(name, text)
    rows.append(facts)
    room = max(0, height - len(_facts(status)) - 6)
    if room and events:
        rows += [Text(""), *(Text(line, no_wrap=True, overflow="ellipsis") for line in events[-room:])]
    return Group(*rows)


def _headline(s: Status) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{s.proxy} {s.proxy_version}".strip(), style="bold")
    text.append(f" · {s.lab} lab · {s.rate_target:,.0f} req/s · seed {s.seed} · run {s.run_id} · {s.state}")
    if s.dirty:
        text.append(" · DIRTY: a revert failed, no more faults", style="bold red")
    elif s.guarded:
        text.append(" · GUARDED: chaos is stopped", style="bold yellow")
    return text


def _progress(s: Status, width: int) -> Text:
    share = min(1.0, max(0.0, s.elapsed_s / s.length_s)) if s.length_s else 0.0
    bar = max(8, min(_BAR, width - 40))
    full = round(share * bar)
    return Text(
        f"{'█' * full}{'░' * (bar - full)} {share:.0%}  {_span(s.elapsed_s)} of {_span(s.length_s)}",
        no_wrap=True,
        overflow="ellipsis",
    )


def _facts(s: Status) -> list[tuple[str, Text]]:
    held = s.sent / s.scheduled if s.scheduled else 1.0
    style = "" if held >= 0.999 else "red"
    failed = ", ".join(f"{n:,} {name}" for name, n in s.outcomes.items() if n and name != "ok") or "none"
    facts = [
        (
            "rate held",
            Text(
                f"{held:.3%}   {s.rate_now:,.0f} req/s now · {s.sent:,} sent · {s.dropped:,} dropped · {s.missed:,} missed",
                style=style,
            ),
        ),
        (
            "latency",
            Text(
                f"p50 {s.p50_ms:.1f} ms · p99 {s.p99_ms:.1f} ms · lag p99 {s.lag_p99_ms:.2f} ms (last 10 s)"
            ),
        ),
        ("failures", Text(failed, style="yellow" if s.failed else "green")),
        ("active", Text(_active(s), style="magenta" if s.active_faults else "")),
        ("next", Text(_next(s))),
        ("done", Text(_done(s))),
    ]
    if s.http_url:
        facts.append(("pages", Text(f"{s.http_url}/metrics")))
    if s.proxy_metrics_url:
        facts.append((s.proxy, Text(f"counts for itself on {s.proxy_metrics_url}")))
    return facts


def _active(s: Status) -> str:
    if not s.active_faults:
        return f"none ({s.phase})"
    return ", ".join(_fault(f, s.elapsed_s) for f in s.active_faults)


def _fault(fault: Mapping[str, Any], now_s: float) -> str:
    since = fault.get("injected_s")
    age = f" for {max(0.0, now_s - since):.0f} s" if isinstance(since, int | float) else ""
    return f"#{fault.get('id')} {fault.get('kind')} {fault.get('target') or ''}".rstrip() + age


def _next(s: Status) -> str:
    if not s.next_fault:
        return "none"
    target = s.next_fault.get("target")
    at_s = float(s.next_fault.get("at_s") or 0.0)
    return (
        f"{s.next_fault.get('kind')}{f' {target}' if target else ''} in {_span(max(0.0, at_s - s.elapsed_s))}"
    )


def _done(s: Status) -> str:
    parts = []
    for kind, outcomes in sorted(s.faults_done.items()):
        counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items()) if n)
        parts.append(f"{kind}: {counts}")
    return " · ".join(parts) or "no fault yet"


def plain_line(s: Status) -> str:
    """Return the state of a run as one line."""
    held = s.sent / s.scheduled if s.scheduled else 1.0
    parts = [
        f"{_at(s.elapsed_s)}  {s.state}",
        f"{s.rate_now:,.0f} req/s",
        f"held {held:.3%}",
        f"p50 {s.p50_ms:.1f} ms p99 {s.p99_ms:.1f} ms",
        f"failed {s.failed:,}",
        f"active {_active(s)}",
        f"next {_next(s)}",
    ]
    return " | ".join(parts)


def event_text(name: str, data: Mapping[str, Any]) -> str:
    """Return an event as words: its name and the short values of its data."""
    if name.startswith("fault.") and "kind" in data:
        return _fault_text(name, data)
    words = [f"{key}={_short(value)}" for key, value in data.items() if value not in (None, "", [], {})]
    return " ".join([name, *words])[:200]


def _fault_text(name: str, data: Mapping[str, Any]) -> str:
    """Return ``#3 backend-down b2 finished: verified, recovered in 1.2 s``; the instants stand in the first column."""
    what = f"#{data.get('fault', '')} {data['kind']} {data.get('target') or ''}".rstrip()
    words = [str(data[key]) for key in ("outcome", "reason") if data.get(key)]
    if data.get("outcome") and isinstance(data.get("recovery_s"), int | float):
        words.insert(1, f"recovered in {_short(float(data['recovery_s']))} s")
    text = f"{what} {name.removeprefix('fault.')}"
    return f"{text}: {', '.join(words)}"[:200] if words else text


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".") or "0"
    text = str(value).replace("\n", " ")
    return text if len(text) <= 60 else f"{text[:57]}..."


def _at(at_s: float) -> str:
    hours, rest = divmod(max(0, int(at_s)), 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def _span(seconds: float) -> str:
    return format_duration(float(round(seconds)))
