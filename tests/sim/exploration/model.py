"""The model: states as numbers of components, and the successors of a state.

A state is (store, controller, controller, broker, broker, broker), each the number of a component. Components that are
equal have one number, and the transitions of components are computed once for each combination. The hash of a state is
made of keyed hashes of its components, so that it does not depend on the numbers.
"""

import functools
import hashlib
from collections.abc import Hashable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from .assignments import Assignments
from .brokers import Brokers
from .components import (
    BROKERS,
    LEADER,
    Broker,
    Controller,
    Store,
    count,
    lowest,
    shifted,
)
from .controllers import Controllers
from .invariants import Found, on_memory
from .mutants import MODEL, Mutant
from .scope import Scope
from .steps import Outcome
from .tables import Tables

State = tuple[int, int, int, int, int, int]
Hosts = tuple[int, int, int]
# Label, state, whether it is a fault or a request, and a violation, after which the state is not explored.
Successor = tuple[str, State, bool, Found | None]

# Bits of each component in a packed state: 16 bytes in all.
_WIDTHS: Final = (22, 22, 22, 20, 20, 20)
STATE_BYTES: Final = 16
_KEY: Final = b"kactl exploration"
# Combinations of components whose transitions are kept.
_KEPT_MAX: Final = 2_000_000

T = TypeVar("T", Store, Controller, Broker)


class Interned(Generic[T]):
    """Components of one kind by number.

    Attributes:
        hashes: of each component, for each of its positions in a state.
        flags: bit mask of the epochs that are lowest in the component: 1 controller, 2 leader epoch, 4 version.
    """

    def __init__(self, kind: str, positions: int, limit: int) -> None:
        self._kind = kind
        self._limit = limit
        self._number: dict[T, int] = {}
        self.all: list[T] = []
        self.hashes: list[list[int]] = [[] for _ in range(positions)]
        self.flags: list[int] = []

    def number(self, component: T) -> int:
        number = self._number.get(component)
        if number is None:
            number = self._number[component] = len(self.all)
            if number >= self._limit:
                raise OverflowError(f"more than {self._limit} different {self._kind}s: reduce the scope")
            self.all.append(component)
            self.flags.append(_flags(component))
            text = repr(component).encode()
            for position, hashes in enumerate(self.hashes):
                digest = hashlib.blake2b(text, digest_size=8, key=_KEY, person=f"{self._kind}{position}".encode())
                hashes.append(int.from_bytes(digest.digest(), "little"))
        return number


class Prepared(NamedTuple):
    """A transition of a controller and the store, in numbers.

    Attributes:
        delivered: the delivery to each broker: None, or (epoch, whether its connection is cut, messages, copy).
        doubles: the store after a message was doubled too; -1 if none can be.
    """

    label: str
    store: int
    controller: int
    delivered: Any
    fault: bool
    found: Found | None
    doubles: int


