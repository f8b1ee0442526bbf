"""Transitions of a broker: crash, start, expiry, delivery of requests, proposals of ISRs.

The checks of requests are those of `kactl.participant.checks`, looked up in `tables`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .components import (
    ABSENT_ROLE,
    DELETE,
    DELETED,
    FOLLOWER,
    LEAD,
    LEADER,
    NONE,
    STOPPED,
    Broker,
    Message,
    Proposal,
    Queue,
    Store,
    bit,
)
from .invariants import Found, on_apply, one_leader
from .mutants import Mutant
from .tables import Tables


class Change(NamedTuple):
    """One transition of a broker and the store. `fault`: nothing makes it happen once the faults are over."""

    label: str
    store: Store
    broker: Broker
    fault: bool = False
    found: Found | None = None


class Brokers:
    """The transitions, for one scope."""

    def __init__(self, tables: Tables, mutant: Mutant) -> None:
        self._tables = tables
        self._mutant = mutant

    # -- processes and sessions ----------------------------------------------------------------------------------------

    def changes(self, number: int, store: Store, broker: Broker) -> Iterator[Change]:
        """Yields every transition of one broker that depends on no other component."""
        registered = store.registered[number]
        if broker.alive:
            yield from self._alive(number, store, broker, registered)
            yield from self._deliveries(number, store, broker)
        elif registered:
            yield Change(f"the registration of {number} expires", _registered(store, number, 0), broker)
        else:
            yield self._begins(number, f"{number} starts", store, broker)._replace(fault=True)

    def _alive(self, number: int, store: Store, broker: Broker, registered: int) -> Iterator[Change]:
        if registered != broker.incarnation:
            yield self._begins(number, f"{number} learns that its session is lost, and registers again", store, broker)
        if not store.crashes:
            return
        spent = store._replace(crashes=store.crashes - 1)
        dead = Broker(
            alive=False,
            incarnation=broker.incarnation,
            proposal=broker.proposal,
            queues=broker.queues,
            strays=broker.strays,
        )
        yield Change(f"{number} crashes", spent, self.tidy(number, dead), fault=True)
        if registered == broker.incarnation:
            yield Change(f"the session of {number} ends", _registered(spent, number, 0), broker, fault=True)

    def _begins(self, number: int, label: str, store: Store, broker: Broker) -> Change:
        incarnation = broker.incarnation + 1
        fresh = Broker(incarnation=incarnation, proposal=broker.proposal, queues=broker.queues, strays=broker.strays)
        return Change(label, _registered(store, number, incarnation), self.tidy(number, fresh))

    # -- requests ------------------------------------------------------------------------------------------------------

    def _deliveries(self, number: int, store: Store, broker: Broker) -> Iterator[Change]:
        for position, (epoch, messages) in enumerate(broker.queues):
            rest = _with_queue(broker.queues, position, messages[1:])
            after = broker._replace(queues=rest)
            yield self._delivered(number, store, broker, epoch, messages[0], after)
            if store.losses and not broker.strays:
                spent = store._replace(losses=store.losses - 1)
                stray = broker._replace(strays=((epoch, messages[0]),))
                yield Change(f"the {_named(messages[0])} to {number} is doubled", spent, stray, fault=True)
                for following in messages[1:2]:
                    doubled = after._replace(strays=((epoch, following),))
                    change = self._delivered(number, spent, broker, epoch, messages[0], doubled)
                    label = f"{change.label}, and what follows is doubled"
                    yield change._replace(label=label, fault=True)
        for epoch, message in broker.strays:
            yield self._delivered(number, store, broker, epoch, message, broker._replace(strays=()))

    def _delivered(
        self, number: int, store: Store, broker: Broker, epoch: int, message: Message, after: Broker
    ) -> Change:
        label = f"{number} receives the {_named(message)} of controller epoch {epoch}"
        if not self._accepts(broker, epoch, message):
            return Change(label + ": refused", store, self.tidy(number, after))
        after = self._carried_out(number, after, epoch, message)
        found = on_apply(number, broker, epoch, message, after) or one_leader(store, number, after)
        return Change(label, store, self.tidy(number, after), found=found)

    def _carried_out(self, number: int, broker: Broker, epoch: int, message: Message) -> Broker:
        broker = broker._replace(seen=max(epoch, broker.seen))
        if message.kind == LEAD:
            return self._leads(number, broker, epoch, message)
        return self._stops(broker, epoch, message)

    def _accepts(self, broker: Broker, epoch: int, message: Message) -> bool:
        """As `checks.request_error`. A dead broker accepts the requests that its next incarnation would accept."""
        incarnation = broker.incarnation + (not broker.alive)
        if message.incarnation < incarnation and not self._mutant.ignores_broker_epoch:
            return False
        return epoch >= broker.seen or self._mutant.ignores_controller_epoch

    def _leads(self, number: int, broker: Broker, epoch: int, message: Message) -> Broker:
        role = self._tables.lead[
            broker.role,
            _sign(message.leader_epoch - broker.leader_epoch),
            _sign(message.version - broker.version),
            message.leader == number,
            epoch > broker.stopper,
        ]
        if not role:
            return broker
        return broker._replace(
            role=LEADER if role == "lead" else FOLLOWER,
            leader_epoch=message.leader_epoch,
            version=message.version,
            isr=message.isr if role == "lead" else 0,
            recovering=message.recovering and role == "lead",
            replicas=message.replicas if role == "lead" else 0,
        )

    def _stops(self, broker: Broker, epoch: int, message: Message) -> Broker:
        sign = _sign(message.leader_epoch - broker.leader_epoch)
        stops = self._tables.stop[broker.role, sign, message.kind == DELETE]
        if not stops:
            return broker
        if broker.role in (ABSENT_ROLE, DELETED):
            return broker
        return broker._replace(
            role=DELETED if message.kind == DELETE else STOPPED,
            leader_epoch=max(broker.leader_epoch, message.leader_epoch),
            isr=0,
            recovering=False,
            replicas=0,
            stopped=max(broker.stopped, message.leader_epoch),
            stopper=epoch,
        )

    def tidy(self, number: int, broker: Broker) -> Broker:
        """Returns the broker without messages that it will refuse whenever they arrive.

        A LeaderAndIsr that makes a replica a follower is delivered as soon as nothing else can overtake it: that
        commutes with everything that other components do.
        """
        if not (broker.queues or broker.strays):
            return broker
        queues = tuple(
            (epoch, kept)
            for epoch, messages in broker.queues
            if (kept := tuple(message for message in messages if self._accepts(broker, epoch, message)))
        )
        strays = tuple(stray for stray in broker.strays if self._accepts(broker, *stray))
        broker = broker._replace(queues=queues, strays=strays)
        if not broker.alive or broker.role == LEADER or strays or len(queues) != 1:
            return broker
        ((epoch, messages),) = queues
        if messages[0].kind != LEAD:
            return broker
        after = self._carried_out(number, broker, epoch, messages[0])
        if after.role == LEADER or on_apply(number, broker, epoch, messages[0], after) is not None:
            return broker
        return self.tidy(number, after._replace(queues=_with_queue(queues, 0, messages[1:])))

    def received(
        self, number: int, broker: Broker, epoch: int, messages: tuple[Message, ...], stray: Message | None
    ) -> Broker:
        """Queue messages of the controller of an epoch.

        Args:
            stray: the first message, of which a copy arrives at any later time; None for no copy.
        """
        queues = dict(broker.queues)
        queues[epoch] = queues.get(epoch, ()) + messages
        strays = broker.strays if stray is None else ((epoch, stray),)
        return self.tidy(number, broker._replace(queues=tuple(sorted(queues.items())), strays=strays))

    def cut(self, broker: Broker, epoch: int) -> Broker:
        """Drop the messages that a controller has not sent yet. The first message may be on its way already."""
        queues = tuple((other, messages[:1] if other == epoch else messages) for other, messages in broker.queues)
        return broker._replace(queues=queues)

    # -- proposals -----------------------------------------------------------------------------------------------------

    def proposals(self, number: int, brokers: tuple[Broker, Broker, Broker]) -> Iterator[tuple[str, Broker, bool]]:
        """Yields (label, broker, fault) for each ISR that a leader may propose."""
        broker = brokers[number]
        open_ = broker.proposal
        if open_ is not None and (open_.incarnation, open_.leader_epoch) == (broker.incarnation, broker.leader_epoch):
            return
        for other, peer in enumerate(brokers):
            if other == number or not broker.replicas >> other & 1 | broker.isr >> other & 1:
                continue
            # A later epoch: the follower may have been seen before it received that.
            follows = peer.alive and peer.role == FOLLOWER and peer.leader_epoch >= broker.leader_epoch
            if broker.isr >> other & 1:
                isr, what, fault = broker.isr & ~bit(other), f"without {other}", follows
            elif follows and broker.replicas >> other & 1:
                isr, what, fault = broker.isr | bit(other), f"with {other}", False
            else:
                continue
            yield f"{number} proposes the ISR {what}", _proposing(broker, isr, brokers), fault
        if broker.recovering:
            yield f"{number} has recovered", _proposing(broker, broker.isr, brokers), False

    def replied(self, broker: Broker, version: int, isr: int, leader_epoch: int) -> Broker:
        """Return the leader with an accepted ISR. A later or an ended leadership is not changed."""
        if broker.proposal is None or broker.proposal.leader_epoch != leader_epoch:
            return broker
        decided = broker._replace(proposal=None)
        if broker.role != LEADER or broker.leader_epoch != leader_epoch or version < broker.version:
            return decided
        return decided._replace(version=version, isr=isr, recovering=False)


def _proposing(broker: Broker, isr: int, brokers: tuple[Broker, Broker, Broker]) -> Broker:
    epochs = [peer.incarnation if isr >> other & 1 else 0 for other, peer in enumerate(brokers)]
    proposal = Proposal(broker.incarnation, broker.leader_epoch, broker.version, isr, (epochs[0], epochs[1], epochs[2]))
    return broker._replace(proposal=proposal)


def _registered(store: Store, number: int, incarnation: int) -> Store:
    registered = list(store.registered)
    registered[number] = incarnation
    return store._replace(registered=(registered[0], registered[1], registered[2]))


def _with_queue(queues: Queue, position: int, messages: tuple[Message, ...]) -> Queue:
    epoch = queues[position][0]
    left = ((epoch, messages),) if messages else ()
    return (*queues[:position], *left, *queues[position + 1 :])


def _named(message: Message) -> str:
    if message.kind != LEAD:
        return f"StopReplica ({message.leader_epoch}{', delete' if message.kind == DELETE else ''})"
    leader = "none" if message.leader == NONE else message.leader
    return f"LeaderAndIsr (leader {leader}, epoch {message.leader_epoch})"


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
