"""The flags that adjust a plan reach it, through every command that takes one."""

import json

import pytest


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], {"length": "1d", "rate": 1000.0, "seed": 1}),
        (["--preset", "quick"], {"length": "2m", "rate": 1000.0, "seed": 1}),
        (["--hours", "0.5"], {"length": "30m", "rate": 1000.0, "seed": 1}),
        (["--minutes", "1.5", "--rate", "7", "--seed", "9"], {"length": "1m30s", "rate": 7.0, "seed": 9}),
        (["--lab", "local", "--proxy", "nginx"], {"length": "1d", "rate": 1000.0, "seed": 1}),
    ],
)
def test_flags_reach_the_plan(soak, args, expected):
    """As 'soak plan --json' shows it."""
    plan = json.loads(soak("plan", "--json", *args).stdout)["plan"]
    assert expected == {key: plan[key] for key in expected}


def test_series_can_be_given_more_than_once(soak):
    """Each --every counts."""
    result = soak("plan", "--json", "--every", "noop=1h", "--every", "reload=2h", "--preset", "day")
    series = json.loads(result.stdout)["plan"]["chaos"]["series"]
    assert {"reload": "2h", "backend-down": "15m", "cert-rotate": "30m", "noop": "1h"} == {
        s["fault"]: s["every"] for s in series
    }
