"""What a person sees: the picture, the plain lines, and that neither can hurt the run."""

import io
import os
import pty
from dataclasses import replace

import pytest
from rich.console import Console

from soak.liveview import (
    EVENTS_SHOWN,
    NullView,
    PlainView,
    RichView,
    event_text,
    open_view,
    plain_line,
    render,
)
from soak.model import Event
from tests.soak.web.fakes import status_of_a_run


class Ticks:
    """A clock that the test moves."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def drawn(status, events=(), width=120, height=40) -> str:
    out = io.StringIO()
    Console(file=out, width=width, height=height).print(render(status, tuple(events), width, height))
    return out.getvalue()


def terminal() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=True, width=100, height=30), out


def event(name="origin.died", at_s=61.0, **data) -> Event:
    return Event(at_s, 0.0, name, data)


def test_the_picture_shows_what_matters():
    """Progress, rate, latency, failures by outcome, the active and the next fault, what is done."""
    text = drawn(status_of_a_run(), ["00:01:00  hello"])
    for words in (
        "nginx 1.31.3 · local lab · 1,000 req/s · seed 7",
        "51%  1m2s of 2m",
        "99.998%   1,000 req/s now · 61,499 sent · 0 dropped · 1 missed",
        "p50 0.4 ms · p99 2.1 ms · lag p99 0.20 ms",
        "4 stale_reuse",
        "#3 backend-down b2 for 2 s",
        "reload proxy in 18s",
        "reload: 2 verified",
        "http://127.0.0.1:9000/metrics",
        "hello",
    ):
        assert words in text


def test_where_the_proxy_counts_for_itself_is_shown():
    """For whoever wants to look there, too; nothing where it does not."""
    status = replace(status_of_a_run(), proxy_metrics_url="http://127.0.0.1:3/metrics")
    assert "counts for itself on http://127.0.0.1:3/metrics" in drawn(status)
    assert "counts for itself" not in drawn(status_of_a_run())


def test_quiet_is_said_in_words():
    """No fault, no failure, nothing next: none, not an empty cell."""
    text = drawn(
        status_of_a_run(active_faults=[], next_fault=None, faults_done={}, outcomes={"ok": 5}, phase="steady")
    )
    for words in ("none (steady)", "next       none", "no fault yet", "failures   none"):
        assert words in text


@pytest.mark.parametrize(("flag", "word"), [("dirty", "DIRTY"), ("guarded", "GUARDED")])
def test_trouble_stands_in_the_headline(flag, word):
    """Where nobody can miss it."""
    assert word in drawn(status_of_a_run(**{flag: True}), width=200)


@pytest.mark.parametrize(("width", "height"), [(20, 8), (40, 10), (80, 24)])
def test_a_small_terminal_is_never_overflowed(width, height):
    """No line is longer, and no more lines are drawn, than there is room for."""
    lines = drawn(status_of_a_run(), ["event " * 20] * 10, width, height).splitlines()
    assert max(map(len, lines)) <= width
    if height >= 24:
        assert len(lines) <= height


def test_a_run_of_unknown_length_or_with_no_slot_yet_draws():
    """The first second of a run."""
    text = drawn(status_of_a_run(length_s=0.0, scheduled=0, sent=0))
    assert "100.000%" in text


def test_the_picture_is_drawn_at_most_four_times_a_second():
    """However often the daemon calls."""
    now = Ticks()
    console, out = terminal()
    view = RichView(console, now=now)
    for _ in range(10):
        view.update(status_of_a_run())
        view.event(event())
    assert 1 == out.getvalue().count("rate held")
    now.now += 0.25
    view.update(status_of_a_run())
    assert 2 == out.getvalue().count("rate held")
    view.close()
    at_close = out.getvalue()
    view.close()
    now.now += 1.0
    view.update(status_of_a_run())
    assert at_close == out.getvalue()


def test_the_last_events_stand_below_and_old_ones_go():
    """Too frequent ones are not told."""
    now = Ticks()
    console, out = terminal()
    view = RichView(console, now=now)
    for n in range(EVENTS_SHOWN + 1):
        view.event(event(name=f"event.{n}"))
    view.event(event(name="load.second"))
    view.update(status_of_a_run())
    view.close()
    assert "event.0" not in out.getvalue()
    assert "event.1" in out.getvalue()
    assert "load.second" not in out.getvalue()


def test_a_terminal_that_went_away_does_not_end_the_run():
    """Writes fail, the view goes quiet."""

    class Gone(io.StringIO):
        broken = False

        def write(self, text):
            if self.broken:
                raise OSError(5, "Input/output error")
            return super().write(text)

    out = Gone()
    view = RichView(Console(file=out, force_terminal=True))
    out.broken = True
    view.update(status_of_a_run())
    view.update(status_of_a_run())
    view.close()


def test_plain_lines_come_every_ten_seconds_and_at_each_change_of_state():
    """A log stays readable after 24 hours."""
    now = Ticks()
    out = io.StringIO()
    view = PlainView(out, now=now)
    for _ in range(21):
        view.update(status_of_a_run())
        now.now += 1.0
    view.update(status_of_a_run(state="stopping"))
    lines = out.getvalue().splitlines()
    assert ["running"] * 3 + ["stopping"] == [line.split()[1] for line in lines]


def test_plain_events_are_told_at_once_until_closed():
    """Those that are worth it."""
    out = io.StringIO()
    view = PlainView(out, now=Ticks())
    view.event(event(origin="b2"))
    view.event(event(name="load.second"))
    view.close()
    view.event(event(origin="b3"))
    assert "00:01:01  origin.died origin=b2\n" == out.getvalue()


def test_a_closed_pipe_makes_plain_lines_stop():
    """As 'soak start 2>&1 | head' does."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    stream = os.fdopen(write_end, "w")
    view = PlainView(stream, now=Ticks())
    view.update(status_of_a_run())
    view.event(event())
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_plain_line_says_it_all():
    """One line, greppable."""
    assert plain_line(status_of_a_run()) == (
        "00:01:01  running | 1,000 req/s | held 99.998% | p50 0.4 ms p99 2.1 ms | failed 4 | "
        "active #3 backend-down b2 for 2 s | next reload proxy in 18s"
    )


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("origin.died", {"origin": "b2", "code": None}, "origin.died origin=b2"),
        ("x", {"a": 1.50, "b": [], "c": "l1\nl2"}, "x a=1.5 c=l1 l2"),
        ("x", {"a": "v" * 100}, f"x a={'v' * 57}..."),
        (
            "fault.injected",
            {"fault": 3, "kind": "backend-down", "target": "b2", "injected_s": 4.0},
            "#3 backend-down b2 injected",
        ),
        (
            "fault.finished",
            {"fault": 3, "kind": "backend-down", "target": "b2", "outcome": "verified", "recovery_s": 1.25},
            "#3 backend-down b2 finished: verified, recovered in 1.25 s",
        ),
        (
            "fault.skipped",
            {"fault": 3, "kind": "reload", "outcome": "skipped", "reason": "too late"},
            "#3 reload skipped: skipped, too late",
        ),
    ],
)
def test_an_event_reads_as_words(name, data, text):
    """Faults as sentences, others as key=value."""
    assert text == event_text(name, data)


def test_the_view_fits_the_stream(monkeypatch):
    """A picture on a terminal, plain lines on a pipe and on a dumb terminal."""
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as stream:
        view = open_view(stream)
        assert isinstance(view, RichView)
        view.close()
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(open_view(stream), PlainView)
    os.close(master)
    assert isinstance(open_view(io.StringIO()), PlainView)


def test_the_null_view_shows_nothing(capsys):
    """Whatever it is told."""
    view = NullView()
    view.update(status_of_a_run())
    view.event(event())
    view.close()
    assert ("", "") == capsys.readouterr()
