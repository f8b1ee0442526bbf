"""Reports of participants about their leaderships to the controller, and the events that release leaderships.

Of Kafka's brokers, none sends these reports.
"""

from typing import Annotated, Final

import msgspec
import numpy as np

from kactl.decide.state.records import Names
from kactl.decide.state.rows import Ints
from kactl.model import NO_EPOCH, TopicRef
from kactl.model.errors import BadRequest

from .admin import ControllerRequest
from .events import BRIEF_PARTITIONS_MAX, ControllerState, Event, Priority

_NUMBER: Final = np.dtype("<i4")
# Topics of one report: more are rejected before they are decoded.
TOPICS_MAX: Final = 20_000


class LeaderEpochs(msgspec.Struct, frozen=True):
    """Partitions, each with a leader epoch.

    Attributes:
        topics: the topics, with their ids.
        topic, partition, leader_epoch: columns of 32-bit numbers as bytes, little-endian; `topic` is an index.
    """

    topics: Annotated[tuple[TopicRef, ...], msgspec.Meta(max_length=TOPICS_MAX)] = ()
    topic: bytes = b""
    partition: bytes = b""
    leader_epoch: bytes = b""

    def __len__(self) -> int:
        return len(self.leader_epoch) // _NUMBER.itemsize

    @classmethod
    def of(cls, names: Names, leader_epoch: Ints) -> "LeaderEpochs":
        columns = (names.topic, names.partition, leader_epoch)
        return cls(tuple(names.topics), *(column.astype(_NUMBER).tobytes() for column in columns))

    def columns(self) -> tuple[Names, Ints]:
        """Returns the partitions, and int32[n] leader epochs.

        Raises:
            BadRequest: the columns do not fit each other.
        """
        sizes = {len(column) for column in (self.topic, self.partition, self.leader_epoch)}
        if len(sizes) > 1 or sizes.pop() % _NUMBER.itemsize:
            raise BadRequest("leaderships", "has columns of different lengths")
        topic, partition, epoch = (
            np.frombuffer(column, _NUMBER).astype(np.int32, copy=False)
            for column in (self.topic, self.partition, self.leader_epoch)
        )
        if len(topic) and not 0 <= topic.min() <= topic.max() < len(self.topics):
            raise BadRequest("leaderships", "names a topic that is not among its topics")
        return Names(self.topics, topic, partition), epoch


class ReportLeaderships(ControllerRequest, frozen=True):
    """Leaderships of a participant that have ended, or wait for their release. Answer: None.

    The participant repeats a report without an answer, and leaderships that still wait. Raises NotController,
    BrokerNotAvailable or StaleBrokerEpoch.

    Attributes:
        number: rises with each report under one registration. A report that arrives after a later one is ignored.
        ended: no leadership below the epoch is left, and none begins there without a release.
        waiting: leaderships that wait for a LeaseRelease.
        complete: the controller epoch of the last StateSent with leaderships that have all ended; NO_EPOCH if none.
        leaving: every leadership has ended, and the registration ends next.
    """

    state = ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
    broker: int
    broker_epoch: int
    number: int
    ended: LeaderEpochs
    waiting: LeaderEpochs
    complete: int = NO_EPOCH
    leaving: bool = False

    @property
    def priority(self) -> Priority:
        return Priority.HIGH if len(self.ended) + len(self.waiting) <= BRIEF_PARTITIONS_MAX else Priority.LOW


class HolderSilence(Event, frozen=True):
    """A participant that may still lead has not reported the end of its leaderships for its session timeout.

    Attributes:
        broker_epoch: of its registration.
    """

    state = ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
    retry_later = True
    broker: int
    broker_epoch: int


class HolderExpiry(Event, frozen=True):
    """The leases of a holder have ended: it was waited for long enough.

    Attributes:
        holder: see `kactl.decide.state.holds`.
    """

    state = ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
    holder: int
