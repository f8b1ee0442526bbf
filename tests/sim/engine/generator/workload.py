"""Workload: requests of operators and of brokers, on a few topics so that they collide."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from tests.sim.engine.script import Action, WorldSpec

from .worlds import LARGE_BROKERS

TOPICS: Final = ("t1", "t2", "t3", "t4", "t5")
# Weight of each kind of request.
WEIGHTS: Final[Mapping[str, int]] = {
    "create": 10, "delete": 5, "mark": 2, "grow": 4, "grow stored": 1, "vanish": 1, "recreate": 3, "config": 1,
    "drain": 2, "undrain": 2, "leave": 2, "fail directory": 2, "undeletable": 1, "reassign": 9, "cancel": 3,
    "reassign stored": 3, "evacuate": 2, "elect": 10, "elect stored": 2, "nonsense": 3, "producer ids": 1, "resign": 1,
}  # fmt: skip
# Share of the requests that are sent while a handler waits for the store.
AT_POINT: Final = 0.2
_WAITING: Final = (
    "store.commit before", "store.commit before", "store.commit after", "store.leaderships before",
    "store.assignments before", "store.brokers after", "store.topics before", "store.write_assignment before",
    "store.topic_configs before", "store.delete_topics before", "full state before", "full state before",
    "broker startup before", "broker failure before", "move partitions before", "advance reassignment before",
    # The same calls belong to takeovers and to the copies of standbys, which handle no requests.
    "BrokerChange: store.brokers after", "BrokerChange: broker startup before",
    "BrokerChange: full state before", "BrokerChange: broker failure before",
    "BrokerChange: move partitions before", "BrokerChange: store.commit before",
    "TopicChange: store.assignments before", "TopicChange: store.topics after",
    "TopicChange: store.commit before", "PartitionModifications: store.assignments after",
    "TopicDeletion: store.deletions after", "ControlledShutdown: store.commit before",
    "AlterPartitionReceived: store.commit before", "ApiPartitionReassignment: store.write_assignment before",
    "ApiPartitionReassignment: advance reassignment before", "ReplicaLeaderElection: store.commit before",
)  # fmt: skip
# Topics of large clusters, each with as many partitions: 400 together.
_LARGE_TOPICS: Final = 4
_LARGE_PARTITIONS: Final = 100
# Kinds of the last requests: those that take several steps, or wait in the store.
_LAST: Final = (
    "mark", "mark", "delete", "reassign", "reassign stored", "evacuate", "cancel", "grow", "grow stored",
    "elect stored", "recreate", "drain", "leave",
)  # fmt: skip
# Kinds of requests about one topic, by whether they need its name. Tools do not wait for each other.
_ABOUT_NAME: Final = ("create", "recreate", "mark")
_ABOUT_TOPIC: Final = ("delete", "grow", "grow stored", "grow stored", "vanish", "config")
# Share of the requests about a topic that another one about it follows at once.
_TOGETHER: Final = 0.15
# Share of the removals of a topic by hand after which it is created again.
_AGAIN: Final = 0.7
# A topic is created again within a share of one of these.
_AGAIN_MS: Final = (0.0, 5.0, 50.0, 500.0, 5_000.0)


def workload(rng: random.Random, world: WorldSpec, duration_ms: float, rates: Sequence[float]) -> list[Action]:
    """Returns the requests of a run: some topics at first, then requests at a drawn rate, in requests per second."""
    draw = _Draw(rng, world)
    actions = [
        Action("create", at_ms=rng.uniform(0, 3_000), args=draw.new_topic(topic, to=None)) for topic in TOPICS[:3]
    ]
    if world.brokers.count == LARGE_BROKERS:
        actions += [
            Action("create", at_ms=3_000, args=draw.large_topic(f"large{number}")) for number in range(_LARGE_TOPICS)
        ]
    rate = rng.choice(rates)
    at_ms = rng.expovariate(rate) * 1000
    kinds = {kind: weight for kind, weight in WEIGHTS.items() if rng.random() < 0.8}
    while at_ms < duration_ms and kinds:
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        point = draw.point()
        actions.append(Action(kind, at_ms=at_ms, at_point=point, args=draw.args(kind)))
        actions += draw.together(actions[-1])
        # Often several requests wait for one handler.
        for _ in range(rng.choice((0, 0, 1, 2)) if point else 0):
            kind = rng.choices(list(kinds), list(kinds.values()))[0]
            actions.append(Action(kind, at_ms=at_ms, at_point=point, args=draw.args(kind)))
        at_ms += rng.expovariate(rate) * 1000
    return actions


def created_again(rng: random.Random, world: WorldSpec, actions: Iterable[Action]) -> list[Action]:
    """Returns a workload in which most topics that were removed by hand are created again soon, on other replicas."""
    draw = _Draw(rng, world)
    return [
        msgspec.structs.replace(action, do="recreate", args=draw.life("vanish", action.args["topic"]))
        if action.do == "vanish" and rng.random() < _AGAIN
        else action
        for action in actions
    ]


def last_requests(rng: random.Random, world: WorldSpec, duration_ms: float) -> list[Action]:
    """Returns requests of the last seconds, around the end of the last controller.

    The next controller finds them in the store, or half done, and no later event completes them in its place.
    """
    draw = _Draw(rng, world)
    at_ms = duration_ms - rng.uniform(200, 4_000)
    active = {"node": "active controller"}
    kill = Action("kill", at_ms=at_ms, args=active | {"restart_after_ms": duration_ms})
    ends = (
        kill,
        kill,
        kill,
        Action("pause", at_ms=at_ms, args=active | {"for_ms": duration_ms}),
        Action("expire", at_ms=at_ms, args=active),
        Action("resign", at_ms=at_ms, args={"to": "active controller"}),
    )
    kinds = [rng.choice(_LAST) for _ in range(rng.randint(1, 4))]
    requests = [Action(kind, at_ms=at_ms + rng.uniform(-300, 1_500), args=draw.args(kind)) for kind in kinds]
    return [action for action in (rng.choice(ends), *requests) if action.at_ms < duration_ms]


class _Draw:
    """Arguments of requests."""

    def __init__(self, rng: random.Random, world: WorldSpec) -> None:
        self._rng = rng
        self._brokers = world.brokers.count
        self._controllers = world.controllers
        self._args: dict[str, Callable[[], dict[str, Any]]] = {
            "create": lambda: self.new_topic(self._name(), to=self._to() if rng.random() < 0.5 else None),
            "delete": lambda: {"topic": self._topic(), "to": self._to()},
            "mark": lambda: {"topic": self._name() if rng.random() < 0.8 else "nothing"},
            "grow": lambda: {"topic": self._topic(), "replicas": self._replicas(), "to": self._to()},
            "grow stored": lambda: {"topic": self._topic(), "replicas": self._replicas()},
            "vanish": lambda: {"topic": self._topic()},
            "recreate": lambda: self.life(rng.choice(("delete", "mark", "vanish", "none")), self._name()),
            "config": lambda: {"topic": self._topic(), "unclean": rng.random() < 0.5},
            "drain": lambda: {"broker": self._broker(), "to": self._to()},
            "undrain": lambda: {"broker": self._broker(), "to": self._to()},
            "leave": lambda: {
                "broker": self._broker(),
                "to": self._to(),
                "epoch_lag": int(rng.random() < 0.2),
            },
            "fail directory": lambda: {"broker": self._broker(), "replica": rng.randrange(40)},
            "undeletable": lambda: {"broker": self._broker(), "replica": rng.randrange(40)},
            "reassign": lambda: {"targets": self._targets(), "to": self._to()},
            "reassign stored": lambda: {"targets": self._targets()},
            "cancel": lambda: {"partition": rng.randrange(10), "to": self._to()},
            "evacuate": lambda: {"broker": self._broker(), "turn": rng.randrange(10), "to": self._to()},
            "elect": self._election,
            "elect stored": lambda: {"partitions": self._partitions()},
            "nonsense": self._nonsense,
            "producer ids": lambda: {"broker": self._broker()},
            "resign": lambda: {"to": self._to()},
        }

    def point(self) -> str:
        """Returns a point at which a handler waits for the store, for a fifth of the requests; else an empty string."""
        return self._rng.choice(_WAITING) if self._rng.random() < AT_POINT else ""

    def args(self, kind: str) -> dict[str, Any]:
        return self._args[kind]()

    def together(self, first: Action) -> list[Action]:
        """Returns another request about the same topic at almost the same time, for some of the requests."""
        rng, topic = self._rng, first.args.get("topic")
        if topic is None or first.at_point or rng.random() >= _TOGETHER:
            return []
        kinds = _ABOUT_TOPIC if topic.startswith("any ") else (*_ABOUT_TOPIC, *_ABOUT_NAME)
        kind, delay_ms = rng.choice(kinds), rng.choice((1.0, 5.0, 20.0, 100.0)) * rng.random()
        return [Action(kind, at_ms=first.at_ms + delay_ms, args=self.args(kind) | {"topic": topic})]

    def new_topic(self, topic: str, *, to: str | None) -> dict[str, Any]:
        rng = self._rng
        args: dict[str, Any] = {
            "topic": topic,
            "replicas": [self._replicas() for _ in range(rng.choice((1, 1, 2, 3, 8)))],
        }
        if rng.random() < 0.2:
            args["config"] = {"unclean.leader.election.enable": "true"}
        if to is not None:
            args["to"] = to
        elif rng.random() < 0.3:
            args["has_id"] = False
        return args

    def large_topic(self, topic: str) -> dict[str, Any]:
        brokers = range(1, self._brokers + 1)
        return {"topic": topic, "replicas": [self._rng.sample(brokers, 3) for _ in range(_LARGE_PARTITIONS)]}

    def life(self, removal: str, topic: str) -> dict[str, Any]:
        """A topic is removed in some way, and created again soon."""
        created = self.new_topic(topic, to=None)
        return created | {"removal": removal, "after_ms": self._rng.choice(_AGAIN_MS) * self._rng.random()}

    def _to(self) -> str:
        return "active controller" if self._rng.random() < 0.6 else f"any controller #{self._rng.randrange(6)}"

    def _name(self) -> str:
        return self._rng.choice(TOPICS)

    def _topic(self) -> str:
        return f"any topic ~{self._rng.randrange(len(TOPICS) * 4)}"

    def _partitions(self, kind: str = "partition") -> list[str]:
        return [f"any {kind} ~{self._rng.randrange(100)}" for _ in range(self._rng.choice((1, 1, 2)))]

    def _broker(self) -> str:
        return f"any broker #{self._rng.randrange(100)}"

    def _replicas(self) -> list[int]:
        most = min(3, self._brokers)
        return self._rng.sample(range(1, self._brokers + 1), self._rng.randint(1, most))

    def _targets(self) -> dict[str, list[int]]:
        targets = {name: self._replicas() for name in self._partitions()}
        if self._rng.random() < 0.1:
            targets[next(iter(targets))] = self._rng.choice(([], [1, 1], [-1, 2], [2, 9]))
        return targets

    def _election(self) -> dict[str, Any]:
        args: dict[str, Any] = {"kind": self._rng.choice(("preferred", "preferred", "unclean")), "to": self._to()}
        drawn = self._rng.random()
        if drawn < 0.4:
            # An election of any other partition changes nothing.
            args["partitions"] = self._partitions("imbalanced partition")
        elif drawn < 0.7:
            args["partitions"] = self._partitions()
        return args

    def _nonsense(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "broker": self._broker(),
            "replica": rng.randrange(40),
            "isr": rng.choice(([], [9], [-1, 1], [1, 1, 2], [1, 2], [1, 2, 3])),
            "epoch_lag": rng.choice((0, 0, 1, -1)),
            "version_lag": rng.choice((0, 0, 1, -1, -7)),
            "recovering": rng.random() < 0.1,
            "twice": rng.random() < 0.1,
            "to": self._to(),
        }
