"""Absence of dead ends: once faults and requests are over, every state leads to a cluster at rest.

At rest, one controller is active and has nothing to do, its memory equals the store, every live broker is registered
and agrees with it, the partition has a leader if a member of its ISR lives, every live replica is in the ISR, and a
reassignment is complete if the brokers of its target live.
"""

import dataclasses
from typing import Final

from .components import (
    BROKERS,
    FOLLOWER,
    LEADER,
    NONE,
    Broker,
    Controller,
    Store,
    bit,
    members,
)
from .model import Model, State

# A search that has seen this many states without an end is given up, and counted.
SEARCH_MAX: Final = 5_000


@dataclasses.dataclass(frozen=True)
class DeadEnd:
    """A state from which no cluster at rest can be reached.

    Attributes:
        start: the state.
        last: a state in which nothing more happens, or that the search ended with.
        missing: conditions that `last` does not meet.
        labels: the transitions between them.
    """

    start: State
    last: State
    missing: str
    labels: tuple[str, ...]


class Endings:
    """Searches for dead ends. States that are known to end well are kept for the next search."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.good: set[int] = set()
        self.searched = 0
        self.given_up = 0

    def check(self, start: State) -> DeadEnd | None:
        """Returns the dead end that a state is, or None."""
        self.searched += 1
        model, good = self.model, self.good
        if model.hash(start) in good:
            return None
        came: dict[State, tuple[State, str] | None] = {start: None}
        waiting = [start]
        last = start
        while waiting:
            state = waiting.pop()
            if model.hash(state) in good or not missing(model, state):
                while True:
                    good.add(model.hash(state))
                    step = came[state]
                    if step is None:
                        return None
                    state = step[0]
            last = state
            if len(came) > SEARCH_MAX:
                self.given_up += 1
                return None
            # The last one is tried first: transitions of brokers, then those of the controllers.
            for label, target, fault, found in model.successors(state):
                if not fault and found is None and target not in came:
                    came[target] = state, label
                    waiting.append(target)
        return self._dead_end(start, last, came)

    def _dead_end(self, start: State, last: State, came: dict[State, tuple[State, str] | None]) -> DeadEnd:
        labels, state = [], last
        while (step := came[state]) is not None:
            state = step[0]
            labels.append(step[1])
        return DeadEnd(start, last, missing(self.model, last), tuple(reversed(labels)))


def missing(model: Model, state: State) -> str:
    """Returns the conditions of rest that a cluster does not meet; empty if it is at rest."""
    store, controllers, brokers = model.components(state)
    active = [controller for controller in controllers if controller.epoch]
    if not store.held or len(active) != 1 or active[0].epoch != store.epoch:
        return "LIV-01: not exactly one active controller"
    return (
        _sessions(store, brokers)
        or _work(active[0], store)
        or _leads(store, brokers)
        or _agrees(store, brokers, model)
        or _memory(active[0], store)
    )


def _sessions(store: Store, brokers: tuple[Broker, ...]) -> str:
    for number, broker in enumerate(brokers):
        if store.registered[number] != (broker.incarnation if broker.alive else 0):
            return f"LIV-10: the registration of {number} is not that of its process"
    return ""


def _work(controller: Controller, store: Store) -> str:
    if controller.steps or controller.due or controller.retry or controller.known != store.registered:
        return "LIV-08: the controller has something to do"
    return "LIV-02: a broker is still marked as shutting down" if controller.shutting else ""


def _leads(store: Store, brokers: tuple[Broker, ...]) -> str:
    alive = sum(bit(number) for number, broker in enumerate(brokers) if broker.alive)
    if store.isr & alive and (store.leader == NONE or not brokers[store.leader].alive):
        return f"LIV-02: the leader is {store.leader}, the ISR {members(store.isr)}, live are {members(alive)}"
    return ""


def _agrees(store: Store, brokers: tuple[Broker, ...], model: Model) -> str:
    masks = model.assignments.masks[store.assignment]
    for number in BROKERS:
        broker = brokers[number]
        if not broker.alive or store.leader == NONE:
            continue
        if broker.queues:
            return f"LIV-03: a request to {number} is on its way"
        if not masks.replicas & bit(number):
            if broker.role in (LEADER, FOLLOWER):
                return f"INV-46: {number} serves a replica that it is not assigned"
            continue
        role = LEADER if store.leader == number else FOLLOWER
        if (broker.role, broker.leader_epoch) != (role, store.leader_epoch):
            return f"LIV-03: {number} has not the stored role and leader epoch"
        if role == LEADER and (broker.isr, broker.version) != (store.isr, store.version):
            return f"LIV-03: leader {number} has not the stored ISR"
        if not store.isr & bit(number):
            return f"LIV-04: {number} is not in the ISR"
    dead = [number for number in members(masks.target) if not brokers[number].alive]
    if store.leader != NONE and masks.adding | masks.removing and not dead:
        return "LIV-05: the reassignment is not complete"
    return ""


def _memory(controller: Controller, store: Store) -> str:
    memory = controller.leader, controller.leader_epoch, controller.version, controller.isr, controller.assignment
    stored = store.leader, store.leader_epoch, store.version, store.isr, store.assignment
    return "" if memory == stored else f"INV-09: {memory} in memory, {stored} in the store"
