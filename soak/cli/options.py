"""Options that several commands share: which plan, and what adjusts it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from soak.cli.arguments import ProxyOption
from soak.errors import PlanError
from soak.planfile import PRESETS, Overrides, load_plan

F = TypeVar("F", bound=Callable[..., Any])


def plan_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add PLAN and the flags that adjust it; the command gets the finished ``plan``."""

    @wraps(command)
    def with_plan(
        *,
        plan_file: Path | None,
        preset: str | None,
        hours: float | None,
        minutes: float | None,
        rate: float | None,
        proxy: str | None,
        lab: str | None,
        every: tuple[str, ...],
        seed: int | None,
        proxy_image: str | None,
        origin_image: str | None,
        **rest: Any,
    ) -> int:
        length_s, flag = _length(hours, minutes)
        overrides = Overrides(length_s, flag, rate, seed, proxy, lab, every, proxy_image, origin_image)
        return command(load=lambda: load_plan(plan_file, preset, overrides), **rest)

    for option in reversed(_OPTIONS):
        with_plan = option(with_plan)
    return with_plan


def _length(hours: float | None, minutes: float | None) -> tuple[float | None, str]:
    if hours is not None and minutes is not None:
        raise click.UsageError(
            f"both --hours {hours:g} and --minutes {minutes:g} were given; give one of them",
            click.get_current_context(),
        )
    for flag, given, unit_s in (("--minutes", minutes, 60), ("--hours", hours, 3600)):
        if given is None:
            continue
        if not 0 < given * unit_s < math.inf:  # said here, where the number is still the one that was typed
            raise PlanError(f"{flag}: length: {given:g} must be more than 0 and finite")
        return given * unit_s, flag
    return None, "--hours"


_OPTIONS: tuple[Callable[[Callable[..., int]], Callable[..., int]], ...] = (
    click.argument(
        "plan_file", metavar="[PLAN.yaml]", required=False, type=click.Path(readable=False, path_type=Path)
    ),
    click.option(
        "--preset", metavar="|".join(PRESETS), help="A built-in plan; without one and without a file: day."
    ),
    click.option("--hours", type=float, metavar="H", help="Length of the run."),
    click.option("--minutes", type=float, metavar="M", help="Length of the run."),
    click.option("--rate", type=float, metavar="R", help="Requests per second."),
    click.option("--proxy", cls=ProxyOption, metavar="NAME", help="The proxy under test"),
    click.option(
        "--lab",
        metavar="KIND",
        help="Where it runs: local (processes on loopback), docker (containers that soak makes), attach (what you run).",
    ),
    click.option(
        "--proxy-image",
        metavar="IMAGE",
        help="With lab docker: the proxy's image; default: the official one.",
    ),
    click.option(
        "--origin-image", metavar="IMAGE", help="With lab docker: an image of soak; default: soakd:latest."
    ),
    click.option(
        "--every",
        multiple=True,
        metavar="FAULT=PERIOD[:HOLD]",
        help="Add a series of faults, or replace that of the plan; may be repeated.",
    ),
    click.option("--seed", type=int, metavar="N", help="The same plan and seed give the same timeline."),
)
