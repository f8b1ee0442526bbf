"""Bounds of the exploration, and the states that it starts from."""

import dataclasses
from collections.abc import Iterator
from typing import Final

from kactl.model import Assignment

from .assignments import Assignments
from .components import (
    BROKERS,
    FOLLOWER,
    LEADER,
    R_ABSENT,
    R_NEW,
    R_ONLINE,
    STANDBY,
    Broker,
    Controller,
    Store,
    members,
)

Root = tuple[Store, tuple[Controller, Controller], tuple[Broker, ...]]


@dataclasses.dataclass(frozen=True)
class Scope:
    """Bounds.

    Attributes:
        replicas: the assignments that the partition starts with.
        targets: of reassignments.
        unclean: whether the topic allows unclean elections.
        crashes: of brokers, and sessions of live brokers that end.
        requests: of operators and brokers to the controller: reassign, cancel, elect, shut down.
        losses: sessions of controllers, responses of the store and connections that are lost.
        epochs, leader_epochs, versions: by how much they may exceed the lowest one that is still in use.
        messages: to all brokers together.
    """

    replicas: tuple[tuple[int, ...], ...] = ((0, 1),)
    targets: tuple[tuple[int, ...], ...] = ((1, 2),)
    unclean: bool = False
    crashes: int = 3
    requests: int = 1
    losses: int = 2
    epochs: int = 3
    leader_epochs: int = 4
    versions: int = 6
    messages: int = 4

    def roots(self, assignments: Assignments) -> Iterator[Root]:
        """Yields a cluster at rest with both replicas in sync, with the leader alone, and one that is reassigned."""
        for replicas in self.replicas:
            number = assignments.number(Assignment(replicas))
            everyone = sum(1 << broker for broker in replicas)
            yield self._at_rest(assignments, number, everyone)
            yield self._at_rest(assignments, number, 1 << replicas[0])
            for target in self.targets:
                moving = assignments.move(number, target)
                yield self._at_rest(assignments, moving, everyone)
                yield self._at_rest(assignments, moving, assignments.masks[moving].replicas)

    def _at_rest(self, assignments: Assignments, number: int, isr: int) -> Root:
        masks = assignments.masks[number]
        leader = 0
        store = Store(
            epoch=1,
            held=True,
            leader=leader,
            leader_epoch=0,
            version=0,
            isr=isr,
            recovering=False,
            writer=1,
            assignment=number,
            registered=(1, 1, 1),
            crashes=self.crashes,
            requests=self.requests,
            losses=self.losses,
        )
        moving = bool(masks.adding | masks.removing)
        states = [
            R_ABSENT if not masks.replicas >> broker & 1 else R_NEW if masks.adding >> broker & 1 else R_ONLINE
            for broker in BROKERS
        ]
        active = Controller(
            epoch=1,
            leader=leader,
            isr=isr,
            assignment=number,
            online=True,
            replicas=(states[0], states[1], states[2]),
            known=(1, 1, 1),
            moving=moving,
            due=moving and not masks.target & ~isr,
            ready=True,
        )
        brokers = tuple(self._broker(broker, leader, isr, masks.replicas) for broker in BROKERS)
        return store, (active, STANDBY), brokers

    def _broker(self, broker: int, leader: int, isr: int, replicas: int) -> Broker:
        if broker not in members(replicas):
            return Broker(seen=1)
        if broker == leader:
            return Broker(seen=1, role=LEADER, isr=isr, replicas=replicas)
        return Broker(seen=1, role=FOLLOWER)


# Explored on every change, and at night.
DEFAULT: Final = Scope()
