"""Everything that happens is told here once, and passed on to the store, the log, the live state, the view and the metrics.

The one fan-out of a run. Decides nothing; before the run's start is known, instants are 0 or below.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from certs.install import fingerprint_of, not_after_of
from chaos.model import FaultRecord
from soak import log as run_log
from soak.clock import Clock, RunClock
from soak.live import LiveState
from soak.liveview import View
from soak.metrics import Metrics
from soak.model import CertificateRecord, Event, OriginTotals, Sighting, Unwell, Vital
from soak.store import StoreWriter

log = run_log.get_logger("soak.daemon")


class Served(Protocol):
    """What the proxy was told to serve."""

    def generation(self) -> int:
        """Return the config generation."""
        ...

    def serial(self) -> str:
        """Return the serial of the certificate."""
        ...


class Recorder:
    """Where a run is written down. ``metrics`` joins once the lab is up."""

    def __init__(
        self,
        store: StoreWriter,
        live: LiveState,
        view: View,
        *,
        clock: Clock,
        run_clock: RunClock,
        certificate: Path,
    ) -> None:
        self._store = store
        self._live = live
        self._view = view
        self._clock = clock
        self._run_clock = run_clock
        self._certificate = certificate
        self._serial = ""
        self.metrics: Metrics | None = None

    def event(self, name: str, data: Mapping[str, Any] | None = None, /) -> None:
        """Tell that something happened."""
        event = Event(self._run_clock.now(), self._clock.wall_s(), name, dict(data or {}))
        log.info(name, **{("what" if key == "event" else key): value for key, value in event.data.items()})
        self._store.add_event(event)
        self._live.event(event)
        self._view.event(event)
        if self.metrics is not None:
            self.metrics.observe_event(event)

    def fault(self, record: FaultRecord, served: Served) -> None:
        """Tell of a fault at one of its steps, and of what the proxy serves since."""
        self._store.put_fault(record)
        self._live.fault(record)
        if self.metrics is not None:
            self.metrics.observe_fault(record)
            self.metrics.set_generation(served.generation())
        if served.serial() != self._serial:
            began_s = record.injected_s if record.injected_s is not None else self._run_clock.now()
            self.certificate(served.serial(), began_s, record.id)

    def certificate(self, serial: str, installed_s: float, fault_id: int | None = None) -> None:
        """Tell of the certificate that is installed; it counts from the moment its rotation began."""
        self._serial = serial
        pem = self._certificate.read_bytes()
        record = CertificateRecord(serial, installed_s, fingerprint_of(pem), fault_id)
        self._store.add_certificate(record)
        if self.metrics is not None:
            self.metrics.observe_certificate(record, not_after_wall_s=not_after_of(pem))

    def sighting(self, sighting: Sighting) -> None:
        """Tell what the prober saw."""
        self._store.add_sighting(sighting)
        if self.metrics is not None:
            self.metrics.observe_sighting(sighting)

    def unwell(self, unwell: Unwell) -> None:
        """Tell of a stretch that cannot be used to judge the proxy."""
        self._store.add_unwell(unwell)
        if self.metrics is not None:
            self.metrics.observe_unwell(unwell)

    def stalled(self, unwell: Unwell) -> None:
        """Tell that the daemon itself stood still."""
        self.unwell(unwell)
        self.event("daemon.stalled", {"from_s": unwell.from_s, "to_s": unwell.to_s, "reason": unwell.reason})

    def vital(self, vital: Vital) -> None:
        """Tell how processes do."""
        self._store.add_vital(vital)
        if self.metrics is not None:
            self.metrics.observe_vital(vital)

    def origins(self, totals: OriginTotals) -> None:
        """Tell what the origins have counted so far; the newest word replaces the one before."""
        self._store.set_meta("origins", {"at_s": totals.at_s, "counts": totals.counts})
        if self.metrics is not None:
            self.metrics.observe_origins(totals)
