"""The run's log: JSON lines, bounded, silent on the terminal."""

import gc
import json
import logging
import sys
import threading

import pytest
import structlog

from soak.log import RunLog, get_logger


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def log_file(tmp_path):
    return tmp_path / "soak.log"


def test_event_is_one_json_line_with_its_data(log_file):
    """An event's name, level, logger and keywords are in one line of JSON."""
    with RunLog(log_file):
        get_logger("soak.daemon").info("fault.injected", fault="reload", at_s=1.5)

    (line,) = lines_of(log_file)
    assert line.pop("timestamp").endswith("Z")
    assert {
        "event": "fault.injected",
        "level": "info",
        "logger": "soak.daemon",
        "fault": "reload",
        "at_s": 1.5,
    } == line


def test_rooms_that_know_only_structlog_are_logged(log_file):
    """Chaos may not import soak, but its events reach the same file."""
    with RunLog(log_file):
        structlog.get_logger("chaos.runner").warning("fault.skipped", reason="no healthy backend")

    assert ["fault.skipped"] == [line["event"] for line in lines_of(log_file)]


def test_library_warnings_are_in_and_their_chatter_is_not(log_file):
    """What libraries say counts from WARNING up."""
    with RunLog(log_file):
        logging.getLogger("apscheduler.scheduler").info("Added job")
        logging.getLogger("apscheduler.scheduler").warning("Run time of job was missed")

    (line,) = lines_of(log_file)
    assert ("Run time of job was missed", "warning", "apscheduler.scheduler") == (
        line["event"],
        line["level"],
        line["logger"],
    )


def test_nothing_reaches_the_terminal(log_file, capfd):
    """Neither an exception, nor a thread that dies, nor an unraisable error prints a traceback."""

    class Broken:
        def __del__(self):
            raise ValueError("in del")

    def die():
        raise ValueError("in thread")

    with RunLog(log_file):
        try:
            int("in code")
        except ValueError:
            get_logger("soak.daemon").exception("daemon.failed")
        thread = threading.Thread(target=die, name="doomed")
        thread.start()
        thread.join()
        broken = Broken()
        del broken
        gc.collect()

    assert ("", "") == tuple(capfd.readouterr())
    assert ["daemon.failed", "thread.died", "python.unraisable"] == [x["event"] for x in lines_of(log_file)]
    assert all("Traceback" in x["exception"] for x in lines_of(log_file))


def test_warnings_without_a_log_stay_off_the_terminal(capfd):
    """With no log open, the project's events are dropped: logging's last resort does not print them."""
    get_logger("soak.daemon").warning("daemon.lonely")

    assert ("", "") == tuple(capfd.readouterr())


def test_log_is_bounded_on_disk(log_file):
    """However much is logged, two files of the given size are all there is."""
    with RunLog(log_file, max_bytes=2000) as log:
        for i in range(200):
            get_logger("soak.daemon").info("load.second", second=i, filler="x" * 50)

    assert ["soak.log", "soak.log.1"] == sorted(p.name for p in log_file.parent.iterdir())
    assert all(p.stat().st_size <= 2000 for p in log_file.parent.iterdir())
    assert 199 == lines_of(log_file)[-1]["second"]
    assert 0 == log.lost


def test_full_disk_costs_lines_and_nothing_else(log_file, capfd):
    """A line that cannot be written is counted; the caller never notices."""
    log_file.symlink_to("/dev/full")
    with RunLog(log_file, max_bytes=0) as log:
        get_logger("soak.daemon").info("load.second", second=1)

    assert 2 == log.lost, "once at the write, once for what was buffered at close"
    assert ("", "") == tuple(capfd.readouterr())


def test_what_json_does_not_know_is_logged_as_its_repr(log_file):
    """A value of an odd type does not lose the event."""
    with RunLog(log_file):
        get_logger("soak.daemon").info("odd.value", value={1}, path=log_file)

    (line,) = lines_of(log_file)
    assert ("{1}", repr(log_file)) == (line["value"], line["path"])


def test_close_puts_everything_back(log_file):
    """After close, once or twice, hooks and root handlers are what they were."""
    before = (sys.unraisablehook, threading.excepthook, logging.root.level, list(logging.root.handlers))
    log = RunLog(log_file)
    log.close()
    log.close()

    assert before == (
        sys.unraisablehook,
        threading.excepthook,
        logging.root.level,
        list(logging.root.handlers),
    )
