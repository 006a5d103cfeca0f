"""A snapshot of a run in good health, for the tests of the doors."""

from soak.model import Outcome
from soak.status import Status


def status_of_a_run(**changes: object) -> Status:
    """Return a status as the daemon would make it; ``changes`` replace fields."""
    values = {
        "run_id": "2026-12-01T08-00-00-nginx",
        "state": "running",
        "proxy": "nginx",
        "proxy_version": "1.31.3",
        "lab": "local",
        "pid": 4711,
        "started_at": "2026-12-01T08:00:00Z",
        "elapsed_s": 61.5,
        "length_s": 120.0,
        "seed": 7,
        "rate_target": 1000.0,
        "rate_now": 999.8,
        "scheduled": 61_500,
        "sent": 61_499,
        "ok": 61_490,
        "failed": 4,
        "dropped": 0,
        "missed": 1,
        "in_flight": 5,
        "outcomes": {Outcome.OK.value: 61_490, Outcome.STALE_REUSE.value: 4},
        "p50_ms": 0.4,
        "p99_ms": 2.1,
        "lag_p99_ms": 0.2,
        "phase": "fault",
        "active_faults": [{"id": 3, "kind": "backend-down", "target": "b2", "injected_s": 60.0}],
        "next_fault": {"kind": "reload", "target": "proxy", "at_s": 80.0},
        "faults_done": {"reload": {"verified": 2}},
        "last_events": [{"at_s": 60.0, "name": "fault.injected", "data": {"fault": "backend-down"}}],
        "proxy_url": "https://127.0.0.1:8443",
        "http_url": "http://127.0.0.1:9000",
    }
    return Status.from_json({**values, **changes})
