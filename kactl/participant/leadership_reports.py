"""Reports of ended and of waiting leaderships to the controller, repeated until it has received them.

One report is on its way at a time. It contains everything that has not been received, so that a later report replaces
an earlier one that was lost.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from kactl.decide.messages.leases import LeaderEpochs, ReportLeaderships
from kactl.decide.state.rows import Ints
from kactl.model import NO_EPOCH, TopicPartition, TopicRef
from kactl.model.errors import KactlError
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.stores.base import Names

from .controller_client import ControllerClient
from .handlers.waiting import Signal
from .hosted_replicas import HostedReplicas

log = logger(__name__)

# A leadership that waits is reported again after this time: its release may have been lost.
REPEAT_MS: Final = 500.0


class LeadershipReporter:
    """Sends ReportLeaderships.

    Args:
        epoch: returns the broker epoch.
    """

    def __init__(
        self,
        broker: int,
        hosted: HostedReplicas,
        *,
        epoch: Callable[[], int],
        controller: ControllerClient,
        clock: Clock,
        is_prepared: Callable[[TopicPartition], bool] | None = None,
    ) -> None:
        self._is_prepared = is_prepared
        self._broker = broker
        self._hosted = hosted
        self._epoch = epoch
        self._controller = controller
        self._clock = clock
        self._signal = Signal(clock)
        self._ended: list[tuple[Names, Ints]] = []  # not received yet
        self._is_new = False  # whether something was added since the last report began
        self._number = 0
        self._complete = NO_EPOCH  # controller epoch of the last StateSent whose leaderships have ended

    def ended(self, names: Names, leader_epoch: Ints) -> None:
        """Report that no leadership of some partitions is left below an epoch each."""
        if len(leader_epoch):
            self._ended.append((names, leader_epoch))
            self._wake()

    def waiting(self) -> None:
        """Report the leaderships that wait, which have changed."""
        self._wake()

    def complete(self, controller_epoch: int) -> None:
        """Report that the complete state of a controller is carried out."""
        self._complete = controller_epoch
        self._wake()

    def _wake(self) -> None:
        self._is_new = True
        self._signal.set()

    async def run(self) -> None:
        """Send reports until cancelled."""
        while True:
            if not self._hosted.waits:
                await self._signal.wait(lambda: self._is_new)
            elif not await self._signal.wait_for(lambda: self._is_new, REPEAT_MS) and not self._hosted.waits:
                continue
            sent, self._is_new = self._ended[:], False
            try:
                await self._send(sent)
            except KactlError as error:
                log.info("broker %d could not report its leaderships, and retries: %s", self._broker, error)
                self._is_new = True
                await self._clock.sleep_ms(REPEAT_MS)
            else:
                del self._ended[: len(sent)]

    async def leave(self) -> None:
        """Report that every leadership has ended, and that the registration ends next.

        Raises:
            KactlError: the controller has not received it.
        """
        await self._send(self._ended, leaving=True)

    async def _send(self, ended: list[tuple[Names, Ints]], *, leaving: bool = False) -> None:
        self._number += 1
        await self._controller.ask(
            ReportLeaderships(
                self._broker,
                self._epoch(),
                self._number,
                ended=_joined(ended),
                waiting=LeaderEpochs() if leaving else LeaderEpochs.of(*self._waiting()),
                complete=self._complete,
                leaving=leaving,
            )
        )

    def _waiting(self) -> tuple[Names, Ints]:
        """Returns the leaderships that wait; those of ownership topics once they are prepared: their former owners lead
        until then."""
        names, epochs = self._hosted.waiting_leaderships()
        if self._is_prepared is None or not any(ref.is_ownership for ref in names.topics):
            return names, epochs
        owned = np.array([ref.is_ownership for ref in names.topics], np.bool_)[names.topic]
        ready = ~owned | np.array([self._is_prepared(name) for name in names], np.bool_)
        return names.take(ready), epochs[ready]


def _joined(parts: Sequence[tuple[Names, Ints]]) -> LeaderEpochs:
    """Returns several lists as one; of a partition in several, the highest epoch counts."""
    if len(parts) == 1:
        return LeaderEpochs.of(*parts[0])
    highest: dict[tuple[TopicRef, int], int] = {}
    for names, leader_epoch in parts:
        columns = names.topic.tolist(), names.partition.tolist(), leader_epoch.tolist()
        for topic, partition, epoch in zip(*columns, strict=True):
            key = names.topics[topic], partition
            highest[key] = max(epoch, highest.get(key, epoch))
    refs = {ref: number for number, ref in enumerate(dict.fromkeys(ref for ref, _ in highest))}
    names = Names(
        tuple(refs),
        np.array([refs[ref] for ref, _ in highest], np.int32),
        np.array([partition for _, partition in highest], np.int32),
    )
    return LeaderEpochs.of(names, np.array([*highest.values()], np.int32))


def one(name: TopicPartition, topic_id: bytes) -> Names:
    """Returns the name of one partition of a topic with an id."""
    zero = np.zeros(1, np.int32)
    return Names((TopicRef(name.topic, topic_id),), zero, np.array([name.partition], np.int32))