class Model:
    """States and transitions of one scope."""

    def __init__(self, scope: Scope, mutant: Mutant = MODEL) -> None:
        self.scope = scope
        self.mutant = mutant
        tables = _tables(scope.replicas, scope.targets)
        self.assignments = tables.assignments
        if mutant.edit is not None:
            tables = tables.copied()
            mutant.edit(tables)
        self.controllers = Controllers(self.assignments, tables, mutant, unclean=scope.unclean)
        self._brokers = Brokers(tables, mutant)
        self.stores = Interned[Store]("store", 1, 1 << _WIDTHS[0])
        self.instances = Interned[Controller]("control", 1, 1 << _WIDTHS[1])
        self.hosts = Interned[Broker]("broker", 3, 1 << _WIDTHS[3])
        self._steps: dict[tuple[int, int], list[Any]] = {}
        self._judged: dict[tuple[int, int, int, int], list[Any]] = {}
        self._changes: dict[tuple[int, int, int], list[Any]] = {}
        self._received: dict[Hashable, int] = {}
        self._messages: list[int] = []
        self._proposals: list[bool] = []

    # -- states --------------------------------------------------------------------------------------------------------

    def roots(self) -> list[State]:
        return [self.canonical(self.number(*root)) for root in self.scope.roots(self.assignments)]

    def number(self, store: Store, controllers: tuple[Controller, Controller], brokers: tuple[Broker, ...]) -> State:
        first, second = map(self.instances.number, controllers)
        return (self.stores.number(store), first, second, *map(self.hosts.number, brokers))  # type: ignore[return-value]

    def components(self, state: State) -> tuple[Store, tuple[Controller, Controller], tuple[Broker, Broker, Broker]]:
        store, first, second, *brokers = state
        a, b, c = (self.hosts.all[broker] for broker in brokers)
        return self.stores.all[store], (self.instances.all[first], self.instances.all[second]), (a, b, c)

    def hash(self, state: State) -> int:
        store, first, second, a, b, c = state
        # The order of the controllers has no meaning, and two equal ones are on standby.
        instances, hosts = self.instances.hashes[0], self.hosts.hashes
        return (
            self.stores.hashes[0][store]
            ^ ((instances[first] + instances[second]) & 0xFFFFFFFFFFFFFFFF)
            ^ hosts[0][a]
            ^ hosts[1][b]
            ^ hosts[2][c]
        )

    def pack(self, state: State) -> bytes:
        packed = 0
        for number, width in zip(state, _WIDTHS, strict=True):
            packed = packed << width | number
        return packed.to_bytes(STATE_BYTES, "big")

    def unpack(self, packed: bytes) -> State:
        left, numbers = int.from_bytes(packed, "big"), []
        for width in reversed(_WIDTHS):
            numbers.append(left & ((1 << width) - 1))
            left >>= width
        return tuple(reversed(numbers))  # type: ignore[return-value]

    def canonical(self, state: State) -> State:
        """Returns the state with the lowest epochs."""
        store, first, second, a, b, c = state
        instances, hosts = self.instances.flags, self.hosts.flags
        if (self.stores.flags[store] | instances[first] | instances[second] | hosts[a] | hosts[b] | hosts[c]) == 7:
            return state
        return self._shifted(state)

    def _shifted(self, state: State) -> State:
        store, controllers, brokers = self.components(state)
        parts: list[Any] = [store, *controllers, *brokers]
        lows = [lowest(part) for part in parts]
        by = min(low[0] for low in lows) - 1, min(low[1] for low in lows), min(low[2] for low in lows)
        if by == (0, 0, 0):
            return state
        store, first, second, *rest = (shifted(part, by) for part in parts)  # type: ignore[assignment]
        return self.number(store, (first, second), tuple(rest))  # type: ignore[arg-type]

    def in_scope(self, state: State) -> bool:
        """Whether the epochs and messages of a state are within the bounds."""
        store = self.stores.all[state[0]]
        scope = self.scope
        if store.epoch > scope.epochs or store.leader_epoch > scope.leader_epochs or store.version > scope.versions:
            return False
        counts = self._counts(state)
        return sum(counts) <= scope.messages

    def _counts(self, state: State) -> tuple[int, int, int]:
        messages, hosts = self._messages, self.hosts.all
        while len(messages) < len(hosts):
            messages.append(count(hosts[len(messages)]))
        return messages[state[3]], messages[state[4]], messages[state[5]]

    # -- transitions ---------------------------------------------------------------------------------------------------

    def successors(self, state: State) -> list[Successor]:
        """Returns all transitions. The states are canonical, and may be out of scope."""
        if len(self._steps) + len(self._judged) + len(self._changes) + len(self._received) > _KEPT_MAX:
            for kept in (self._steps, self._judged, self._changes, self._received):
                kept.clear()
        successors: list[Successor] = []
        store, first, second, a, b, c = state
        brokers = a, b, c
        self._of_controller(store, first, second, brokers, successors)
        if first != second:
            self._of_controller(store, second, first, brokers, successors)
        self._of_brokers(state, brokers, successors)
        return successors

    def _of_controller(
        self, store: int, instance: int, other: int, brokers: Hosts, successors: list[Successor]
    ) -> None:
        steps = self._steps.get((store, instance))
        if steps is None:
            outcomes = self.controllers.outcomes(self.stores.all[store], self.instances.all[instance])
            steps = self._steps[store, instance] = [self._prepared(outcome) for outcome in outcomes]
        for prepared in steps:
            successors.append(self._combined(prepared, other, brokers))
            if prepared.doubles >= 0:
                self._doubled(prepared, other, brokers, successors)
        proposals = self._proposals
        hosts = self.hosts.all
        while len(proposals) < len(hosts):
            proposals.append(hosts[len(proposals)].proposal is not None)
        for broker in BROKERS:
            if proposals[brokers[broker]] and self.controllers.may_judge(self.instances.all[instance]):
                self._judgements(store, instance, other, brokers, broker, successors)
                self._reconciled((store, instance, other, *brokers), broker, successors)

    def _doubled(self, prepared: Prepared, other: int, brokers: Hosts, successors: list[Successor]) -> None:
        """A connection breaks after a message was sent: it is sent again, and a copy of it is still on its way.

        A message is sent once those before it are answered; see also `Brokers`.
        """
        for broker, received in enumerate(prepared.delivered):
            if received is None or not received[2]:
                continue
            host = self.hosts.all[brokers[broker]]
            if not host.alive or host.strays or received[0] in dict(host.queues):
                continue
            doubled = list(prepared.delivered)
            doubled[broker] = (*received[:3], received[2][0])
            label = f"{prepared.label}, and what {broker} is sent is doubled"
            change = prepared._replace(label=label, store=prepared.doubles, fault=True, delivered=doubled)
            successors.append(self._combined(change, other, brokers))

    def _judgements(
        self, store: int, instance: int, other: int, brokers: Hosts, broker: int, successors: list[Successor]
    ) -> None:
        key = store, instance, brokers[broker], broker
        outcomes = self._judged.get(key)
        if outcomes is None:
            proposal = self.hosts.all[brokers[broker]].proposal
            assert proposal is not None
            outcomes = self._judged[key] = [
                (self._prepared(outcome), self._answered(outcome, brokers[broker], proposal.leader_epoch))
                for outcome in self.controllers.judge(
                    self.stores.all[store], self.instances.all[instance], broker, proposal
                )
            ]
        for prepared, host in outcomes:
            told = list(brokers)
            told[broker] = host
            successors.append(self._combined(prepared, other, (told[0], told[1], told[2])))

    def _answered(self, outcome: Outcome, host: int, leader_epoch: int) -> int:
        """Returns the proposing broker after the response to its proposal."""
        broker = self.hosts.all[host]
        if outcome.reply is not None:
            return self.hosts.number(self._brokers.replied(broker, *outcome.reply, leader_epoch))
        if outcome.closed:
            return self.hosts.number(broker._replace(proposal=None))
        return host

    def _reconciled(self, state: State, broker: int, successors: list[Successor]) -> None:
        """The leader learns the outcome of a proposal without a response from the metadata that the controller sent."""
        controller, host = self.instances.all[state[1]], self.hosts.all[state[3 + broker]]
        if (
            host.role == LEADER
            and controller.leader == broker
            and controller.epoch >= host.seen
            and controller.leader_epoch == host.leader_epoch
            and controller.version > host.version
            and controller.known[broker] == host.incarnation
        ):
            told = host._replace(
                version=controller.version,
                isr=controller.isr,
                proposal=None,
                seen=controller.epoch,
                recovering=host.recovering and controller.recovering,
            )
            brokers = list(state[3:])
            brokers[broker] = self.hosts.number(self._brokers.tidy(broker, told))
            store, first, second = state[0], *sorted(state[1:3])
            after = self.canonical((store, first, second, brokers[0], brokers[1], brokers[2]))
            successors.append((f"{broker} learns its ISR from the metadata", after, False, None))

    def _prepared(self, outcome: Outcome) -> Prepared:
        """Returns an outcome with the numbers of its components, and the delivery to each broker."""
        delivered: Any = None
        if outcome.sends or outcome.cut:
            delivered = [None, None, None]
            for broker in BROKERS:
                messages = tuple(message for receiver, message in outcome.sends if receiver == broker)
                if messages or outcome.cut >> broker & 1:
                    delivered[broker] = (outcome.epoch, bool(outcome.cut >> broker & 1), messages, None)
        store = outcome.store
        doubles = -1
        if outcome.sends and store.losses:
            doubles = self.stores.number(store._replace(losses=store.losses - 1))
        return Prepared(
            outcome.label,
            self.stores.number(store),
            self.instances.number(outcome.controller),
            delivered,
            outcome.fault,
            outcome.found or on_memory(store, outcome.controller),
            doubles,
        )

    def _told(self, brokers: Hosts, delivered: Any) -> Hosts:
        """Returns the brokers after a controller has closed connections and sent messages."""
        if delivered is None:
            return brokers
        told = []
        for position, (broker, received) in enumerate(zip(brokers, delivered, strict=True)):
            if received is None:
                told.append(broker)
                continue
            number = self._received.get((position, broker, received))
            if number is None:
                epoch, cut, messages, stray = received
                host = self.hosts.all[broker]
                if cut:
                    host = self._brokers.cut(host, epoch)
                if messages:
                    host = self._brokers.received(position, host, epoch, messages, stray)
                number = self._received[position, broker, received] = self.hosts.number(host)
            told.append(number)
        return told[0], told[1], told[2]

    def _combined(self, prepared: Prepared, other: int, brokers: Hosts) -> Successor:
        label, store, first, delivered, fault, found, _ = prepared
        second = other
        if first > second:
            # The lower number first: their order has no meaning.
            first, second = second, first
        a, b, c = brokers if delivered is None else self._told(brokers, delivered)
        return label, self.canonical((store, first, second, a, b, c)), fault, found

    def _of_brokers(self, state: State, brokers: Hosts, successors: list[Successor]) -> None:
        store, first, second, a, b, c = state
        for number in BROKERS:
            host = brokers[number]
            changes = self._changes.get((number, store, host))
            if changes is None:
                changes = self._changes[number, store, host] = [
                    (change.label, self.stores.number(change.store), self.hosts.number(change.broker), change.fault,
                     change.found)
                    for change in self._brokers.changes(number, self.stores.all[store], self.hosts.all[host])
                ]  # fmt: skip
            for label, after, told, fault, found in changes:
                if number == 0:
                    target = after, first, second, told, b, c
                elif number == 1:
                    target = after, first, second, a, told, c
                else:
                    target = after, first, second, a, b, told
                successors.append((label, self.canonical(target), fault, found))
            if self.hosts.all[host].role == LEADER:
                self._proposed(state, number, successors)

    def _proposed(self, state: State, number: int, successors: list[Successor]) -> None:
        hosts = self.hosts.all
        peers = (hosts[state[3]], hosts[state[4]], hosts[state[5]])
        for label, broker, fault in self._brokers.proposals(number, peers):
            brokers = list(state[3:])
            brokers[number] = self.hosts.number(broker)
            after = self.canonical((*state[:3], brokers[0], brokers[1], brokers[2]))
            successors.append((label, after, fault, None))


@functools.cache
def _tables(replicas: tuple[tuple[int, ...], ...], targets: tuple[tuple[int, ...], ...]) -> Tables:
    return Tables(Assignments(replicas, targets))


def _flags(component: Store | Controller | Broker) -> int:
    controller, leader, version = lowest(component)
    return (controller == 1) | (leader == 0) << 1 | (version == 0) << 2
