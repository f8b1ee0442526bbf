"""Components of a state of the model: store, controller, broker with the messages to it.

Brokers are numbered 0, 1, 2; sets of brokers are bit masks. Epochs are relative: `Components.shifted` subtracts the
same number from all of a state. Controllers have no identity: the active one is the one whose epoch is the stored one.
"""

from typing import Final, NamedTuple

BROKERS: Final = (0, 1, 2)
NONE: Final = -1  # no leader, or no leader epoch

# Kinds of messages.
LEAD: Final = 0  # LeaderAndIsr
STOP: Final = 1  # StopReplica
DELETE: Final = 2  # StopReplica that deletes the log

# Roles of a replica.
ABSENT_ROLE: Final = 0
LEADER: Final = 1
FOLLOWER: Final = 2
STOPPED: Final = 3
DELETED: Final = 4

# States of a replica in the memory of a controller.
R_ABSENT: Final = 0
R_NEW: Final = 1
R_ONLINE: Final = 2
R_OFFLINE: Final = 3


class Store(NamedTuple):
    """Everything that is stored, and the faults and requests that may still happen.

    Attributes:
        epoch: controller epoch.
        held: whether the session of the controller of that epoch lives.
        writer: epoch of the controller that wrote the leadership.
        assignment: number of an assignment; see `assignments`.
        registered: incarnation that each broker is registered under; 0 for none.
    """

    epoch: int
    held: bool
    leader: int
    leader_epoch: int
    version: int
    isr: int
    recovering: bool
    writer: int
    assignment: int
    registered: tuple[int, int, int]
    crashes: int
    requests: int
    losses: int


class Step(NamedTuple):
    """One thing that a controller has still to do.

    Attributes:
        kind: name of the step; see `controllers`.
        brokers: mask of the brokers that it is about.
        value: argument of the kind.
    """

    kind: str
    brokers: int = 0
    value: tuple[int, ...] = ()


class Batch(NamedTuple):
    """Requests that are gathered and not sent yet.

    Attributes:
        notify: brokers that receive LeaderAndIsr.
        stops: (broker, kind, leader epoch) of each StopReplica.
    """

    notify: int = 0
    stops: tuple[tuple[int, int, int], ...] = ()


class Controller(NamedTuple):
    """One controller instance.

    Attributes:
        epoch: 0 on standby; the other values have no meaning then.
        online: whether the partition is ONLINE in memory, and not OFFLINE.
        replicas: state of each replica in memory.
        known: incarnation that each broker is known under; 0 if it is not known.
        shutting: brokers that are shutting down.
        moving: the partition is being reassigned.
        due: a check is queued whether the reassignment is complete.
        retry: a write has failed and is to be repeated.
        ready: the takeover is complete.
    """

    epoch: int = 0
    leader: int = NONE
    leader_epoch: int = 0
    version: int = 0
    isr: int = 0
    recovering: bool = False
    assignment: int = 0
    online: bool = False
    replicas: tuple[int, int, int] = (0, 0, 0)
    known: tuple[int, int, int] = (0, 0, 0)
    shutting: int = 0
    moving: bool = False
    due: bool = False
    retry: bool = False
    ready: bool = False
    steps: tuple[Step, ...] = ()
    batch: Batch = Batch()


STANDBY: Final = Controller()


class Message(NamedTuple):
    """A request for one incarnation of a broker."""

    incarnation: int
    kind: int
    leader: int
    leader_epoch: int
    version: int
    isr: int
    recovering: bool
    replicas: int


class Proposal(NamedTuple):
    """An ISR that a leader has proposed and not seen decided.

    Attributes:
        incarnation: of the leader.
        incarnations: of each member, as the leader knew it; 0 for brokers that are no members.
    """

    incarnation: int
    leader_epoch: int
    version: int
    isr: int
    incarnations: tuple[int, int, int]


Queue = tuple[tuple[int, tuple[Message, ...]], ...]


class Broker(NamedTuple):
    """One broker, and the messages to it.

    Attributes:
        incarnation: of the process, or of the last one.
        seen: highest controller epoch received.
        replicas: mask of the assigned brokers, as received.
        stopped: leader epoch of the last StopReplica, NONE before one; only checked, never used.
        stopper: controller epoch of the last StopReplica.
        queues: messages by controller epoch, in the order in which they are sent.
        strays: (controller epoch, message) of connections that were broken; they arrive at any time.
    """

    alive: bool = True
    incarnation: int = 1
    seen: int = 0
    role: int = ABSENT_ROLE
    leader_epoch: int = 0
    version: int = 0
    isr: int = 0
    recovering: bool = False
    replicas: int = 0
    stopped: int = NONE
    stopper: int = 0
    proposal: Proposal | None = None
    queues: Queue = ()
    strays: tuple[tuple[int, Message], ...] = ()


