"""Conformance of kactl to the model: every write of the controllers in simulated runs is an edge of the model.

A run has three brokers, two controller instances and one partition. Each committed write of its leadership or its
assignment is reduced to the model: the stored partition before and after, the presented fence, and the brokers as the
writing controller knew them. It must be the commit of some step of a controller of the model with that knowledge.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kactl.decide.machines.election import Election
from kactl.model import Assignment
from kactl.testing.history import Event
from tests.sim.engine.run import Outcome, run_script
from tests.sim.engine.script import Action, BrokersSpec, LatencySpec, ScheduleSpec, Script, WorldSpec

from .components import BROKERS, NONE, R_ABSENT, R_ONLINE, Controller, Step, Store, bit, members
from .model import Model
from .mutants import MODEL
from .scope import Scope
from .scripts import FIRST_BROKER, PARTITION
from .steps import KINDS

SCOPE: Final = Scope(targets=((1, 2), (0, 1)), losses=0)
ACTIONS: Final = 12
_LEADERSHIP, _TOPIC = "leadership/t/0", "topics/t"


class Edge(NamedTuple):
    """A write of a run: the stored partition and the writer before it, and the partition after it."""

    before: Store
    controller: Controller
    after: Store


def script_of(seed: int) -> Script:
    """Returns a random script with one partition of two replicas, on three brokers."""
    dice = random.Random(seed)
    actions = [Action("create", at_ms=3_000.0, args={"topic": "t", "replicas": [[1, 2]]})]
    at_ms = 8_000.0
    for _ in range(ACTIONS):
        at_ms += dice.choice((20.0, 200.0, 1_500.0, 4_000.0))
        do, args = _action(dice)
        actions.append(Action(do, at_ms=at_ms, args=args))
    return Script(
        name=f"conformance-{seed}",
        world=WorldSpec(brokers=BrokersSpec(count=len(BROKERS)), controllers=2),
        schedule=ScheduleSpec(strategy="shuffle", seed=seed, grid_ms=1.0),
        latency=LatencySpec(store_ms=(0.5, 8.0), network_ms=(0.5, 8.0)),
        duration_ms=at_ms + 10_000.0,
        actions=actions,
    )


def _action(dice: random.Random) -> tuple[str, dict[str, Any]]:
    broker = f"broker {dice.randint(1, len(BROKERS))}"
    to = dice.choice(("active controller", "any controller #0", "any controller #1"))
    late = dice.choice((0.0, 100.0, 3_000.0))
    actions: list[tuple[str, dict[str, Any]]] = [
        ("kill", {"node": broker, "restart_after_ms": dice.choice((100.0, 3_000.0, 12_000.0))}),
        ("expire", {"node": broker, "notify_after_ms": late}),
        ("expire", {"node": "active controller", "notify_after_ms": late}),
        ("leave", {"broker": broker, "to": to}),
        ("reassign", {"targets": {PARTITION: dice.choice(([2, 3], [1, 2]))}, "to": to}),
        ("reassign", {"targets": {PARTITION: [2, 3]}, "to": "active controller"}),
        ("cancel", {"partition": 0, "to": to}),
        ("elect", {"kind": dice.choice(("preferred", "unclean")), "partitions": [PARTITION], "to": to}),
        ("cut store", {"node": "active controller", "direction": dice.choice(("in", "out", "both")), "for_ms": 900.0}),
        ("pause", {"node": dice.choice((broker, "active controller")), "for_ms": dice.choice((500.0, 9_000.0))}),
        ("kill", {"node": "active controller", "restart_after_ms": 5_000.0}),
    ]
    return dice.choice(actions)


def run(seed: int) -> Outcome:
    return run_script(script_of(seed))


class Conformance:
    """Compares runs with the model.

    Attributes:
        edges: number of compared writes.
    """

    def __init__(self) -> None:
        self.model = Model(SCOPE, MODEL)
        self.edges = 0

    def stranger(self, outcome: Outcome) -> Edge | None:
        """Returns the first write of a run that is not an edge of the model, or None."""
        for edge in self.edges_of(outcome.history.events):
            self.edges += 1
            if not self.is_edge(edge):
                return edge
        return None

    def is_edge(self, edge: Edge) -> bool:
        """Whether some step of a controller of the model makes this write."""
        wanted = _written(edge.after)
        return any(_written(store) == wanted for store in self._commits(edge))

    # -- the model's commits -------------------------------------------------------------------------------------------

    def _commits(self, edge: Edge) -> Iterator[Store]:
        """Yields the store after each commit that the model allows now."""
        for controller in self._writers(edge):
            for outcome in self.model.controllers.commits(edge.before, controller):
                yield outcome.store

    def _writers(self, edge: Edge) -> Iterator[Controller]:
        """Yields controllers with this knowledge, before each step that writes."""
        numbers = range(len(self.model.assignments))
        for assignment in {edge.before.assignment, self.model.assignments.target(edge.before.assignment)}:
            assigned = self.model.assignments.masks[assignment].replicas
            for stopped in range(8):
                if stopped & assigned:
                    continue
                states = [R_ABSENT if stopped >> broker & 1 else R_ONLINE for broker in BROKERS]
                writer = edge.controller._replace(
                    assignment=assignment, replicas=(states[0], states[1], states[2]), online=False
                )
                for step in self._steps(edge, numbers):
                    later = (Step("delete", 7), Step("check", 7, (assignment, assignment)))
                    yield writer._replace(steps=(step, *later))

    def _steps(self, edge: Edge, numbers: range) -> Iterator[Step]:
        for kind in (Election.OFFLINE, Election.UNCLEAN, Election.PREFERRED):
            yield Step("elect", 0, (KINDS.index(kind),))
        for broker in BROKERS:
            yield Step("shift", bit(broker))
            yield Step("offline", bit(broker))
        for kind_ in ("advance", "raise", "lead", "lead-on"):
            yield Step(kind_)
        if edge.after.leader_epoch == edge.before.leader_epoch and self._accepts(edge):
            yield Step("accept", bit(edge.before.leader), (edge.after.isr, 0))
        for number in numbers:
            if number in self._next(edge.before.assignment):
                yield Step("move", 0, (number,))
                yield Step("announce", 0, (number,))
            if number == self.model.assignments.target(edge.before.assignment):
                yield Step("end", 0, (number,))

    def _next(self, number: int) -> set[int]:
        return {self.model.assignments.move(number, target) for target in (None, *SCOPE.targets)}

    def _accepts(self, edge: Edge) -> bool:
        """Whether the ISR afterwards is one that the leader may propose."""
        before, controller = edge.before, edge.controller
        if before.leader == NONE or not edge.after.isr & bit(before.leader):
            return False
        added = members(edge.after.isr & ~before.isr)
        return all(controller.known[broker] and not controller.shutting >> broker & 1 for broker in added)

    # -- the writes of a run -------------------------------------------------------------------------------------------

    def edges_of(self, events: list[Event]) -> Iterator[Edge]:
        views: dict[int, list[Event]] = {}
        leadership: Mapping[str, Any] | None = None
        version, assignment = 0, 0
        for event in events:
            if event.kind == "ctl.brokers":
                views.setdefault(event.fields["controller_epoch"], []).append(event)
            if event.kind != "store.commit":
                continue
            for key, _, new, value in event.fields["ops"]:
                if key not in (_LEADERSHIP, _TOPIC) or value is None:
                    continue
                before = leadership, version, assignment
                if key == _LEADERSHIP:
                    leadership, version = value, new
                else:
                    assignment = self._assignment(value)
                fence = event.fields["fence"]
                if before[0] is None or leadership is None or fence is None:
                    continue  # the first leader, or an operator
                view = next(one for one in reversed(views[fence]) if one.seq < event.fields["sent"])
                yield Edge(
                    _store(*before, epoch=fence),  # type: ignore[arg-type]
                    _controller(*before, view=view),  # type: ignore[arg-type]
                    _store(leadership, version, assignment, epoch=fence),
                )

    def _assignment(self, topic: Mapping[str, Any]) -> int:
        lists = (tuple(broker - FIRST_BROKER for broker in one) for one in topic["partitions"]["0"])
        return self.model.assignments.number(Assignment(*lists))


def _store(leadership: Mapping[str, Any], version: int, assignment: int, *, epoch: int) -> Store:
    return Store(
        epoch=epoch,
        held=True,
        leader=_number(leadership["leader"]),
        leader_epoch=leadership["leader_epoch"],
        version=version,
        isr=sum(bit(broker - FIRST_BROKER) for broker in leadership["isr"]),
        recovering=leadership["recovering"],
        writer=epoch,
        assignment=assignment,
        registered=(0, 0, 0),
        crashes=0,
        requests=0,
        losses=0,
    )


def _controller(leadership: Mapping[str, Any], version: int, assignment: int, *, view: Event) -> Controller:
    """Returns the writer: its version is the stored one, or the store would have rejected the write."""
    epochs = dict(view.fields["brokers"])
    known = [epochs.get(broker + FIRST_BROKER, 0) for broker in BROKERS]
    store = _store(leadership, version, assignment, epoch=view.fields["controller_epoch"])
    return Controller(
        epoch=store.epoch,
        leader=store.leader,
        leader_epoch=store.leader_epoch,
        version=version,
        isr=store.isr,
        recovering=store.recovering,
        assignment=assignment,
        known=(known[0], known[1], known[2]),
        shutting=sum(bit(broker - FIRST_BROKER) for broker in view.fields["shutting_down"]),
        moving=True,
        ready=True,
    )


def _number(broker: int) -> int:
    return broker - FIRST_BROKER if broker >= 0 else NONE


def _written(store: Store) -> tuple[int, int, int, int, bool, int]:
    """Returns the fields of a partition that a write may change."""
    return store.leader, store.leader_epoch, store.version, store.isr, store.recovering, store.assignment
