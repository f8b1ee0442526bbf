"""Why the deletion of a topic does not go on, what holds it up, and what would set it going again.

A halt is lifted when a broker starts that holds a replica of the topic, when a reassignment of one of its partitions
completes, and by the next controller; by nothing else, and never by time.
"""

import enum
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from kactl.errors import ErrorCode

# So many are named in a sentence; the others are counted.
_NAMED_MAX: Final = 10


class BlockerReason(enum.Enum):
    """Why; the words are those that Kafka logs."""

    OFFLINE_REPLICAS = "offline replicas"
    REPLICA_FAILED = "replica deletion failure"
    REASSIGNMENT = "topic reassignment in progress"


class DeletionBlocker(msgspec.Struct, frozen=True):
    """One reason why one topic's deletion does not go on.

    Attributes:
        brokers: whose replicas hold it up, ascending; empty for a reassignment.
        partitions: the numbers of the partitions concerned, ascending.
        error: what a broker answered; NONE where no answer is the reason.
    """

    reason: BlockerReason
    brokers: tuple[int, ...] = ()
    partitions: tuple[int, ...] = ()
    error: int = ErrorCode.NONE

    @property
    def text(self) -> str:
        """What holds the deletion up, as a sentence without its beginning: "partitions 0, 1 are being reassigned"."""
        partitions, brokers = _counted("partition", self.partitions), _counted("broker", self.brokers)
        if self.reason is BlockerReason.REASSIGNMENT:
            return f"{partitions if self.partitions else 'partitions'} {_are(self.partitions)} being reassigned"
        if self.reason is BlockerReason.OFFLINE_REPLICAS:
            return f"replicas of {partitions} on {brokers} are offline"
        if self.error == ErrorCode.NONE:
            return f"{brokers} failed while replicas of {partitions} were to be deleted there"
        named = ErrorCode(self.error).name if self.error in set(ErrorCode) else "an error that kactl does not know"
        return f"{brokers} could not delete replicas of {partitions}: {named} ({self.error})"

    def remedy(self, shutting_down: Collection[int] = ()) -> str:
        """What a person can do about it.

        Args:
            shutting_down: registered brokers that are about to stop. Starting one of these again does nothing.
        """
        if self.reason is BlockerReason.REASSIGNMENT:
            return "wait until the brokers that are being added are in sync; it can no longer be cancelled"
        brokers = _counted("broker", self.brokers)
        if self.error != ErrorCode.NONE:
            return f"read the log of {brokers} for the cause and restart it, or let another controller take over"
        stopping = [broker for broker in self.brokers if broker in shutting_down]
        others = [broker for broker in self.brokers if broker not in shutting_down]
        remedies = []
        if stopping:
            undo = " and ".join(f"kactl broker drain --undo {broker}" for broker in stopping[:_NAMED_MAX])
            remedies.append(f"{_counted('broker', stopping)} {_are(stopping)} shutting down: restart it, or {undo}")
        if others:
            named = _counted("broker", others)
            remedies.append(f"start {named}; one that runs has a directory that failed: mend it and restart the broker")
        return "; ".join(remedies)


def _counted(kind: str, numbers: Iterable[int]) -> str:
    held = list(numbers)
    named = ", ".join(map(str, held[:_NAMED_MAX]))
    more = f" and {len(held) - _NAMED_MAX} more" if len(held) > _NAMED_MAX else ""
    return f"{kind}{'' if len(held) == 1 else 's'} {named}{more}"


def _are(numbers: Collection[int]) -> str:
    return "is" if len(numbers) == 1 else "are"
