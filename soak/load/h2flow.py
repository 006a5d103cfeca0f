"""Flow control of an HTTP/2 connection (RFC 9113 sections 5.2 and 6.9): how much of request bodies may go out, and when.

Between the wire, which knows no streams, and the connection, which knows how they end. Obeys what the peer's SETTINGS say.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from soak.load import h2frames as h2
from soak.load.h2frames import HEAD, Code, H2Error, Setting
from soak.load.h2stream import H2Stream
from soak.load.h2wire import H2Wire
from soak.model import Outcome

if TYPE_CHECKING:
    from soak.load.h2lane import H2Lane

_BATCH_BYTES = 128 * 1024
"""Most of request bodies that is put together at a time; then the transport says whether the peer reads."""


class H2Flow(H2Wire):
    """The sending side of a connection's streams."""

    __slots__ = (
        "_blocked",
        "_max_frame",
        "_next_id",
        "_peer_window",
        "_send_window",
        "lane",
        "limit",
        "streams",
    )

    def __init__(self, lane: H2Lane, number: int) -> None:
        super().__init__(number)
        self.lane = lane
        self.streams: dict[int, H2Stream] = {}
        """Those that are open, by number."""
        self.limit = lane.streams
        """Requests that it may carry; the peer's SETTINGS may lower it."""
        self._next_id = 1
        self._send_window = self._peer_window = h2.DEFAULT_WINDOW
        self._max_frame = h2.MAX_FRAME_BYTES
        self._blocked: dict[int, H2Stream] = {}

    def _pump(self, stream: H2Stream) -> None:
        """Send as much of the request's body as the peer's windows and its reading allow."""
        body = self.lane.body
        at, total = stream.body_at, len(body)
        while at < total:
            n = min(total - at, self._send_window, stream.send_window, self._max_frame)
            if n <= 0 or self._paused or self._out_bytes >= _BATCH_BYTES:
                self._blocked[stream.stream_id] = stream
                stream.body_at = at
                return
            last = h2.END_STREAM if at + n == total else 0
            self._say(HEAD.pack(n << 8 | h2.DATA, last, stream.stream_id) + body[at : at + n])
            self._send_window -= n
            stream.send_window -= n
            at += n
        stream.body_at = at
        self._blocked.pop(stream.stream_id, None)

    def _pump_all(self) -> None:
        for stream in tuple(self._blocked.values()):
            self._pump(stream)

    def _on_settings(self, values: list[tuple[int, int]], now: int) -> None:
        for name, value in values:
            if name == Setting.MAX_CONCURRENT_STREAMS:
                self.lane.peer_streams = value
                self.limit = min(self.lane.spec.streams, value)
            elif name == Setting.INITIAL_WINDOW_SIZE:
                self._set_initial_window(value)
            elif name == Setting.MAX_FRAME_SIZE:
                if not h2.MAX_FRAME_BYTES <= value < 1 << 24:
                    raise H2Error(Code.PROTOCOL_ERROR, f"SETTINGS_MAX_FRAME_SIZE is {value}")
                self._max_frame = value
            elif name == Setting.ENABLE_PUSH and value:
                raise H2Error(Code.PROTOCOL_ERROR, f"a server's SETTINGS_ENABLE_PUSH is {value}")
        self.ready = True
        self._go_on(now)
        self._pump_all()

    def _set_initial_window(self, value: int) -> None:
        """Change the windows of all streams by the difference; they may become negative (section 6.9.2)."""
        change = value - self._peer_window
        if value > h2.MAX_WINDOW or any(
            s.send_window + change > h2.MAX_WINDOW for s in self.streams.values()
        ):
            raise H2Error(Code.FLOW_CONTROL_ERROR, f"SETTINGS_INITIAL_WINDOW_SIZE {value} is too large")
        self._peer_window = value
        for stream in self.streams.values():
            stream.send_window += change

    def _on_window_update(self, number: int, increment: int) -> None:
        if number:
            self._widen(number, increment)
            return
        if not increment:
            raise H2Error(Code.PROTOCOL_ERROR, "WINDOW_UPDATE by nothing")
        self._send_window += increment
        if self._send_window > h2.MAX_WINDOW:
            raise H2Error(Code.FLOW_CONTROL_ERROR, "WINDOW_UPDATE past the largest window of a connection")
        self._pump_all()

    def _widen(self, number: int, increment: int) -> None:
        stream = self.streams.get(number)
        if stream is None:
            self._check_not_idle(number, "WINDOW_UPDATE")
            return
        stream.send_window += increment
        if not increment:
            self._cut_off(stream, Outcome.PROTOCOL_ERROR, "WINDOW_UPDATE by nothing", Code.PROTOCOL_ERROR)
        elif stream.send_window > h2.MAX_WINDOW:
            text = "WINDOW_UPDATE past the largest window of a stream"
            self._cut_off(stream, Outcome.PROTOCOL_ERROR, text, Code.FLOW_CONTROL_ERROR)
        elif number in self._blocked:
            self._pump(stream)

    def _check_not_idle(self, number: int, kind: str) -> None:
        if number & 1 == 0 or number >= self._next_id:
            raise H2Error(Code.PROTOCOL_ERROR, f"{kind} on stream {number}, which was never opened")

    @abstractmethod
    def _go_on(self, now: int) -> None:
        """Send what waited for room."""

    @abstractmethod
    def _cut_off(self, stream: H2Stream, ended: Outcome, error: str, code: Code) -> None:
        """Reset a stream."""
