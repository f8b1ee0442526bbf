"""Sequences of operators' requests about one topic, with the faults that meet them half-way.

Requests at random times rarely meet in the short moments in which a controller has written one half of a change. What
operators and their tools do in a row does: they create a topic again right after its deletion, replace a reassignment
that does not end, and restart a controller that seems stuck.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from tests.sim.engine.script import Action, WorldSpec

from .schedules import CONTROL, Schedules
from .workload import TOPICS

# How many sequences a run has, for each part of so many ms; calm runs have longer parts.
_COUNTS: Final = (0, 2, 4, 8)
# The same of runs that consist of sequences alone.
_ALONE_COUNTS: Final = (1, 2, 2, 3)
_PART_MS: Final = 120_000.0
_CALM_PART_MS: Final = 1_200_000.0
_ACTIVE: Final = "active controller"
# Steps of a reassignment, of the creation of a topic, and of the start of a broker.
_REASSIGNING: Final = (
    "begin reassignment before", "store assignment before", "store assignment after", "store assignment after",
    "store.write_assignment before", "store.write_assignment after", "advance reassignment before", "copy before",
    "copy after", "complete reassignment before", "stop replicas before", "stop replicas before", "stop replicas after",
    "commit before", "commit after",
)  # fmt: skip
_COMPLETING: Final = (
    "complete reassignment before", "stop replicas before", "stop replicas before", "commit before", "commit after",
)  # fmt: skip
# Requests that move leadership, and where its write begins.
_ELECTING: Final = (
    ("leave", "ControlledShutdown: store.commit before"), ("drain", "store.commit before"),
    ("reassign", "ReplicaLeaderElection: store.commit before"),
)  # fmt: skip
_CREATING: Final = (
    "create topics before", "TopicChange: store.commit before", "TopicChange: store.commit after",
    "TopicChange: store.assignments before", "store.write_assignment before", "store.topic_configs before",
)  # fmt: skip
_STARTING: Final = (
    "BrokerChange: store.commit before", "BrokerChange: store.topic_configs before",
    "BrokerChange: move partitions before", "BrokerChange: full state before", "broker startup before",
)  # fmt: skip

# Changes that lead to short events, which other faults rarely interrupt, and where the handlers of these write.
_SHORT: Final = (
    ("fail directory", "LogDirEventNotification: store.delete_notifications before"),
    ("fail directory", "LeaderAndIsrResponseReceived: store.commit before"),
    ("elect stored", "ZkReplicaLeaderElection: store.delete_preferred_election_request before"),
)  # fmt: skip
# The same where leaders write their ISRs.
_WRITTEN: Final = ("bounce", "IsrChangeNotification: store.delete_notifications before")


def operations(
    rng: random.Random, world: WorldSpec, duration_ms: float, *, calm: bool = False, alone: bool = False
) -> list[Action]:
    """Returns the sequences of a run, which may consist of them alone."""
    draw = _Sequences(rng, world)
    kinds: tuple[Callable[[float], list[Action]], ...] = (
        draw.tools, draw.replaced, draw.lives, draw.outlived, draw.outlived, draw.stuck, draw.interrupted,
        draw.interrupted, draw.drained, draw.first_leader, draw.first_leader, draw.unanswered, draw.given_up,
        draw.replaced_unseen, draw.deposed, draw.deposed,
        # Participants recognise orders of an earlier topic by its id. Other faults disturb most of these sequences.
        *([draw.outlived] * 4 if world.brokers.kind == "participant" else []),
    )  # fmt: skip
    actions: list[Action] = []
    parts = max(1, round(duration_ms / (_CALM_PART_MS if calm else _PART_MS)))
    for number in range(rng.choice(_ALONE_COUNTS if alone else _COUNTS) * parts):
        begin_ms = rng.uniform(2_000, duration_ms)
        if number == 0 and rng.random() < 0.5:
            # No later event hides what this one leaves behind.
            begin_ms = max(2_000.0, duration_ms - draw.gap_ms * rng.uniform(1, 5))
        kind = rng.choice(kinds)
        sequence = kind(begin_ms)
        late_ms = max(map(_end_ms, sequence)) - duration_ms
        if late_ms > 0 and rng.random() < 0.5:
            # The end of the run would cut it off.
            sequence = kind(max(2_000.0, begin_ms - late_ms))
        actions += sequence
    return [action for action in actions if action.at_ms < duration_ms]


def _end_ms(action: Action) -> float:
    """Returns the time at which the effect of an action ends."""
    return action.at_ms + max(float(action.args.get(name, 0.0)) for name in ("for_ms", "after_ms"))


class _Sequences(Schedules):
    """Each method returns actions that begin at a time.

    Attributes:
        gap_ms: until an unanswered request has been sent again.
    """

    def __init__(self, rng: random.Random, world: WorldSpec) -> None:
        super().__init__(rng, world)
        self._store = world.store
        self._writes_isrs = world.brokers.level == "2.6"
        # After a failure the controller writes again.
        self._again_ms = 10_000.0
        self._lag_ms = float(world.settings.get("lag_ms", 10_000.0))
        self.gap_ms = max(1_500.0, 1.5 * self.request_ms)

    def tools(self, at_ms: float) -> list[Action]:
        """One tool creates a topic, and another one changes it before the controller has finished."""
        rng, topic = self.rng, self._topic()
        create = self._creation(topic, has_id=rng.random() < 0.3)
        if rng.random() < 0.7:
            create |= {
                "removal": rng.choice(("delete", "vanish", "none")),
                "after_ms": rng.choice((0.0, 500.0, 5_000.0)),
            }
        changes = ("grow stored", "grow stored", "grow stored", "mark", "vanish")
        delay_ms = float(create.get("after_ms", 0.0))
        return [
            Action("recreate", at_ms=at_ms, args=create),
            *(
                Action(change, at_ms=at_ms + delay_ms, at_point=point, args=self._change(change, topic))
                for change, point in [
                    (rng.choice(changes), rng.choice(_CREATING)) for _ in range(rng.choice((1, 1, 2)))
                ]
            ),
        ]

    def replaced(self, at_ms: float) -> list[Action]:
        """A topic waits for a broker that is down. It is removed and created again while that one is started."""
        rng, topic, broker = self.rng, self._topic(), self._number()
        down_ms = self.session_ms * rng.uniform(1.2, 2.5)
        start_ms, point = at_ms + down_ms, rng.choice(_STARTING)
        others = [number for number in range(1, self.brokers + 1) if number != broker]
        first: dict[str, Any] = {"topic": topic, "replicas": [[broker]], "has_id": rng.random() < 0.6}
        first |= {"removal": rng.choice(("delete", "none")), "after_ms": 100.0}
        again = {"topic": topic, "replicas": [[rng.choice(others)]], "has_id": rng.random() < 0.7}
        return [
            Action(
                "kill",
                at_ms=at_ms,
                args={"node": f"broker {broker}", "restart_after_ms": down_ms, "ends_session": True},
            ),
            Action("recreate", at_ms=at_ms + 0.5 * down_ms, args=first),
            Action("vanish", at_ms=start_ms - 100, at_point=point, args={"topic": topic}),
            Action("create", at_ms=start_ms - 100, at_point=point, args=again),
        ]

    def replaced_unseen(self, at_ms: float) -> list[Action]:
        """A topic is removed by hand while the controller has no connection to the store, and is created again while
        the connection is restored."""
        rng, topic = self.rng, self._topic()
        for_ms = rng.choice((1.0, 200.0, 0.5 * self.session_ms))
        cut = {"node": _ACTIVE, "for_ms": for_ms, "direction": "both", "deliver": rng.random() < 0.3}
        lost = Action("cut store", at_ms=at_ms, args=cut)
        if self._store == "zookeeper" and rng.random() < 0.5:
            for_ms, lost = 0.0, Action("reset", at_ms=at_ms, args={"node": _ACTIVE})
        again_ms = at_ms + for_ms + 300.0 * rng.random()
        return [
            lost,
            Action("vanish", at_ms=at_ms, args={"topic": topic}),
            Action("create", at_ms=again_ms, args=self._creation(topic)),
        ]

    def lives(self, at_ms: float) -> list[Action]:
        """A topic moves away from a broker and perhaps back, or is deleted and created again, perhaps under the next
        controller. The broker receives one of the requests about it too late, or misses some."""
        rng, topic, gap_ms = self.rng, self._topic(), self.gap_ms
        life = self._creation(topic) | {"removal": "none"}
        broker = rng.choice(life["replicas"][0])
        others = [number for number in range(1, self.brokers + 1) if number != broker]
        begin_ms = time_ms = at_ms + gap_ms * rng.uniform(0.5, 1.5)
        actions = [Action("recreate", at_ms=at_ms, args=life)]
        for targets in rng.choice(((), (others,), (others,), (others, [broker, *others]))):
            move = {"targets": {f"{topic}-0": targets[: rng.choice((1, 2, 2))]}, "to": _ACTIVE}
            actions.append(Action("reassign", at_ms=time_ms, args=move))
            time_ms += gap_ms * rng.uniform(0.8, 1.5)
        if rng.random() < 0.3:
            args = {"node": f"broker {rng.choice(others)}", "restart_after_ms": 500.0, "ends_session": True}
            actions.append(Action("kill", at_ms=begin_ms, args=args))
        if rng.random() < 0.4:
            actions.append(self._end(time_ms))
            time_ms += gap_ms * rng.random()
        if rng.random() < 0.7:
            again = self._creation(topic) | {"after_ms": gap_ms * rng.uniform(0.3, 1.5)}
            again |= {"removal": rng.choice(("delete", "delete", "mark", "vanish"))}
            again["replicas"] = [list(dict.fromkeys([*replicas, broker])) for replicas in again["replicas"]]
            actions.append(Action("recreate", at_ms=time_ms, args=again))
            time_ms += again["after_ms"]
        link = {"node": _ACTIVE, "to": f"broker {broker}", "direction": "out"}
        late = {"for_ms": time_ms - begin_ms + gap_ms * rng.uniform(0.3, 1.5), "kind": rng.choice(("", *CONTROL))}
        missed = {"for_ms": (time_ms - begin_ms) * rng.uniform(0.3, 1.1) + 100, "deliver": rng.random() < 0.3}
        first_ms = begin_ms - rng.uniform(1, 50)
        either = (Action("hold", at_ms=first_ms, args=link | late), Action("cut", at_ms=first_ms, args=link | missed))
        return [*actions, rng.choice((either[0], *either))]

    def outlived(self, at_ms: float) -> list[Action]:
        """A request about a topic is on its way to a broker while the topic is deleted and created again."""
        rng, topic, gap_ms = self.rng, self._topic(), self.gap_ms
        life = self._creation(topic)
        broker = rng.choice(life["replicas"][0])
        others = [number for number in range(1, self.brokers + 1) if number != broker]
        kind = rng.choice(("LeaderAndIsr", "LeaderAndIsr", "LeaderAndIsr", *CONTROL))
        create_ms = at_ms + gap_ms * rng.uniform(0.3, 0.6)
        change_ms = create_ms + gap_ms * rng.uniform(0.5, 0.8)
        # The request is sent again meanwhile.
        delete_ms = change_ms + gap_ms * rng.uniform(1.0, 1.3)
        after_ms = gap_ms * rng.uniform(0.4, 1.5)
        held_ms = (delete_ms if kind == "StopReplica" else change_ms) - rng.uniform(1, 50)
        for_ms = delete_ms + after_ms + gap_ms * rng.uniform(0.2, 0.6) - held_ms
        link = {"node": _ACTIVE, "to": f"broker {broker}", "direction": "out", "kind": kind, "for_ms": for_ms}
        target = rng.choice(([broker, others[0]], [broker, others[0]], [others[0], broker]))
        move = {"targets": {f"{topic}-0": target}, "to": _ACTIVE}
        again = self._creation(topic) | {"removal": "delete", "after_ms": after_ms}
        again["replicas"] = [list(dict.fromkeys([*replicas, broker])) for replicas in again["replicas"]]
        return [
            Action("delete", at_ms=at_ms, args={"topic": topic, "to": _ACTIVE}),
            Action("recreate", at_ms=create_ms, args=life | {"removal": "none"}),
            Action("hold", at_ms=held_ms, args=link),
            Action("reassign", at_ms=change_ms, args=move),
            Action("recreate", at_ms=delete_ms, args=again),
        ]

    def stuck(self, at_ms: float) -> list[Action]:
        """A reassignment does not end, as its target cannot copy. It is cancelled or replaced while the store fails,
        and then the leader fails."""
        rng, topic, target = self.rng, self._topic(), self._number()
        begin_ms = at_ms + rng.uniform(100, 2_000)
        replace_ms = begin_ms + rng.uniform(500, 5_000)
        cut = {"node": f"broker {target}", "for_ms": 20_000.0, "direction": "both", "deliver": False}
        cuts = [
            Action("cut", at_ms=at_ms, args=cut | {"to": f"broker {other}"})
            for other in range(1, self.brokers + 1)
            if other != target
        ]
        replacement = (
            Action("cancel", at_ms=replace_ms, args={"partition": rng.randrange(10), "to": _ACTIVE}),
            self._reassignment(f"{topic}-0", replace_ms),
        )
        failure_ms = replace_ms + rng.choice((10.0, 500.0, 3_000.0)) * rng.random()
        leader = {"node": f"leader of {topic}-0", "restart_after_ms": self.around_session_ms(), "ends_session": True}
        return [
            *cuts,
            Action("reassign", at_ms=begin_ms, args={"targets": {f"{topic}-0": [target]}, "to": _ACTIVE}),
            self._store_fault(replace_ms),
            rng.choice(replacement),
            rng.choice((Action("kill", at_ms=failure_ms, args=leader), self._end(failure_ms))),
        ]

    def interrupted(self, at_ms: float) -> list[Action]:
        """A fault happens in a step of a reassignment, which another one may replace at once."""
        rng, topic = self.rng, self._topic()
        actions = [
            self._reassignment(f"{topic}-0", at_ms + self.gap_ms * number) for number in range(rng.choice((1, 2, 2)))
        ]
        for begun in list(actions):
            if rng.random() < 0.8:
                actions += self._fault_at(rng.choice(_REASSIGNING), begun.at_ms, topic)
            if rng.random() < 0.3:
                # The step fails, and a replica of the target before it is tried again.
                target = rng.choice(begun.args["targets"][f"{topic}-0"])
                actions.append(self._store_fault(begun.at_ms, rng.choice(_COMPLETING)))
                actions.append(self._fail(target, begun.at_ms + self._again_ms * rng.uniform(0.05, 1.2)))
        return actions

    def given_up(self, at_ms: float) -> list[Action]:
        """A reassignment is cancelled or replaced at the time at which its target gets in sync. Perhaps the controller
        ends before it has stopped the target, and perhaps the original replica fails."""
        rng, topic = self.rng, self._topic()
        original, target = rng.sample(range(1, self.brokers + 1), 2)
        create = {"topic": topic, "replicas": [[original]], "removal": "delete", "after_ms": 500.0}
        begin_ms = at_ms + 500.0 + self.gap_ms * rng.uniform(0.5, 1.5)
        # A follower fetches twice in a second.
        end_ms = begin_ms + rng.choice((300.0, 1_500.0)) * rng.uniform(0.2, 1.0)
        wanted = rng.choice(([original, target], [target], [target, original]))
        ends = (
            Action("cancel", at_ms=end_ms, args={"partition": 0, "to": _ACTIVE}),
            Action("reassign", at_ms=end_ms, args={"targets": {f"{topic}-0": [original]}, "to": _ACTIVE}),
        )
        actions = [
            Action("recreate", at_ms=at_ms, args=create),
            Action("reassign", at_ms=begin_ms, args={"targets": {f"{topic}-0": wanted}, "to": _ACTIVE}),
            rng.choice(ends),
        ]
        if rng.random() < 0.5:
            actions.append(self._end(end_ms, rng.choice(_REASSIGNING)))
        if rng.random() < 0.5:
            actions.append(self._fail(original, end_ms + rng.choice((100.0, 1_000.0, 10_000.0)) * rng.random()))
        return actions

    def drained(self, at_ms: float) -> list[Action]:
        """A partition is reassigned to replicas of which one is drained and leads."""
        rng, topic = self.rng, self._topic()
        leader, target = self._number(), rng.sample(range(1, self.brokers + 1), 2)
        replicas = list(dict.fromkeys([leader, *rng.choice(([], target[:1]))]))
        create = {"topic": topic, "replicas": [replicas], "removal": "delete", "after_ms": 500.0}
        drain_ms = at_ms + self.gap_ms * rng.uniform(0.5, 2)
        wanted = list(dict.fromkeys(rng.choice(([leader, *target], [*target, leader], [leader], target))))
        move = {"targets": {f"{topic}-0": wanted}, "to": _ACTIVE}
        args = {"broker": f"broker {leader}", "to": _ACTIVE}
        move_ms = drain_ms + rng.choice((1.0, 100.0, 5_000.0)) * rng.random()
        # Without the other replica the drained one leads on.
        lost = [self._fail(replicas[-1], drain_ms - self.gap_ms * rng.random())] if len(replicas) > 1 else []
        return [
            Action("recreate", at_ms=at_ms, args=create),
            *(lost if rng.random() < 0.7 else []),
            Action(rng.choice(("drain", "drain", "leave")), at_ms=drain_ms, args=args),
            Action("reassign", at_ms=move_ms, args=move),
            *([Action("undrain", at_ms=move_ms + 30_000 * rng.random(), args=args)] if rng.random() < 0.3 else []),
        ]

    def first_leader(self, at_ms: float) -> list[Action]:
        """The first leaders of a topic are written, but the answer is lost. Something changes before the controller
        tries again."""
        rng, topic = self.rng, self._topic()
        delay_ms = rng.choice((500.0, 3_000.0)) * rng.random()
        create = self._creation(topic, has_id=rng.random() < 0.7) | {"removal": "delete", "after_ms": delay_ms}
        written_ms = at_ms + delay_ms
        args = {"rates": {"lost_answers": rng.choice((0.7, 1.0))}, "for_ms": rng.choice((20.0, 300.0))}
        lost = Action("fail store", at_ms=written_ms, at_point="TopicChange: store.commit before", args=args)
        if self._store == "sqlite":
            lost = self._store_fault(written_ms, point="TopicChange: store.commit before")
        changes = []
        for _ in range(rng.choice((1, 1, 2))):
            change_ms = written_ms + self._again_ms * rng.random()
            broker = {
                "node": f"broker {rng.choice((create['replicas'][0][0], *create['replicas'][0]))}",
                "restart_after_ms": 2 * self.around_session_ms(),
            }
            elect = {"kind": "preferred", "partitions": [f"{topic}-0"], "to": _ACTIVE}
            kinds = (
                Action("kill", at_ms=change_ms, args=broker | {"ends_session": True}),
                Action("elect", at_ms=change_ms, args=elect),
                self._reassignment(f"{topic}-0", change_ms),
                self._end(change_ms),
            )
            changes.append(rng.choice(kinds))
        return [Action("recreate", at_ms=at_ms, args=create), lost, *changes]

    def unanswered(self, at_ms: float) -> list[Action]:
        """Leaders are elected, but the answer of the write is lost. The earlier leader changes its ISR before the
        controller tries again."""
        rng, topic = self.rng, self._topic()
        replicas = rng.sample(range(1, self.brokers + 1), min(3, self.brokers))
        create = {"topic": topic, "replicas": [replicas], "removal": "delete", "after_ms": 500.0}
        cut_ms = at_ms + 500.0 + self.gap_ms * rng.uniform(0.5, 1.5)
        elect_ms = cut_ms + max(0.0, self._lag_ms - self._again_ms * rng.random()) + 100.0
        # The leader takes a silent follower out of the ISR, and in again.
        cut = {
            "node": f"broker {replicas[-1]}",
            "to": f"broker {replicas[0]}",
            "for_ms": self._lag_ms + self._again_ms * rng.random(),
            "direction": "both",
            "deliver": False,
        }
        begun, point = rng.choice(_ELECTING)
        args: dict[str, Any] = {"broker": f"broker {replicas[0]}", "to": _ACTIVE}
        if begun == "reassign":
            args = {"targets": {f"{topic}-0": [*replicas[1:], replicas[0]]}, "to": _ACTIVE}
        fault = {"rates": {"lost_answers": 1.0}, "for_ms": rng.choice((20.0, 300.0, 1_000.0))}
        lost = Action("fail store", at_ms=elect_ms, at_point=point, args=fault)
        if self._store == "sqlite":
            lost = self._store_fault(elect_ms, point)
        preferred = {"kind": "preferred", "partitions": [f"{topic}-0"], "to": _ACTIVE}
        return [
            Action("recreate", at_ms=at_ms, args=create),
            Action("cut", at_ms=cut_ms, args=cut),
            lost,
            Action(begun, at_ms=elect_ms, args=args),
            *([Action("elect", at_ms=elect_ms + 10.0, args=preferred)] if begun == "reassign" else []),
        ]

    def deposed(self, at_ms: float) -> list[Action]:
        """Another controller is elected while a short event is handled, before its handler writes."""
        rng, topic = self.rng, self._topic()
        broker = self._number()
        replicas = list(dict.fromkeys([broker, *rng.sample(range(1, self.brokers + 1), 2)]))
        create = {"topic": topic, "replicas": [replicas], "removal": "delete", "after_ms": 500.0}
        change_ms = at_ms + 500.0 + self.gap_ms * rng.uniform(0.5, 1.5)
        begun, point = rng.choice((*_SHORT, *[_WRITTEN] * (len(_SHORT) if self._writes_isrs else 0)))
        bounce = {"node": f"broker {replicas[-1]}", "restart_after_ms": 500.0, "ends_session": True}
        directory = {"broker": f"broker {broker}", "replica": rng.randrange(40)}
        changes = {
            "fail directory": Action("fail directory", at_ms=change_ms, args=directory),
            "elect stored": Action("elect stored", at_ms=change_ms, args={"partitions": [f"{topic}-0"]}),
            "bounce": Action("kill", at_ms=change_ms, args=bounce),
        }
        at_point = {"node": "node at point"}
        pause = Action("pause", args=at_point | {"for_ms": self.session_ms * rng.uniform(1.5, 3)})
        expire = Action("expire", args=at_point | {"notify_after_ms": self.session_ms * rng.uniform(1, 2)})
        end = rng.choice((pause, pause, expire))
        return [
            Action("recreate", at_ms=at_ms, args=create),
            Action(end.do, at_ms=change_ms, at_point=point, args=end.args),
            changes[begun],
        ]

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _fail(self, broker: int, at_ms: float) -> Action:
        """A broker fails, and its registration ends."""
        args = {"node": f"broker {broker}", "restart_after_ms": 2 * self.around_session_ms(), "ends_session": True}
        return Action("kill", at_ms=max(1.0, at_ms), args=args)

    def _number(self) -> int:
        return self.rng.randint(1, self.brokers)

    def _topic(self) -> str:
        return self.rng.choice(TOPICS)

    def _creation(self, topic: str, *, has_id: bool = True) -> dict[str, Any]:
        brokers = range(1, self.brokers + 1)
        replicas = [self.rng.sample(brokers, self.rng.choice((1, 2, 3))) for _ in range(self.rng.choice((1, 1, 2)))]
        return {"topic": topic, "replicas": replicas} | ({} if has_id else {"has_id": False})

    def _change(self, verb: str, topic: str) -> dict[str, Any]:
        return {"topic": topic} | ({"replicas": [self._number()]} if verb == "grow stored" else {})

    def _reassignment(self, partition: str, at_ms: float) -> Action:
        target = self.rng.sample(range(1, self.brokers + 1), self.rng.choice((1, 2, 2, 3)))
        return Action("reassign", at_ms=at_ms, args={"targets": {partition: target}, "to": _ACTIVE})

    def _end(self, at_ms: float, point: str = "") -> Action:
        """The controller ends."""
        node = {"node": "node at point" if point else _ACTIVE}
        kill = Action("kill", at_ms=at_ms, at_point=point, args=node | {"restart_after_ms": self.around_session_ms()})
        expire = Action("expire", at_ms=at_ms, at_point=point, args=node)
        return self.rng.choice((kill, kill, expire))

    def _store_fault(self, at_ms: float, point: str = "") -> Action:
        """The store fails for a short time: mostly its answers are lost."""
        rng = self.rng
        if self._store == "sqlite":
            args: dict[str, Any] = {"node": _ACTIVE, "count": rng.choice((1, 1, 2)), "done": rng.random() < 0.7}
            return Action("fail commits", at_ms=at_ms, at_point=point, args=args)
        kinds = rng.choice((["lost_answers"], ["lost_answers"], ["lost_requests"], ["refusals", "lost_answers"]))
        args = {"rates": {kind: rng.choice((0.3, 0.7)) for kind in kinds}, "for_ms": rng.choice((20.0, 300.0, 3_000.0))}
        return Action("fail store", at_ms=at_ms, at_point=point, args=args)

    def _fault_at(self, point: str, at_ms: float, topic: str) -> list[Action]:
        """A fault at a point: of the controller, of the store, or of a broker of the topic, or of two of them."""
        rng = self.rng
        node = {"node": f"{rng.choice(('leader', 'follower'))} of {topic}-0", "ends_session": True}
        broker = Action("kill", at_ms=at_ms, at_point=point, args=node | {"restart_after_ms": self.around_session_ms()})
        faults = (
            [self._end(at_ms, point)],
            [self._store_fault(at_ms, point)],
            [broker],
            [broker, self._end(at_ms, point)],
        )
        return rng.choice(faults)
