"""Channel to one registration of one broker: a queue, one sender, one request in flight.

Requests are sent in the order in which they were queued. A request that fails is retried, and no other passes it, until
it is answered or the channel is removed, because the broker failed or registered anew or this instance is no longer the
controller. A slow broker therefore delays no other. A request with a lost response is delivered twice; the epochs of
all three kinds of requests make that harmless.

Requests that wait for a slow broker may be coalesced, see `kactl.decide.outbound.coalesce`; others are not. One to
many brokers is encoded once for all of them, and a coalesced one is encoded for its broker alone.

Source: the classic controller's RequestSendThread.
"""

import asyncio
import collections
import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kactl.decide.messages.control import (
    Acknowledged,
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    Request,
    Response,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.decide.messages.events import (
    Event,
    LeaderAndIsrResponseReceived,
    TopicDeletionStopReplicaResponseReceived,
    UpdateMetadataResponseReceived,
)
from kactl.decide.outbound.coalesce import Alive, coalesced
from kactl.model import Broker
from kactl.model.errors import BrokerUnreachable
from kactl.runtime.clock import Clock
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.telemetry.event_record import ORIGIN, EventRecord, Origin
from kactl.telemetry.metrics import Telemetry
from kactl.transports.base import Connection

from .actor import Actor, ActorStopped, Entry, InboxFull

log = logger(__name__)

DeletionsIn = Callable[[StopReplica, StopReplicaResponse], PartitionErrors]
# Kafka's own pause between two attempts.
RETRY_BACKOFF_MS: Final = 100
# A broker that is this far behind is sent everything anew, which is one request of each kind.
QUEUE_LIMIT: Final = 10_000
# A broker is slow if its last request took this long, failed attempts included, and this many times as long as the
# median of the others, while this many requests waited. In the failover of a large cluster a dozen may wait for each
# broker and be sent quickly one after the other; or each takes seconds because this process is slow.
SLOW_MS: Final = 1000
SLOW_COUNT: Final = 4
SLOW_FACTOR: Final = 4
# This many waiting requests are coalesced however slow the broker is; and again once they are twice the rest.
COALESCE_COUNT: Final = 64
# A broker that this many attempts in a row did not reach is down: the first failure may be that of an old connection.
DOWN_FAILURES: Final = 2
# The first warning, after two seconds: the registration of a broker that stops ends sooner, and after a takeover
# participants have found the controller by then.
WARNED_FAILURES: Final = 20


class SendGate:
    """Holds back all requests to brokers while the store session may have expired unnoticed; open at first.

    Another controller may be active then. Brokers distinguish the two by their epochs; it is better still that they
    receive requests from only one of them.
    """

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.reason = ""  # why it was closed last

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def pause(self, why: str) -> None:
        """Pause sending. In-flight requests are not cancelled."""
        if self.is_open:
            log.info("nothing is sent to brokers from now on: %s", why)
            self.reason = why
            self._open.clear()

    def open(self) -> None:
        """Resume sending. Does nothing if the gate is open."""
        if not self.is_open:
            log.info("requests are sent to brokers again")
            self._open.set()

    async def wait_open(self) -> None:
        """Wait until the gate is open. It is open when this returns."""
        # It may have been paused again after it woke this task.
        while not self._open.is_set():
            await self._open.wait()


class Outgoing(NamedTuple):
    """A queued request.

    Attributes:
        events: the controller events that wait for its response: several once it was coalesced.
        number: of its turn in the queues of all brokers. Of a coalesced request, the one of the oldest that it
            replaces, or that comes after it.
    """

    request: Request
    events: tuple[EventRecord, ...] = ()
    number: int = 0


class Channel(Actor[Outgoing]):
    """Channel to one registration of one broker.

    Args:
        deliver_event: queues the events of responses; may raise InboxFull, and ActorStopped once the controller stops.
        deletions_in: returns the results of a StopReplica response that a topic deletion waits for.
        gate: must be open whenever a request is sent.
        others_ms: returns the median time of a request to the other brokers, ms.
        numbers: rise from one request to the next, also over several channels.
        progressed: called when a request was answered, and when the broker turns out to be down.
        coalesce: whether waiting requests may be coalesced.
        pause_ms: before the first request.

    Attributes:
        failures: failed attempts in a row.
    """

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        *,
        clock: Clock,
        telemetry: Telemetry,
        deliver_event: Callable[[Event], None],
        deletions_in: DeletionsIn,
        gate: SendGate,
        others_ms: Callable[[], float],
        numbers: Iterator[int],
        progressed: Callable[[], None],
        coalesce: bool = True,
        pause_ms: float = 0,
    ) -> None:
        super().__init__(f"channel to broker {broker.id}", limit=QUEUE_LIMIT, now=clock.monotonic_ms)
        self.broker = broker
        self._pause_ms = pause_ms
        self._connection = connection
        self._clock = clock
        self._telemetry = telemetry
        self._deliver_event = deliver_event
        self._deletions_in = deletions_in
        self._gate = gate
        self._others_ms = others_ms
        self._numbers = numbers
        self._progressed = progressed
        self._in_flight: Entry[Outgoing] | None = None  # may have reached the broker
        self._began_ms = 0.0  # when the last request was begun
        self._took_ms = 0.0  # how long the last request was in flight
        self._alive: Alive | None = None  # the live brokers that the broker was sent last
        self._coalesce_count = COALESCE_COUNT if coalesce else QUEUE_LIMIT
        self._coalesce = coalesce
        self.failures = 0
        self.last_error = ""
        self._conditions = Conditions(log, clock.monotonic_ms)

    def __len__(self) -> int:
        """Returns the number of requests that wait, the one in flight included."""
        return len(self.inbox) + (self._in_flight is not None)

    @property
    def oldest_ms(self) -> float:
        """Returns how long the oldest request has waited; 0 if there is none."""
        if self._in_flight is not None:
            return self._clock.monotonic_ms() - self._in_flight.put_ms
        return self.inbox.oldest_ms

    @property
    def takes_ms(self) -> float:
        """Returns how long the last request took; or the one in flight, once that is longer."""
        if self._in_flight is None:
            return self._took_ms
        return max(self._took_ms, self._clock.monotonic_ms() - self._began_ms)

    @property
    def is_down(self) -> bool:
        """Returns whether the last attempts have not reached the broker."""
        return self.failures >= DOWN_FAILURES

    def has_answered(self, number: int) -> bool:
        """Returns whether no request that was queued with this number, or a lower one, waits for its response."""
        oldest = self.inbox.oldest if self._in_flight is None else self._in_flight.message
        return oldest is None or oldest.number > number

    def put(self, request: Request, event: EventRecord | None = None, *, number: int = 0) -> bool:
        """Queue a request, sent by `event`. Returns False if the queue is full; nothing was queued then.

        Args:
            number: not lower than those before.
        """
        if len(self) >= QUEUE_LIMIT:
            return False
        if event is None or event.because is None:
            self.inbox.put(Outgoing(request, (), number))
        else:
            self.inbox.put(Outgoing(request, (event,), number))
            event.sent(self.broker.id)
        if len(self) >= self._coalesce_count:
            self.inbox.refill(self._coalesced(self.inbox.drain()))
        return True

    async def run(self) -> None:
        """Send requests until cancelled."""
        try:
            if self._pause_ms:
                await self._clock.sleep_ms(self._pause_ms)
            await super().run()
        finally:
            await asyncio.shield(self._connection.close())

    def drop(self) -> None:
        """Drop the requests that wait, and the one in flight. To be called before the channel is cancelled."""
        waiting = self.inbox.drain()
        if self._in_flight is not None:
            waiting.append(self._in_flight)
        for entry in waiting:
            for event in entry.message.events:
                event.dropped(self.broker.id)

    async def receive(self, message: Outgoing) -> None:
        """Send a request and queue the event of its response. The request counts as waiting until it is answered."""
        now_ms = self._clock.monotonic_ms()
        entry: Entry[Outgoing] = Entry(message, None, now_ms - self.inbox.waited_ms)
        if len(self.inbox) + 1 >= SLOW_COUNT and self._is_slow():
            entry, *waiting = self._coalesced([entry, *self.inbox.drain()])
            self.inbox.refill(waiting)
        request, events = self._numbered(entry.message.request), entry.message.events
        self._telemetry.waited(self.broker.id, now_ms - entry.put_ms)
        self._in_flight, self._began_ms = entry, now_ms
        response = await self._deliver(request)
        ended_ms = self._clock.monotonic_ms()
        self._took_ms = ended_ms - now_ms
        self._in_flight = None
        self._telemetry.spans.request(
            events,
            request,
            response,
            broker=self.broker.id,
            queued_ms=entry.put_ms,
            began_ms=now_ms,
            ended_ms=ended_ms,
        )
        for event in events:
            event.acknowledged(self.broker.id)
        if isinstance(request, UpdateMetadata) and not response.error:
            self._alive = request.alive
        ORIGIN.set(Origin(answered=events))
        await self._answered(request, response)
        self._progressed()

    def _is_slow(self) -> bool:
        return self._took_ms >= SLOW_MS and self._took_ms >= SLOW_FACTOR * self._others_ms()

    def _coalesced(self, waiting: list[Entry[Outgoing]]) -> list[Entry[Outgoing]]:
        """Replace several waiting requests by one, where that makes no difference to the broker."""
        if not self._coalesce:
            return waiting
        alive = self._alive
        in_flight = None if self._in_flight is None else self._in_flight.message.request
        if isinstance(in_flight, UpdateMetadata):
            alive = in_flight.alive
        left = coalesced([entry.message.request for entry in waiting], broker=self.broker.id, alive=alive)
        self._coalesce_count = max(COALESCE_COUNT, 2 * (len(left) + (self._in_flight is not None)))
        log.info("broker %d is slow: of %d requests that waited %d are left", self.broker.id, len(waiting), len(left))
        # The last one answers for all: which event is part of which request is not followed through the merges.
        events = [() for _ in left[1:]] + [self._merged(waiting)]
        # Requests may have changed their order: each gets the lowest number of itself and those after it.
        numbers = [waiting[one.since].message.number for one in reversed(left)]
        lowest = reversed(list(itertools.accumulate(numbers, min)))
        return [
            Entry(Outgoing(one.request, of_one, number), None, waiting[one.since].put_ms)
            for one, of_one, number in zip(left, events, lowest, strict=True)
        ]

    def _merged(self, waiting: list[Entry[Outgoing]]) -> tuple[EventRecord, ...]:
        """Returns the events that wait for some requests, each once."""
        counts = collections.Counter(event for entry in waiting for event in entry.message.events)
        for event, count in counts.items():
            event.merged(self.broker.id, count)
        return tuple(counts)

    async def _deliver(self, request: Request) -> Response:
        while True:
            await self._gate.wait_open()
            began_ms = self._clock.monotonic_ms()
            try:
                response = await self._connection.deliver(request)
            except BrokerUnreachable as unreachable:
                self.failures += 1
                self.last_error = unreachable.reason
                kind = type(request).__name__
                if self.failures < WARNED_FAILURES:
                    log.debug("%s did not get through to %s; trying again", kind, unreachable)
                else:
                    text = "%s has not got through to %s; trying again"
                    self._conditions.add("", logging.WARNING, text, kind, unreachable)
                if self.failures == DOWN_FAILURES:
                    self._progressed()
                await self._clock.sleep_ms(max(RETRY_BACKOFF_MS, unreachable.retry_after_ms))
            else:
                if self.failures:
                    log.info("broker %d answers again after %d failures", self.broker.id, self.failures)
                self._conditions.end("", "broker %d answers again", self.broker.id)
                self.failures = 0
                self.last_error = ""
                self._telemetry.delivered(type(request).__name__, self._clock.monotonic_ms() - began_ms)
                return response

    def _numbered(self, request: Request) -> Request:
        """Returns a request that is about to be sent, with its number. Those that wait change their order."""
        if isinstance(request, LeaderAndIsr | UpdateMetadata | StopReplica):
            return dataclasses.replace(request, number=next(self._numbers))
        return request

    async def _answered(self, request: Request, response: Response) -> None:
        event: Event
        if isinstance(response, Acknowledged):
            # A participant reports what follows from the request.
            return
        if isinstance(response, LeaderAndIsrResponse):
            assert isinstance(request, LeaderAndIsr)
            event = LeaderAndIsrResponseReceived(self.broker.id, self.broker.epoch, response, request)
        elif isinstance(response, UpdateMetadataResponse):
            event = UpdateMetadataResponseReceived(self.broker.id, self.broker.epoch, response)
        else:
            assert isinstance(request, StopReplica)
            deletions = self._deletions_in(request, response)
            if not len(deletions):
                # Only topic deletions use the response.
                return
            event = TopicDeletionStopReplicaResponseReceived(
                self.broker.id, self.broker.epoch, StopReplicaResponse(response.error, deletions), request
            )
        while True:
            try:
                self._deliver_event(event)
            except InboxFull:
                # The controller is behind: delay this broker rather than lose the response.
                await self._clock.sleep_ms(RETRY_BACKOFF_MS)
            except ActorStopped:
                return
            else:
                return
