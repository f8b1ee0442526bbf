"""Event stream: server-sent events from the event log, resumable by number.

Nothing is queued per client. Each client has a position in the shared ring, from which its next events are read. If the
ring has overwritten that position, the client receives `reset`. A client that does not read at all is disconnected; it
may reconnect with `Last-Event-ID`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web

from kactl.decide.messages.log import AnyEvent, encode
from kactl.model.errors import ErrorCode
from kactl.runtime.tasks import Tasks

from . import problem
from .client import STILL_ADMITTED, client_name, known_client
from .connections import streaming
from .problem import Refused
from .route import ApiRequest
from .schema import NoData, StreamQuery
from .service import Service

CONTENT_TYPE: Final = "text/event-stream"
RETRY_MS: Final = 2000
PING_MS: Final = 15_000
# The interval at which a program that has mounted the API decides again about the client of a stream.
DECIDED_AGAIN_MS: Final = 2_000
# If a write does not complete in this time, with the buffers of both sides full, the client is considered dead.
STALLED_MS: Final = 30_000
# About 100 kB per write: large enough for throughput, small enough to yield to other tasks.
EVENTS_AT_ONCE: Final = 500
# Streams are at nearby positions, so few entries suffice; with one write each they hold about 2 MB.
PLACES_MAX: Final = 16

# The interval at which elections in progress are sent again.
LIVE_MS: Final = 100

_HEADERS: Final = {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Stalled(Exception):
    """The client does not read, or the server is shutting down."""


async def stream(service: Service, request: ApiRequest[NoData, StreamQuery, NoData]) -> web.StreamResponse:
    """Send events until the client disconnects."""
    after = _resumed(request.http)
    if after is None:
        after = service.controller.history.seq if request.query.after is None else request.query.after
    if service.streams >= service.capacity.streams:
        raise Refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Too many streams",
            f"{service.streams} event streams are open: close one, or retry later",
            code=ErrorCode.REQUEST_TIMED_OUT,
            retriable=True,
        )
    client = client_name(request.http)
    if service.streams_of[client] >= service.capacity.streams_per_client:
        raise Refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Too many streams",
            f"{service.streams_of[client]} event streams of this client are open: close one, or retry later",
            code=ErrorCode.REQUEST_TIMED_OUT,
            retriable=True,
        )
    if request.http.method == "HEAD":
        return web.Response(headers=_HEADERS)
    response = web.StreamResponse(headers=_HEADERS)
    service.streams += 1
    service.streams_of[client] += 1
    streaming(request.http)
    try:
        await response.prepare(request.http)
        async with _admission(service) as ended:
            await _Stream(service, request.http, response, ended).run(after, frozenset(request.query.kinds))
    except (ConnectionError, Stalled):
        response.force_close()
    finally:
        service.streams -= 1
        service.streams_of[client] -= 1
        if not service.streams_of[client]:
            del service.streams_of[client]
    return response


@contextlib.asynccontextmanager
async def _admission(service: Service) -> AsyncIterator[asyncio.Event]:
    """Yields an event that is set when the client of this task's request may no longer read."""
    still_admitted = STILL_ADMITTED.get()
    if still_admitted is None:
        with service.follow(known_client()) as ended:
            yield ended
        return
    ended = asyncio.Event()

    async def watch() -> None:
        try:
            while await still_admitted():
                await service.controller.clock.sleep_ms(DECIDED_AGAIN_MS)
        finally:
            ended.set()

    tasks = Tasks("an event stream")
    tasks.spawn(watch())
    try:
        yield ended
    finally:
        tasks.cancel()


def _resumed(http: web.Request) -> int | None:
    """Returns the number of the last event that the client received; None if it sent none."""
    text = http.headers.get("Last-Event-ID", "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise problem.of_header(
            "Last-Event-ID",
            f"{text!r} is not an event number; send the last `id` received",
            status=HTTPStatus.BAD_REQUEST,
            title="Bad request",
            code=ErrorCode.INVALID_REQUEST,
        )
    return int(text)


