"""The stream of events of a server, followed over broken connections."""

import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from kactl.admin.schema import AnyEvent

from .client import connected, refusal
from .exits import Exit, Failure

if TYPE_CHECKING:
    from http.client import HTTPResponse

# The server sends a sign of life every 15 s: after three that did not come the connection is taken for dead.
SILENCE_MAX_S: Final = 45.0
# The pause before connecting again; the server may name another one.
RETRY_S: Final = 2.0


class EventStream:
    """See the module.

    Args:
        after: the number behind which to begin; None begins with what happens next.
        kinds: of events; all if empty.
    """

    def __init__(self, server: str, *, after: int | None, kinds: Iterable[str] = (), timeout_s: float) -> None:
        self._server = server
        self._last_id = None if after is None else str(after)
        self._timeout_s = timeout_s
        self._retry_s = RETRY_S
        self._connected_once = False
        wanted = ",".join(kinds)
        self._path = "/v1/events/stream" + (f"?kinds={urllib.parse.quote(wanted, safe=',')}" if wanted else "")

    def follow(self, *, on_break: Callable[[str], None]) -> Iterator[AnyEvent]:
        """Events, over as many connections as it takes; only the first one must come about.

        Args:
            on_break: called with a sentence when a connection broke, and when it stands again.

        Raises:
            Failure: the first connection could not be made, or the server refused one.
        """
        broken = False
        while True:
            try:
                yield from self._connect(on_open=(lambda: on_break("connected again")) if broken else None)
            except Failure as failure:
                if not self._connected_once or failure.code != Exit.UNREACHABLE:
                    raise
                if not broken:
                    on_break(f"{failure.message.split(':  ')[0]}; trying again every {self._retry_s:g} s")
                broken = True
            time.sleep(self._retry_s)

    def _connect(self, *, on_open: Callable[[], None] | None) -> Iterator[AnyEvent]:
        """Events of one connection, from behind the last one that was read, until it breaks with a Failure."""
        with connected(self._server, self._timeout_s) as connection:
            headers = {"Accept": "text/event-stream"}
            if self._last_id is not None:
                headers["Last-Event-ID"] = self._last_id
            connection.request("GET", self._path, None, headers)
            response = connection.getresponse()
            if response.status != 200:
                raise refusal(self._server, response.status, response.read())
            self._connected_once = True
            if connection.sock is not None:
                connection.sock.settimeout(SILENCE_MAX_S)
            if on_open is not None:
                on_open()
            yield from self._events(response)
        raise Failure(f"{self._server} has closed the stream of events", Exit.UNREACHABLE)

    def _events(self, response: "HTTPResponse") -> Iterator[AnyEvent]:
        data = list[str]()
        while line := response.readline():
            field, _, value = line.decode().rstrip("\r\n").partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "id":
                self._last_id = value
            elif field == "retry" and value.isdecimal():
                self._retry_s = int(value) / 1000
            elif not line.strip() and data:
                yield self._decode("\n".join(data))
                data.clear()

    def _decode(self, document: str) -> AnyEvent:
        try:
            event: AnyEvent = msgspec.json.decode(document, type=AnyEvent)
        except msgspec.MsgspecError as error:
            raise Failure(
                f"{self._server} sent an event that cannot be read ({error}): is it a kactl server of this version?"
            ) from None
        return event
