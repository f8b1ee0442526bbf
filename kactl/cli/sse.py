"""Client of the event stream; reconnects after broken connections."""

import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from kactl.admin.schema import AnyEvent, ControllerInfo, EventPage, ResetEvent

from .api_client import UNREADABLE, Api
from .exits import Exit, Failure

if TYPE_CHECKING:
    from http.client import HTTPResponse

# The server sends a ping every 15 s; after three missing pings the connection counts as dead.
SILENCE_MAX_S: Final = 45.0
# Pause before reconnecting; the server may set another one.
RETRY_S: Final = 2.0
RETRY_S_MAX: Final = 60.0
_DIGITS_MAX: Final = 10
# Events have some hundred bytes, and as much again for each of a thousand partitions of a request.
_LINE_BYTES_MAX: Final = 16 << 20


class EventStream:
    """Events of a server over any number of connections.

    Args:
        after: the number after which to start; None starts with new events.
        kinds: kinds of events; all if empty.
    """

    def __init__(self, api: Api, *, after: int | None, kinds: Iterable[str] = ()) -> None:
        self._api = api
        self._after = after
        self._last: AnyEvent | None = None  # the event of number `after`
        self._retry_s = RETRY_S
        self._connected_once = False
        wanted = ",".join(kinds)
        self._path = "/v1/events/stream" + (f"?kinds={urllib.parse.quote(wanted, safe=',')}" if wanted else "")

    def follow(self, *, on_break: Callable[[str], None]) -> Iterator[AnyEvent]:
        """Yield events over as many connections as necessary. Only a failure of the first one is raised.

        Args:
            on_break: called with a message when a connection breaks, and when it is restored.

        Raises:
            Failure: the first connection failed, or the server rejected a connection.
        """
        if self._after is None:
            # Read first, so that no event is missed if the connection breaks before the first event.
            self._after = self._api.get("/v1/controller", ControllerInfo).as_of.seq
        self._last = self._event(self._after)
        broken = False
        while True:
            try:
                if broken:
                    self._resume(on_break)
                yield from self._connect()
            except Failure as failure:
                if not self._connected_once or failure.code != Exit.UNREACHABLE:
                    raise
                if not broken:
                    on_break(f"{failure.message.split(': start')[0]}; trying again every {self._retry_s:g} s")
                broken = True
            time.sleep(self._retry_s)

    def _resume(self, on_break: Callable[[str], None]) -> None:
        """Check whether the server still has the same events: a restarted server may count from 1 again."""
        assert self._after is not None
        if self._after == 0 or self._event(self._after) == self._last:
            on_break("connected again")
            return
        # The server reports lost events by a reset, unless it counts from a lower number than before.
        if self._after > self._api.get("/v1/controller", ControllerInfo).as_of.seq:
            self._after = 0
        on_break("connected again, to a restarted server: the events since its start follow")

    def _event(self, seq: int) -> AnyEvent | None:
        """Returns the event of one number; None if the server does not have it."""
        if seq < 1:
            return None
        events = self._api.get("/v1/events", EventPage, {"after": seq - 1, "limit": 1}).items
        return events[0] if events and events[0].seq == seq and not isinstance(events[0], ResetEvent) else None

    def _connect(self) -> Iterator[AnyEvent]:
        """Yield the events of one connection after the last one read, until it breaks with a Failure."""
        with self._api.connected(self._api.server) as connection:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self._after)}
            connection.request("GET", self._path, None, headers | self._api.headers(self._api.server))
            response = connection.getresponse()
            if response.status != 200:
                raise self._api.refusal(self._api.server, response.status, response.read())
            self._connected_once = True
            if connection.sock is not None:
                connection.sock.settimeout(SILENCE_MAX_S)
            yield from self._events(response)
        raise Failure(f"{self._api.server} has closed the stream of events", Exit.UNREACHABLE)

    def _events(self, response: "HTTPResponse") -> Iterator[AnyEvent]:
        data = list[str]()
        while line := response.readline(_LINE_BYTES_MAX):
            field, _, value = line.decode(errors="replace").rstrip("\r\n").partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "retry" and value.isascii() and value.isdecimal():
                self._retry_s = min(int(value[:_DIGITS_MAX]) / 1000, RETRY_S_MAX)
            elif not line.strip() and data:
                event = self._decode("\n".join(data))
                data.clear()
                if event.seq:  # an election in progress is no event of the log yet
                    self._after, self._last = event.seq, None if isinstance(event, ResetEvent) else event
                yield event

    def _decode(self, document: str) -> AnyEvent:
        try:
            event: AnyEvent = msgspec.json.decode(document, type=AnyEvent)
        except UNREADABLE as error:
            raise Failure(
                f"{self._api.server} sent an event that cannot be read ({error}): is it a kactl server of this version?"
            ) from None
        return event
