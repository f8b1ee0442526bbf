"""Channels to all brokers, one for each registration.

A channel that ends by an error is replaced, and so is one with a full queue; the controller then receives
BrokerLag and sends the broker the complete state. A request to a broker without a channel is dropped.

Source: the classic controller's ControllerChannelManager.
"""

import asyncio
import contextlib
import functools
import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kactl.decide.machines.topic_progress import Delivery
from kactl.decide.messages.control import StopReplica
from kactl.decide.messages.events import BrokerLag, Event
from kactl.decide.outbound.batch import Addressed
from kactl.model import Broker
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.telemetry.event_log import EventLog
from kactl.telemetry.event_record import EventRecord
from kactl.telemetry.metrics import Telemetry
from kactl.transports.base import Connection

from .actor import ActorStopped
from .channel import Channel, DeletionsIn, SendGate

log = logger(__name__)

# The pause before a channel that ended by an error sends again: a request that cannot be sent at all must not spin.
RENEWAL_PAUSE_MS: Final = 1000


class RequestNumbers(Iterator[int]):
    """Rising numbers from 1.

    Attributes:
        last: the last one; 0 if there was none.
    """

    def __init__(self) -> None:
        self.last = 0

    def __next__(self) -> int:
        self.last += 1
        return self.last


class Channels:
    """Opens, closes and feeds the channels. The controller manages them; its machines send through them.

    Args:
        deliver_event: queues the events of responses, and BrokerLag, which is never rejected; may raise ActorStopped
            once the controller stops.
        deletions_in: returns the results of a StopReplica response that a topic deletion waits for.
        history: names the event in progress, which sends the requests.
        coalesce: whether requests that wait for a slow broker may be coalesced.
    """

    def __init__(
        self,
        connect: Callable[[Broker], Connection],
        *,
        clock: Clock,
        telemetry: Telemetry,
        deliver_event: Callable[[Event], None],
        deletions_in: DeletionsIn,
        history: EventLog,
        coalesce: bool = True,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._telemetry = telemetry
        self._deliver_event = deliver_event
        self._deletions_in = deletions_in
        self._history = history
        self._coalesce = coalesce
        # They outlive a channel, as a new one continues for the same registration.
        self._numbers = RequestNumbers()
        self._channels: dict[int, tuple[Channel, asyncio.Task[None]]] = {}
        # Brokers with a dropped queue that have not been sent the complete state yet. Until then an update of
        # some partitions is dropped as well: it must not be the first that a registration receives. StopReplica is
        # sent: the complete state does not name deleted replicas.
        self._lagging: set[int] = set()
        # The events that send brokers the complete state after that. It stands for the requests that were dropped.
        self._restoring: dict[int, EventRecord] = {}
        self._queued = 0  # number of the requests that were queued last
        self._watchers = 0
        self.gate = SendGate()
        self._closing: set[asyncio.Task[None]] = set()

    def __getitem__(self, broker: int) -> Channel:
        return self._channels[broker][0]

    def __contains__(self, broker: int) -> bool:
        return broker in self._channels

    @property
    def last_number(self) -> int:
        """Returns the number of the last request to any broker."""
        return self._numbers.last

    def all(self) -> list[Channel]:
        return [channel for channel, _ in self._channels.values()]

    def add(self, broker: Broker, *, pause_ms: float = 0) -> None:
        """Open a channel to a registration; nothing is connected before the first request."""
        if broker.id in self._channels:
            return
        channel = Channel(
            broker,
            self._connect(broker),
            clock=self._clock,
            telemetry=self._telemetry,
            deliver_event=self._deliver_event,
            deletions_in=self._deletions_in,
            gate=self.gate,
            others_ms=functools.partial(self._others_ms, broker.id),
            numbers=self._numbers,
            progressed=self._progressed,
            coalesce=self._coalesce,
            pause_ms=pause_ms,
        )
        self._channels[broker.id] = (channel, self._run(channel))

    def _others_ms(self, broker: int) -> float:
        """Returns the median time of a request to the other brokers, in ms; 0 if there are none."""
        taken = [channel.takes_ms for id_, (channel, _) in self._channels.items() if id_ != broker]
        return statistics.median_low(taken) if taken else 0.0

    def _run(self, channel: Channel) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(channel.run(), name=f"channel to broker {channel.broker.id}")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Replace a channel that ended by a bug."""
        self._closing.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        log.error("%s ended by an error and is made anew", task.get_name(), exc_info=task.exception())
        for broker, (channel, running) in list(self._channels.items()):
            if running is task:
                self._renew(channel.broker, pause_ms=RENEWAL_PAUSE_MS)
                self._tell_lagged(broker)

    def remove(self, broker: int) -> None:
        """Close the channel to a broker; waiting requests are dropped."""
        self._lagging.discard(broker)
        self._restoring.pop(broker, None)
        entry = self._channels.pop(broker, None)
        if entry is None:
            return
        self._progressed()
        entry[0].drop()
        if not entry[1].done():
            self._closing.add(entry[1])
            entry[1].cancel()

    def close(self) -> None:
        """Close all channels; nothing is sent any more. The gate opens for channels that are opened later."""
        for broker in list(self._channels):
            self.remove(broker)
        self.gate.open()

    async def closed(self) -> None:
        """Wait until the removed channels have closed their connections."""
        # Not `asyncio.gather`: see `kactl.actors.machines.machine`.
        if self._closing:
            await asyncio.wait(self._closing)

    def send(self, requests: Iterable[Addressed]) -> None:
        """Queue requests in the order in which they are to be sent."""
        event = self._history.current
        self._queued += 1
        for broker, request in requests:
            entry = self._channels.get(broker)
            if entry is None:
                log.info("%s for broker %d is dropped: there is no channel to it", type(request).__name__, broker)
            elif broker in self._lagging and not isinstance(request, StopReplica):
                log.debug("%s for broker %d is dropped: everything is sent anew", type(request).__name__, broker)
            elif not entry[0].put(request, event, number=self._queued):
                log.warning(
                    "broker %d has left %d requests unanswered; they are dropped; resending full state",
                    broker,
                    len(entry[0]),
                )
                self._renew(entry[0].broker)
                self._tell_lagged(broker)

    def last_error(self, broker: int) -> str:
        """Returns why the last request did not reach a broker; empty if it did, or there is no channel."""
        return self[broker].last_error if broker in self else ""

    def resume(self, broker: int) -> None:
        """Queue requests again for a broker after its queue was dropped; the next ones contain the complete state."""
        self._lagging.discard(broker)
        self._restoring[broker] = self._history.current

    # -- answers -------------------------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Returns the number of the requests that were queued last, for `delivery`."""
        return self._queued

    def delivery(self, queued: int) -> Delivery:
        """Returns the delivery of the requests that were queued up to a number."""
        return Delivery(functools.partial(self._behind, queued), self.last_error)

    def _behind(self, queued: int, down: bool) -> list[int]:
        return [
            broker
            for broker, (channel, _) in self._channels.items()
            if (down or not channel.is_down) and not (channel.has_answered(queued) and self._is_restored(broker))
        ]

    def _is_restored(self, broker: int) -> bool:
        """Returns False from the loss of a broker's requests until it has answered those in their place."""
        event = self._restoring.get(broker)
        if event is not None and event.is_done(broker):
            del self._restoring[broker]
            event = None
        return event is None and broker not in self._lagging

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While the block runs, wake the callers of `EventLog.changed` whenever a delivery may have advanced."""
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1

    def _progressed(self) -> None:
        if self._watchers:
            self._history.wake()

    def _renew(self, broker: Broker, *, pause_ms: float = 0) -> None:
        self.remove(broker.id)
        self.add(broker, pause_ms=pause_ms)
        self._lagging.add(broker.id)

    def _tell_lagged(self, broker: int) -> None:
        try:
            self._deliver_event(BrokerLag(broker))
        except ActorStopped:
            log.info("not resending full state to broker %d: the controller has stopped", broker)
