"""The channel to a broker: a queue, one sender, one request in flight.

Requests go out in the order in which they were left. One that does not get through is tried again, and nothing
overtakes it, until it is answered or the channel is removed, because the broker is gone, has registered anew, or we are
no longer the controller. So a slow broker delays nobody else. A request whose answer was lost is delivered twice; all
three kinds can bear that by their epochs.

What waits for a slow broker may be put together, see `kactl.outbound.coalesce`. Of others it is not: what many
brokers get is encoded once for all of them, and what was put together for one of them would have to be encoded for it
alone.

Source: the classic controller's RequestSendThread.
"""

import asyncio
import collections
import logging
from collections.abc import Callable
from typing import Final

from kactl.clock import Clock
from kactl.errors import BrokerUnreachable
from kactl.messages.control import (
    LeaderAndIsrResponse,
    PartitionErrors,
    Request,
    Response,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.messages.events import Event, LeaderAndIsrAnswered, ReplicasDeleted, UpdateMetadataAnswered
from kactl.model import Broker
from kactl.outbound.coalesce import Alive, alive_in, coalesced
from kactl.runtime.logs import logger
from kactl.telemetry.metrics import Telemetry
from kactl.transports.base import Connection

from .actor import ActorStopped, InboxFull
from .send_gate import SendGate

log = logger(__name__)

DeletionsIn = Callable[[StopReplica, StopReplicaResponse], PartitionErrors]

# Kafka's own pause between two tries.
RETRY_BACKOFF_MS: Final = 100
# A broker that is this far behind is told everything anew, which is one request of each kind.
QUEUE_LIMIT: Final = 10_000
# A broker is slow that has taken this long for one request, tries that failed included, and so many times as long as
# half of the others, while so many requests waited. In the failover of a large cluster a dozen may wait for each
# broker, and are on their way one soon after the other; or each takes seconds, for it is we who are slow.
SLOW_MS: Final = 1000
SLOW_COUNT: Final = 4
SLOW_FACTOR: Final = 4
# So many requests are looked at while they wait, however slow the broker; and again once they are twice what was left.
LOOKED_AT: Final = 64


class Channel:
    """The way to one registration of one broker.

    Args:
        deliver_event: takes the events that answers become; may raise InboxFull, and ActorStopped at the very end.
        deletions_in: what an answer to a StopReplica says of replicas that somebody waits for to be deleted.
        gate: has to stand open whenever a request goes out.
        others_ms: what half of the other brokers take for a request at the most, ms.
        coalesce: whether what waits may be put together.
        pause_ms: before the first request.
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
        coalesce: bool = True,
        pause_ms: float = 0,
    ) -> None:
        self.broker = broker
        self._pause_ms = pause_ms
        self._connection = connection
        self._clock = clock
        self._telemetry = telemetry
        self._deliver_event = deliver_event
        self._deletions_in = deletions_in
        self._gate = gate
        self._others_ms = others_ms
        self._queue: collections.deque[tuple[Request, float]] = collections.deque()
        self._wake: asyncio.Future[None] | None = None
        self._took_ms = 0.0  # that the last request was in flight
        self._began_ms = 0.0  # when the last one was begun
        self._in_flight = False  # the first of the queue may have reached the broker
        self._alive: Alive | None = None  # whom the broker was told last to be alive
        self._looked_at = LOOKED_AT if coalesce else QUEUE_LIMIT
        self._coalesce = coalesce
        self.failures = 0  # tries in a row that did not get through
        self.last_error = ""

    def __len__(self) -> int:
        """Requests that wait, the one in flight included."""
        return len(self._queue)

    @property
    def oldest_ms(self) -> float:
        """For how long the oldest request has waited; 0 if none does."""
        return self._clock.monotonic_ms() - self._queue[0][1] if self._queue else 0.0

    def put(self, request: Request) -> bool:
        """Leave a request; False if the queue is full and took nothing."""
        if len(self._queue) >= QUEUE_LIMIT:
            return False
        self._queue.append((request, self._clock.monotonic_ms()))
        if len(self._queue) >= self._looked_at:
            self._put_together()
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        return True

    async def run(self) -> None:
        """Deliver, until cancelled."""
        try:
            if self._pause_ms:
                await self._clock.sleep_ms(self._pause_ms)
            while True:
                while not self._queue:
                    self._wake = asyncio.get_running_loop().create_future()
                    await self._wake
                if len(self._queue) >= SLOW_COUNT and self._is_slow():
                    self._put_together()
                request, since_ms = self._queue[0]
                self._telemetry.waited(self.broker.id, self._clock.monotonic_ms() - since_ms)
                self._in_flight = True
                self._began_ms = self._clock.monotonic_ms()
                response = await self._deliver(request)
                self._took_ms = self._clock.monotonic_ms() - self._began_ms
                # Only now: a request counts as waiting until it is answered.
                self._queue.popleft()
                self._in_flight = False
                if isinstance(request, UpdateMetadata) and not response.error:
                    self._alive = alive_in(request)
                await self._answered(request, response)
        finally:
            await asyncio.shield(self._connection.close())

    @property
    def takes_ms(self) -> float:
        """How long the last request took; or the one in flight, once that is longer."""
        return max(self._took_ms, self._clock.monotonic_ms() - self._began_ms) if self._in_flight else self._took_ms

    def _is_slow(self) -> bool:
        return self._took_ms >= SLOW_MS and self._took_ms >= SLOW_FACTOR * self._others_ms()

    def _put_together(self) -> None:
        """Let one request stand for several that wait, where that makes no difference."""
        if not self._coalesce:
            return
        flying = [self._queue.popleft()] if self._in_flight else []
        alive = self._alive
        if flying and isinstance(flying[0][0], UpdateMetadata):
            alive = alive_in(flying[0][0])
        waiting = list(self._queue)
        left = coalesced([request for request, _ in waiting], broker=self.broker.id, alive=alive)
        self._queue = collections.deque([*flying, *((each.request, waiting[each.since][1]) for each in left)])
        self._looked_at = max(LOOKED_AT, 2 * len(self._queue))
        log.info("broker %d is slow: of %d requests that waited %d are left", self.broker.id, len(waiting), len(left))

    async def _deliver(self, request: Request) -> Response:
        while True:
            await self._gate.passed()
            began_ms = self._clock.monotonic_ms()
            try:
                response = await self._connection.deliver(request)
            except BrokerUnreachable as unreachable:
                self.failures += 1
                self.last_error = unreachable.reason
                # The first failure is news; that it goes on is not.
                level = logging.WARNING if self.failures == 1 else logging.DEBUG
                log.log(level, "%s did not get through to %s; trying again", type(request).__name__, unreachable)
                await self._clock.sleep_ms(RETRY_BACKOFF_MS)
            else:
                if self.failures:
                    log.info("broker %d answers again after %d failures", self.broker.id, self.failures)
                self.failures = 0
                self.last_error = ""
                self._telemetry.delivered(type(request).__name__, self._clock.monotonic_ms() - began_ms)
                return response

    async def _answered(self, request: Request, response: Response) -> None:
        event: Event
        if isinstance(response, LeaderAndIsrResponse):
            event = LeaderAndIsrAnswered(self.broker.id, self.broker.epoch, response)
        elif isinstance(response, UpdateMetadataResponse):
            event = UpdateMetadataAnswered(self.broker.id, self.broker.epoch, response)
        else:
            assert isinstance(request, StopReplica)
            deletions = self._deletions_in(request, response)
            if not len(deletions):
                # Outside of a topic's deletion nobody waits for it.
                return
            event = ReplicasDeleted(self.broker.id, self.broker.epoch, StopReplicaResponse(response.error, deletions))
        while True:
            try:
                self._deliver_event(event)
            except InboxFull:
                # The controller is behind: hold this broker up rather than lose what it said.
                await self._clock.sleep_ms(RETRY_BACKOFF_MS)
            except ActorStopped:
                return
            else:
                return
