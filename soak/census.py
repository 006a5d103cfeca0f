"""The pulse of a run: vitals of everything every five seconds, a beat to the load workers, a watch over the daemon itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from soak.clock import RunClock
from soak.model import Unwell, Vital

VITALS_EVERY_S = 5.0
PULSE_S = 0.5
STALL_S = 2.0
"""The daemon that has not run for so long was stopped or starved: nothing was watched meanwhile."""


async def watch_vitals(
    clock: RunClock, look: Callable[[float], Awaitable[Sequence[Vital]]], keep: Callable[[Vital], None]
) -> None:
    """Look every five seconds, on an absolute beat, until cancelled."""
    number = 0
    while True:
        for vital in await look(clock.now()):
            keep(vital)
        number = max(number + 1, int(clock.now() / VITALS_EVERY_S) + 1)
        await clock.sleep(number * VITALS_EVERY_S - clock.now())


async def pulse(
    clock: RunClock, beat: Callable[[], None], show: Callable[[], None], on_stall: Callable[[Unwell], None]
) -> None:
    """Beat twice a second until cancelled; a beat that came much too late is a stall of the daemon."""
    last_s = clock.now()
    while True:
        await clock.sleep(PULSE_S)
        now_s = clock.now()
        if now_s - last_s > PULSE_S + STALL_S:
            gone_s = now_s - last_s - PULSE_S
            on_stall(Unwell(last_s, now_s, f"the daemon was stopped or starved for {gone_s:.1f} s"))
        beat()
        show()
        last_s = now_s