def bit(broker: int) -> int:
    return 1 << broker if broker >= 0 else 0


def members(mask: int) -> tuple[int, ...]:
    return tuple(broker for broker in BROKERS if mask >> broker & 1)


def count(broker: Broker) -> int:
    """Returns the number of messages to a broker."""
    return len(broker.strays) + sum(len(queue) for _, queue in broker.queues)


# -- epochs ------------------------------------------------------------------------------------------------------------

# Larger than every epoch: the minimum of nothing.
MANY: Final = 1 << 20
Lowest = tuple[int, int, int]


def lowest(component: Store | Controller | Broker) -> Lowest:
    """Returns the lowest controller epoch, leader epoch and version of a component.

    The controller epochs that a broker has seen, and those in the leadership, do not count: only whether they are
    higher than a later one matters.
    """
    if isinstance(component, Store):
        return component.epoch, component.leader_epoch, component.version
    if isinstance(component, Controller):
        if not component.epoch:
            return MANY, MANY, MANY
        epochs = [component.leader_epoch, *(epoch for _, _, epoch in component.batch.stops)]
        return component.epoch, min(epochs), component.version
    return _lowest_of_broker(component)


def _lowest_of_broker(broker: Broker) -> Lowest:
    controller, leader, version = [MANY], [MANY], [MANY]
    if broker.role != ABSENT_ROLE:
        leader.append(broker.leader_epoch)
        version.append(broker.version)
    if broker.stopped != NONE:
        leader.append(broker.stopped)
    if broker.proposal is not None:
        leader.append(broker.proposal.leader_epoch)
        version.append(broker.proposal.version)
    for epoch, messages in broker.queues:
        controller.append(epoch)
        for message in messages:
            leader.append(message.leader_epoch)
            version.append(message.version if message.kind == LEAD else MANY)
    for epoch, message in broker.strays:
        controller.append(epoch)
        leader.append(message.leader_epoch)
        version.append(message.version if message.kind == LEAD else MANY)
    return min(controller), min(leader), min(version)


def shifted(component: Store | Controller | Broker, by: Lowest) -> Store | Controller | Broker:
    """Returns a component with lower epochs. Controller epochs that nothing depends on end at 0 or 1."""
    controller, leader, version = by
    if isinstance(component, Store):
        return component._replace(
            epoch=component.epoch - controller,
            writer=max(component.writer - controller, 0),
            leader_epoch=component.leader_epoch - leader,
            version=component.version - version,
        )
    if isinstance(component, Controller):
        if not component.epoch:
            return component
        stops = tuple((broker, kind, epoch - leader) for broker, kind, epoch in component.batch.stops)
        return component._replace(
            epoch=component.epoch - controller,
            leader_epoch=component.leader_epoch - leader,
            version=component.version - version,
            batch=component.batch._replace(stops=stops),
        )
    return _shifted_broker(component, by)


def _shifted_broker(broker: Broker, by: Lowest) -> Broker:
    controller, leader, version = by
    proposal = broker.proposal
    if proposal is not None:
        proposal = proposal._replace(leader_epoch=proposal.leader_epoch - leader, version=proposal.version - version)
    hosts = broker.role != ABSENT_ROLE
    return broker._replace(
        seen=max(broker.seen - controller, 0),
        stopper=max(broker.stopper - controller, 0),
        leader_epoch=broker.leader_epoch - leader if hosts else 0,
        version=broker.version - version if hosts else 0,
        stopped=broker.stopped - leader if broker.stopped != NONE else NONE,
        proposal=proposal,
        queues=tuple(
            (epoch - controller, tuple(_shifted_message(message, leader, version) for message in messages))
            for epoch, messages in broker.queues
        ),
        strays=tuple(
            (epoch - controller, _shifted_message(message, leader, version)) for epoch, message in broker.strays
        ),
    )


def _shifted_message(message: Message, leader: int, version: int) -> Message:
    return message._replace(
        leader_epoch=message.leader_epoch - leader, version=message.version - version if message.kind == LEAD else 0
    )
