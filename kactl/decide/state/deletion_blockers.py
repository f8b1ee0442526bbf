"""Reasons why the deletion of a topic is blocked (in Kafka: ineligible for deletion), and their remedies.

A blocker is removed when a broker that holds a replica of the topic starts, when a reassignment of one of its
partitions completes, and when the next controller starts. It is never removed otherwise, and never by a timeout.
"""

import enum
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from kactl.model.errors import ErrorCode

# So many ids are listed in a message; the others are counted.
_NAMED_MAX: Final = 10


class BlockerReason(enum.Enum):
    """Reason of a blocker, in the words of Kafka's log messages."""

    OFFLINE_REPLICAS = "offline replicas"
    REPLICA_FAILED = "replica deletion failure"
    REASSIGNMENT = "topic reassignment in progress"


class DeletionBlocker(msgspec.Struct, frozen=True):
    """One reason why the deletion of one topic is blocked.

    Attributes:
        brokers: the brokers of the blocking replicas, ascending; empty for a reassignment.
        partitions: the numbers of the partitions concerned, ascending.
        error: the error code in a broker's response; NONE if no response is the reason.
    """

    reason: BlockerReason
    brokers: tuple[int, ...] = ()
    partitions: tuple[int, ...] = ()
    error: int = ErrorCode.NONE

    @property
    def text(self) -> str:
        """Returns the reason as a clause: "partitions 0, 1 are being reassigned"."""
        partitions, brokers = _counted("partition", self.partitions), _counted("broker", self.brokers)
        if self.reason is BlockerReason.REASSIGNMENT:
            return f"{partitions if self.partitions else 'partitions'} {_are(self.partitions)} being reassigned"
        if self.reason is BlockerReason.OFFLINE_REPLICAS:
            return f"replicas of {partitions} on {brokers} are offline"
        if self.error == ErrorCode.NONE:
            return f"{brokers} failed during the deletion of replicas of {partitions}"
        error_name = ErrorCode(self.error).name if self.error in set(ErrorCode) else "an unknown error"
        return f"{brokers} failed to delete replicas of {partitions}: {error_name} ({self.error})"

    def remedy(self, shutting_down: Collection[int] = ()) -> str:
        """Returns the actions that an operator can take.

        Args:
            shutting_down: registered brokers that are about to stop. Restarting one of these now has no effect.
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
            remedies.append(
                f"start {named}; a broker that is running has a failed log directory: repair it and restart the broker"
            )
        return "; ".join(remedies)


def _counted(kind: str, numbers: Iterable[int]) -> str:
    ids = list(numbers)
    named = ", ".join(map(str, ids[:_NAMED_MAX]))
    more = f" and {len(ids) - _NAMED_MAX} more" if len(ids) > _NAMED_MAX else ""
    return f"{kind}{'' if len(ids) == 1 else 's'} {named}{more}"


def _are(numbers: Collection[int]) -> str:
    return "is" if len(numbers) == 1 else "are"
