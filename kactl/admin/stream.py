"""The event stream: server-sent events out of the history, resumable by number.

Nothing is queued for a client. Each one has a place in the ring that all share, and what it is sent next is read from
there; one that reads so slowly that the ring has gone past its place is sent `reset`, and one that does not read at
all is cut off. It may come back with `Last-Event-ID`.
"""

import asyncio
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from kactl.errors import ErrorCode
from kactl.messages.log import AnyEvent, encode

from . import problem
from .connections import streaming
from .problem import Refused
from .route import Asked
from .schema import NoQuestion, StreamQuery
from .service import Service

CONTENT_TYPE: Final = "text/event-stream"
RETRY_MS: Final = 2000
PING_MS: Final = 15_000
# A client that takes nothing for so long, with its own buffers and ours full, is gone or as good as gone.
STALLED_MS: Final = 30_000
# Some 100 kB a write: enough to be fast, little enough to give others their turn.
EVENTS_AT_ONCE: Final = 500
# Streams go side by side, so a few places suffice; with a write at each, they hold some 2 MB.
PLACES_MAX: Final = 16

_HEADERS: Final = {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Stalled(Exception):
    """The client does not read, or the server is about to end."""


async def stream(service: Service, asked: Asked[NoQuestion, StreamQuery, NoQuestion]) -> web.StreamResponse:
    """Send events until the client goes away."""
    after = _resumed(asked.http)
    if after is None:
        after = service.controller.history.seq if asked.query.after is None else asked.query.after
    if service.streams >= service.capacity.streams:
        raise Refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Too many streams",
            f"{service.streams} event streams are open: close one, or ask again later",
            code=ErrorCode.REQUEST_TIMED_OUT,
            retriable=True,
        )
    response = web.StreamResponse(headers=_HEADERS)
    service.streams += 1
    streaming(asked.http)
    try:
        await response.prepare(asked.http)
        await _Stream(service, asked.http, response).run(after, frozenset(asked.query.kinds))
    except (ConnectionError, Stalled):
        response.force_close()
    finally:
        service.streams -= 1
    return response


def _resumed(http: web.Request) -> int | None:
    """The number that a client saw last; None if it says nothing of it."""
    text = http.headers.get("Last-Event-ID", "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise problem.of_header(
            "Last-Event-ID",
            f"{text!r} is no event number; send the last `id` that you saw",
            status=HTTPStatus.BAD_REQUEST,
            title="Bad request",
            code=ErrorCode.INVALID_REQUEST,
        )
    return int(text)


class _Stream:
    """One client."""

    def __init__(self, service: Service, http: web.Request, response: web.StreamResponse) -> None:
        self._service = service
        self._clock = service.controller.clock
        self._http = http
        self._response = response

    async def run(self, after: int, kinds: frozenset[str]) -> None:
        """Send what lies behind number `after` and whatever follows."""
        history = self._service.controller.history
        closing, ping = _begun(self._service.closing.wait()), _begun(self._clock.sleep_ms(PING_MS))
        changed = _begun(history.changed())
        try:
            # With an id, so that a client that has seen no event yet still knows where to go on.
            await self._write(b"retry: %d\nid: %d\n\n" % (RETRY_MS, min(after, history.seq)), closing)
            while not closing.done():
                if ping.done():
                    await self._write(b": ping\n\n", closing)
                    ping = _begun(self._clock.sleep_ms(PING_MS))
                if changed.done():
                    # Waiting before reading: what is added after the read ends the wait below.
                    changed = _begun(history.changed())
                    await asyncio.sleep(0)
                content, after = _frames(self._service, after, kinds)
                if content:
                    await self._write(content, closing)
                elif after >= history.seq:
                    await asyncio.wait({changed, ping, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _ended(closing, ping, changed)

    async def _write(self, content: bytes, closing: "asyncio.Task[Any]") -> None:
        """Hand bytes to the connection, which waits while its buffer is full.

        Raises:
            Stalled: it waited for too long; the connection has been cut.
            ConnectionError: the client is gone.
        """
        writing, stalled = _begun(self._response.write(content)), _begun(self._clock.sleep_ms(STALLED_MS))
        try:
            await asyncio.wait({writing, stalled, closing}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                if self._http.transport is not None:
                    self._http.transport.abort()
                raise Stalled
            writing.result()
        finally:
            await _ended(writing, stalled)


def _frames(service: Service, after: int, kinds: frozenset[str]) -> tuple[bytes, int]:
    """What lies behind number `after`, as it is sent, and where to go on.

    A burst finds all streams at the same place, and making its frames costs far more than sending them: made for each
    anew, those of a hundred streams would hold up everything else for a third of a second.
    """
    history = service.controller.history
    place = (after, history.seq, kinds)  # what is held, and so what is read, changes only with the newest number
    found = service.frames.get(place)
    if found is None:
        events, after = history.read(after, limit=EVENTS_AT_ONCE, kinds=kinds)
        found = b"".join(map(_frame, events)), after
        while len(service.frames) >= PLACES_MAX:
            del service.frames[next(iter(service.frames))]
        service.frames[place] = found
    return found


def _frame(event: AnyEvent) -> bytes:
    """One event as it is sent."""
    kind = str(event.__struct_config__.tag).encode()
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, kind, encode(event))


def _begun(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    return asyncio.get_running_loop().create_task(work)


async def _ended(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel what still goes on, and wait until it has ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
