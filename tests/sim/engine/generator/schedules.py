"""Schedules of faults: short patterns of several actions with drawn parameters."""

from typing import Any, Final

from tests.sim.engine.points import EVENTS, POINTS
from tests.sim.engine.script import Action

from .single_faults import SingleFaults

# Kinds whose first action may happen while a controller is at a point.
_AT_POINT: Final = ("kill", "bounce", "bounce", "stop", "pause", "cut", "cut store", "hold", "expire", "sleepwalk")
# Kinds of requests to brokers.
CONTROL: Final = ("LeaderAndIsr", "StopReplica", "StopReplica", "UpdateMetadata")
_PROPOSAL: Final = "AlterPartitionReceived"
# Where a controller is about to send a request.
_SENDING: Final = ("", "deliver before", "deliver before", "stop replicas before", "store assignment before")


class Schedules(SingleFaults):
    """Schedules, beside the single faults of which they consist; each method returns actions that begin at a time."""

    def zombie(self, at_ms: float) -> list[Action]:
        """The active controller is paused past its session while requests wait for it."""
        for_ms = self.session_ms * self.rng.uniform(1.05, 2.5)
        request = {"kind": "preferred", "to": "active controller"}
        pause = {"node": "active controller", "for_ms": for_ms}
        return [
            Action("elect", at_ms=at_ms, args=request),
            Action("pause", at_ms=at_ms + self.rng.uniform(0, 10), args=pause),
        ]

    def sleepwalk(self, at_ms: float) -> list[Action]:
        """A session ends at the server, and its client learns of it late."""
        notify_ms = self.rng.choice((10.0, 100.0, 1_000.0, 3 * self.session_ms)) * self.rng.uniform(0.5, 1)
        node = self.controller() if self.rng.random() < 0.7 else self.broker()
        return [Action("expire", at_ms=at_ms, args={"node": node, "notify_after_ms": notify_ms})]

    def store_island(self, at_ms: float) -> list[Action]:
        """The active controller is cut from the store but not from the brokers, or the reverse."""
        for_ms = self.session_ms * self.rng.uniform(0.8, 4)
        node = {"node": "active controller", "for_ms": for_ms, "deliver": self.rng.random() < 0.5}
        return [Action(self.rng.choice(("cut store", "cut")), at_ms=at_ms, args=node)]

    def bounce(self, at_ms: float) -> list[Action]:
        """A broker restarts within one detection interval, once or several times; perhaps another one just after it,
        so that the controller processes the one restart during the other. Often the controller is paused meanwhile,
        and learns of both ends of a restart at once."""
        rng, ends_session = self.rng, self.rng.random() < 0.7
        interval_ms = rng.choice((400, 1_500, 4_000))
        actions = []
        if rng.random() < 0.6:
            pause = {"node": "active controller", "for_ms": rng.choice((100.0, 1_000.0, 0.8 * self.session_ms))}
            actions.append(Action("pause", at_ms=at_ms, args=pause))
        for node in [self.broker() for _ in range(rng.choice((1, 2)))]:
            for number in range(rng.randint(1, 5)):
                args = {"node": node, "restart_after_ms": rng.uniform(0, rng.choice((5, 300)))}
                kill_ms = at_ms + interval_ms * number + rng.uniform(0, 50)
                actions.append(Action("kill", at_ms=kill_ms, args=args | {"ends_session": ends_session}))
        return actions

    def swizzle(self, at_ms: float) -> list[Action]:
        """The links of some members stop one after another, and are restored in another order."""
        members = [self.member() for _ in range(self.rng.randint(2, 4))]
        return [
            Action(
                "cut",
                at_ms=at_ms + 500 * number,
                args={"node": node, "for_ms": self.rng.uniform(2_000, 4 * self.session_ms), "deliver": True},
            )
            for number, node in enumerate(members)
        ]

    def election_storm(self, at_ms: float) -> list[Action]:
        """Controllers resign or lose their sessions several times within one session timeout."""
        step_ms = self.session_ms / 5
        return [
            Action("resign", at_ms=at_ms + step_ms * number, args={"to": "active controller"})
            if self.rng.random() < 0.5
            else Action("expire", at_ms=at_ms + step_ms * number, args={"node": "active controller"})
            for number in range(self.rng.randint(3, 5))
        ]

    def rolling_restart(self, at_ms: float) -> list[Action]:
        """All brokers restart in turn."""
        verb = self.rng.choice(("stop", "kill"))
        pause_ms = self.rng.uniform(500, 2 * self.session_ms)
        return [
            Action(
                verb,
                at_ms=at_ms + pause_ms * (broker - 1),
                args={"node": f"broker {broker}", "restart_after_ms": self.rng.uniform(100, pause_ms)},
            )
            for broker in range(1, self.brokers + 1)
        ]

    def replace(self, at_ms: float) -> list[Action]:
        """A broker is lost, perhaps for good; operators create topics meanwhile, and move its partitions away."""
        rng, node = self.rng, f"broker {self.rng.randint(1, self.brokers)}"
        lost_ms = self.session_ms * rng.uniform(2, 15)
        kill = Action("kill", at_ms=at_ms, args={"node": node, "restart_after_ms": lost_ms})
        return [kill, *self._replacement(node, at_ms, at_ms + 1.1 * lost_ms)]

    def lost(self, node: str, duration_ms: float) -> list[Action]:
        """A broker fails for good before the other faults end. It is replaced at any time, often at the very end."""
        at_ms = self.rng.uniform(0.2, 0.95) * duration_ms
        kill = Action("kill", at_ms=at_ms, args={"node": node, "restart_after_ms": 10 * duration_ms})
        latest_ms = duration_ms - min(self.rng.expovariate(1 / 3_000.0), duration_ms - at_ms)
        return [kill, *self._replacement(node, at_ms, latest_ms)]

    def _replacement(self, node: str, begin_ms: float, end_ms: float) -> list[Action]:
        """Operators create topics on a broker that is down, and then move its partitions away."""
        rng, actions = self.rng, []
        for _ in range(rng.randint(0, 2)):
            replicas = [[int(node.split()[1])], rng.sample(range(1, self.brokers + 1), 2)]
            args = {"topic": f"t{rng.randint(1, 8)}", "replicas": replicas[: rng.randint(1, 2)]}
            actions.append(Action("create", at_ms=rng.uniform(begin_ms, end_ms), args=args))
        evacuate = {"broker": node, "turn": rng.randrange(10), "to": "active controller"}
        share = rng.choice((rng.random(), 1.0))
        return [*actions, Action("evacuate", at_ms=begin_ms + share * (end_ms - begin_ms), args=evacuate)]

    def twin_kill(self, at_ms: float) -> list[Action]:
        """The controller fails while a broker that has restarted returns to its ISRs, and the broker restarts again
        before or after the next controller has taken over."""
        rng, broker = self.rng, {"node": self.broker(), "ends_session": True}
        restart_ms = rng.uniform(0, 300)
        controller_ms = at_ms + restart_ms + rng.uniform(0, 1_500)
        again_ms = controller_ms + rng.choice((1_000.0, self.session_ms, 2 * self.session_ms)) * rng.random()
        controller = {"node": "active controller", "restart_after_ms": 2 * self.session_ms}
        return [
            Action("kill", at_ms=at_ms, args=broker | {"restart_after_ms": restart_ms}),
            Action("kill", at_ms=controller_ms, args=controller),
            Action("kill", at_ms=again_ms, args=broker | {"restart_after_ms": rng.uniform(0, 500)}),
        ]

    def one_way_cut(self, at_ms: float) -> list[Action]:
        """Messages of one direction are lost between a broker and the controller while others return to its ISRs."""
        rng, actions = self.rng, []
        for number in range(rng.randint(1, 3)):
            begin_ms = at_ms + 300.0 * number * rng.random()
            args = {"node": self.broker(), "restart_after_ms": rng.uniform(0, 500), "ends_session": True}
            actions.append(Action("kill", at_ms=begin_ms, args=args))
            cut = {
                "node": self.broker(),
                "to": "active controller",
                "for_ms": rng.choice((100.0, 500.0, 2_000.0)) * rng.uniform(0.5, 2),
                "direction": rng.choice(("in", "in", "out")),
                "deliver": False,
            }
            actions.append(Action("cut", at_ms=begin_ms + rng.uniform(0, 2_000), args=cut))
        if rng.random() < 0.4:
            # Only the answer is lost: the leader learns of the change of its ISR from the metadata, or never.
            late_ms = self.request_ms * rng.uniform(0.5, 3)
            hold = {"node": "active controller", "direction": "out", "kind": f"{_PROPOSAL} answer", "for_ms": late_ms}
            others = [action for action in actions if action.do != "cut"]
            actions = [*others, Action("hold", at_ms=at_ms + rng.uniform(0, 1_000), args=hold)]
        return actions

    def stale_message(self, at_ms: float) -> list[Action]:
        """Messages are held, and arrive after a later one about the same partition, topic or broker.

        A request that has no answer is sent again, so that the held one is a copy in most cases.
        """
        rng = self.rng
        if rng.random() < 0.3:
            return self._late_proposals(at_ms)
        gap_ms = max(1_500.0, 1.5 * self.request_ms) * rng.uniform(0.5, 2)
        changes = (self._moved_twice, self._moved_twice, self._created_again, self._created_again, self._led_anew)
        actions = rng.choice(changes)(at_ms, gap_ms)
        if rng.random() < 0.5:
            # What is held is about the state before the change.
            actions += rng.choice((self._led_anew, self._elected))(max(1.0, at_ms - gap_ms * rng.random()), gap_ms / 4)
            at_ms = max(0.0, at_ms - gap_ms)
        hold = {"node": "active controller", "direction": "out", "for_ms": gap_ms * rng.uniform(1.5, 4)}
        if rng.random() < 0.5:
            hold["kind"] = rng.choice(CONTROL)
        begin_ms = at_ms + rng.uniform(0, 0.3) * gap_ms
        return [*actions, Action("hold", at_ms=begin_ms, at_point=rng.choice(_SENDING), args=hold)]

    def _late_proposals(self, at_ms: float) -> list[Action]:
        """A broker restarts twice, and what leaders propose for it in between arrives after the second time."""
        rng = self.rng
        broker = {"node": self.broker(), "restart_after_ms": rng.uniform(0, 100), "ends_session": True}
        hold_ms, again_ms = rng.uniform(100, 1_200), rng.uniform(100, 2_000)
        hold = {
            "node": "active controller",
            "direction": "in",
            "for_ms": again_ms + rng.uniform(20, 1_000),
            "kind": rng.choice(("", _PROPOSAL)),
        }
        return [
            Action("kill", at_ms=at_ms, args=broker),
            Action("hold", at_ms=at_ms + hold_ms, args=hold),
            Action("kill", at_ms=at_ms + hold_ms + again_ms, args=broker),
        ]

    def _moved_twice(self, at_ms: float, gap_ms: float) -> list[Action]:
        """A partition moves to other brokers and back, perhaps several times."""
        rng, partition = self.rng, f"any partition ~{self.rng.randrange(100)}"
        places = [rng.sample(range(1, self.brokers + 1), 2) for _ in range(2)]
        return [
            Action(
                "reassign",
                at_ms=at_ms + gap_ms * number,
                args={"targets": {partition: places[number % 2]}, "to": "active controller"},
            )
            for number in range(rng.randint(2, 4))
        ]

    def _created_again(self, at_ms: float, gap_ms: float) -> list[Action]:
        """A topic is removed and created again."""
        rng = self.rng
        replicas = [rng.sample(range(1, self.brokers + 1), 2) for _ in range(rng.randint(1, 2))]
        args = {"topic": f"t{rng.randint(1, 5)}", "replicas": replicas, "removal": rng.choice(("delete", "vanish"))}
        return [Action("recreate", at_ms=at_ms, args=args | {"after_ms": gap_ms * rng.random()})]

    def _led_anew(self, at_ms: float, gap_ms: float) -> list[Action]:
        """Another controller takes over, or a broker restarts."""
        if self.rng.random() < 0.5:
            return [Action("resign", at_ms=at_ms + gap_ms / 2, args={"to": "active controller"})]
        args = {"node": self.broker(), "restart_after_ms": self.rng.uniform(0, 500), "ends_session": True}
        return [Action("kill", at_ms=at_ms + gap_ms * number, args=args) for number in range(2)]

    def _elected(self, at_ms: float, gap_ms: float) -> list[Action]:
        """Preferred replicas lead."""
        return [Action("elect", at_ms=at_ms, args={"kind": "preferred", "to": "active controller"})]

    def leader_island(self, at_ms: float) -> list[Action]:
        """A broker is cut from the controllers, and keeps its session. Its leaderships are moved meanwhile, perhaps by
        another controller."""
        rng, node = self.rng, self.broker()
        for_ms = self.session_ms * rng.uniform(0.3, 2)
        cut = {"node": node, "for_ms": for_ms, "direction": rng.choice(("both", "in", "out")), "deliver": False}
        actions = [
            Action("cut", at_ms=at_ms, args=cut | {"to": f"any controller #{number}"})
            for number in range(self.controllers)
        ]
        active, end_ms = {"node": "active controller"}, at_ms + for_ms * rng.random()
        ends = (
            Action("resign", at_ms=end_ms, args={"to": "active controller"}),
            Action("expire", at_ms=end_ms, args=active),
            Action("kill", at_ms=end_ms, args=active | {"restart_after_ms": self.around_session_ms()}),
        )
        actions += [rng.choice(ends)] if rng.random() < 0.7 else []
        for _ in range(rng.randint(1, 3)):
            partition, to = f"any partition ~{rng.randrange(100)}", {"to": "active controller"}
            places = rng.sample(range(1, self.brokers + 1), 2)
            moves = (
                Action("elect", args={"kind": "preferred"} | to),
                Action("drain", args={"broker": node} | to),
                Action("reassign", args={"targets": {partition: places}} | to),
                Action("evacuate", args={"broker": node, "turn": rng.randrange(10)} | to),
            )
            move = rng.choice(moves)
            actions.append(Action(move.do, at_ms=at_ms + for_ms * rng.random(), args=move.args))
        return actions

    def pair_kill(self, at_ms: float) -> list[Action]:
        """The controller and a follower die together, some time after a reassignment has begun."""
        partition = f"any partition ~{self.rng.randrange(100)}"
        target = self.rng.sample(range(1, self.brokers + 1), 2)
        delay_ms = self.rng.choice((1.0, 5.0, 20.0, 100.0, 1_000.0)) * self.rng.random()
        restart = {"restart_after_ms": self.around_session_ms()}
        return [
            Action("reassign", at_ms=at_ms, args={"targets": {partition: target}, "to": "active controller"}),
            Action("kill", at_ms=at_ms + delay_ms, args={"node": "active controller"} | restart),
            Action("kill", at_ms=at_ms + delay_ms, args={"node": f"broker {target[0]}"} | restart),
        ]

    def handler_fault(self, at_ms: float) -> list[Action]:
        """A controller is killed, paused, loses its session or fails at a point of its code; or another fault happens
        while it is there."""
        rng = self.rng
        point, hit = rng.choice(POINTS), rng.choice((1, 1, 2, 3, 5))
        if rng.random() < 0.3:
            point = f"{rng.choice(EVENTS)}: {point}"
        if rng.random() < 0.5:
            other = self.pattern(rng.choice(_AT_POINT))(at_ms)[-1]
            return [Action(other.do, at_ms=at_ms, at_point=point, hit=hit, args=other.args)]
        verb = rng.choice(("kill", "pause", "expire", "fail"))
        args: dict[str, Any] = {} if verb == "fail" else {"node": "node at point"}
        if verb == "kill":
            args["restart_after_ms"] = self.around_session_ms()
        elif verb == "pause":
            args["for_ms"] = self.around_session_ms()
        elif verb == "expire":
            args["notify_after_ms"] = rng.choice((0.0, 10.0, self.session_ms))
        return [Action(verb, at_ms=at_ms, at_point=point, hit=hit, args=args)]
