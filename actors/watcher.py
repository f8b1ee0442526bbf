"""Watcher: turns notifications of the store into events of the controller.

An event that waits in the controller's inbox is not queued again: its handler reads the state that is stored by then.
"""

from collections.abc import Callable
from typing import Final

from kactl.decide.messages.events import (
    BrokerChange,
    BrokerModifications,
    ControllerChange,
    Event,
    Expire,
    IsrChangeNotification,
    LogDirEventNotification,
    PartitionModifications,
    PartitionReassignmentIsrChange,
    Reelect,
    RegisterBrokerAndReelect,
    TopicChange,
    TopicDeletion,
    TopicUncleanLeaderElectionEnable,
    UncleanLeaderElectionEnable,
    ZkPartitionReassignment,
    ZkReplicaLeaderElection,
)
from kactl.model import TopicPartition
from kactl.model.errors import KactlError
from kactl.runtime.logs import logger
from kactl.stores.base import Changed, StoreEvent

from .actor import ActorStopped
from .channel import SendGate
from .priority_inbox import PriorityInbox

log = logger(__name__)

_EVENTS: Final[dict[Changed, Callable[[str], Event]]] = {
    Changed.CONTROLLER: lambda _: ControllerChange(),
    Changed.CONTROLLER_GONE: lambda _: Reelect(),
    Changed.BROKERS: lambda _: BrokerChange(),
    Changed.BROKER: lambda name: BrokerModifications(int(name)),
    Changed.TOPICS: lambda _: TopicChange(),
    Changed.TOPIC: PartitionModifications,
    Changed.TOPIC_CONFIG: TopicUncleanLeaderElectionEnable,
    Changed.DEFAULT_CONFIG: lambda _: UncleanLeaderElectionEnable(),
    Changed.DELETIONS: lambda _: TopicDeletion(),
    Changed.REASSIGNMENT_REQUEST: lambda _: ZkPartitionReassignment(),
    Changed.PREFERRED_ELECTION_REQUEST: lambda _: ZkReplicaLeaderElection(),
    Changed.LEADERSHIP: lambda name: PartitionReassignmentIsrChange(TopicPartition.parse(name)),
    Changed.ISR_NOTIFICATIONS: lambda _: IsrChangeNotification(),
    Changed.LOG_DIR_NOTIFICATIONS: lambda _: LogDirEventNotification(),
    Changed.SESSION_OPENED: lambda _: RegisterBrokerAndReelect(),
}

# Their handlers record each change. Those of settings, of addresses and of the controller change what is not recorded.
RECORDED: Final = frozenset(
    {
        BrokerChange,
        TopicChange,
        PartitionModifications,
        TopicDeletion,
        IsrChangeNotification,
        PartitionReassignmentIsrChange,
        ZkReplicaLeaderElection,
        ZkPartitionReassignment,
    }
)


class Watcher:
    """Listener of the store.

    Args:
        inbox: the controller's.
        clear_and_put: clears the inbox and queues one event.
        gate: closed at once while the session may have expired, also during an event.
        configs: also receives every change, for configurations that are cached outside the controller.
    """

    def __init__(
        self,
        inbox: PriorityInbox[Event],
        clear_and_put: Callable[[Event], None],
        gate: SendGate,
        configs: Callable[[StoreEvent], None] = lambda _: None,
    ) -> None:
        self._inbox = inbox
        self._clear_and_put = clear_and_put
        self._gate = gate
        self._configs = configs

    def __call__(self, change: StoreEvent) -> None:
        """Called in the event loop's thread; never raises."""
        self._configs(change)
        try:
            if change.what is Changed.SESSION_LOST:
                self._clear_and_put(Expire())
                # It opens again after this instance has resigned and dropped all waiting requests.
                self._gate.pause("our session with the store has ended")
                return
            if change.what is Changed.SUSPENDED:
                self._gate.pause("the store has not responded, and the session of this instance may have ended")
            elif change.what is Changed.CONNECTED:
                self._gate.open()
            make = _EVENTS.get(change.what)
            if make is not None:
                self._inbox.put_once(make(change.name))
        except ActorStopped:
            # An instance that stops deletes its own controllership; no event is needed for that.
            log.debug("%s %s changed after the controller had stopped", change.what.value, change.name)
        except KactlError as refused:
            log.error("a change in the store (%s %s) was lost: %s", change.what.value, change.name, refused)