class _Stream:
    """The event stream of one client.

    Args:
        ended: set when the client may no longer read.
    """

    def __init__(self, service: Service, http: web.Request, response: web.StreamResponse, ended: asyncio.Event) -> None:
        self._service = service
        self._clock = service.controller.clock
        self._http = http
        self._response = response
        self._ended = ended

    async def run(self, after: int, kinds: frozenset[str]) -> None:
        """Send the events after number `after`, and new events as they occur."""
        history = self._service.controller.history
        live = _LiveElections(self._service) if not kinds or "election" in kinds else None
        closing = _start(_either(self._service.closing, self._ended))
        ping = _start(self._clock.sleep_ms(PING_MS))
        changed = _start(history.changed())
        tick: asyncio.Task[Any] | None = None  # until elections in progress are sent again
        try:
            # With an id, so that a client that has received no event yet can still resume.
            await self._write(b"retry: %d\nid: %d\n\n" % (RETRY_MS, min(after, history.seq)), closing)
            while not closing.done():
                if ping.done():
                    await self._write(b": ping\n\n", closing)
                    ping = _start(self._clock.sleep_ms(PING_MS))
                if changed.done():
                    # Start to wait before reading: an event added after the read ends the wait below.
                    changed = _start(history.changed())
                    await asyncio.sleep(0)
                content, after = _frames(self._service, after, kinds)
                waiting = {changed, ping, closing}
                if live is not None and (tick is None or tick.done()) and live.has_some:
                    content += live.frames()
                    tick = _start(self._clock.sleep_ms(LIVE_MS))
                if content:
                    await self._write(content, closing)
                elif after >= history.seq:
                    if live is not None and tick is not None and live.has_some:
                        waiting.add(tick)
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(closing, ping, changed, *([] if tick is None else [tick]))

    async def _write(self, content: bytes, closing: "asyncio.Task[Any]") -> None:
        """Write bytes to the connection; waits while its buffer is full.

        Raises:
            Stalled: the wait was too long; the connection has been aborted.
            ConnectionError: the client has disconnected.
        """
        writing, stalled = _start(self._response.write(content)), _start(self._clock.sleep_ms(STALLED_MS))
        try:
            await asyncio.wait({writing, stalled, closing}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                if self._http.transport is not None:
                    self._http.transport.abort()
                raise Stalled
            writing.result()
        finally:
            await _cancel(writing, stalled)


class _LiveElections:
    """Elections in progress, for one stream: each is sent again when it has made progress.

    They are not events of the log yet, so their frames have no id, and a client resumes after the last event.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._sent: set[tuple[object, ...]] = set()

    @property
    def has_some(self) -> bool:
        return bool(self._service.controller.loop.events.live())

    def frames(self) -> bytes:
        """Returns the frames of the elections that have made progress since the last call."""
        now_ms = self._service.controller.clock.now_ms()
        live = {event.progress: event for event in self._service.controller.loop.events.live()}
        new = [event for progress, event in live.items() if progress not in self._sent]
        self._sent = set(live)
        records = (msgspec.structs.replace(event.record(), time_ms=now_ms) for event in new)
        return b"".join(b"event: election\ndata: %s\n\n" % encode(record) for record in records)


def _frames(service: Service, after: int, kinds: frozenset[str]) -> tuple[bytes, int]:
    """Returns the frames after number `after`, and the number to continue from.

    After a burst all streams are at the same position, and encoding frames costs far more than sending them. Encoded
    separately, those of a hundred streams would block the event loop for a third of a second.
    """
    history = service.controller.history
    position = (
        after,
        history.seq,
        kinds,
    )  # the content of the ring, and so the result, changes only with the newest number
    frames = service.frames.get(position)
    if frames is None:
        events, after = history.read(after, limit=EVENTS_AT_ONCE, kinds=kinds)
        frames = b"".join(map(_frame, events)), after
        while len(service.frames) >= PLACES_MAX:
            del service.frames[next(iter(service.frames))]
        service.frames[position] = frames
    return frames


def _frame(event: AnyEvent) -> bytes:
    kind = str(event.__struct_config__.tag).encode()
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, kind, encode(event))


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    """Wait until one of two events is set."""
    waits = _start(first.wait()), _start(second.wait())
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancel(*waits)


def _start(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    return asyncio.get_running_loop().create_task(work)


async def _cancel(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel the tasks that still run, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
