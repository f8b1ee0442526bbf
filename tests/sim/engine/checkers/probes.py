"""Counters of rare moments. A search that never reaches one of them has gone soft, whatever its hours."""

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from kactl.testing.history import Event
from kactl.testing.violations import Checker
from tests.sim.engine.points import EVENTS, POINTS

from .memory import PARTITION_MOVES, REPLICA_MOVES
from .stored import NO_LEADER, Stored, leadership_writes, topic_writes

# Time between two samples of the instances that believe to be the controller.
SAMPLE_MS: Final = 1000.0
# Events that end a controllership by themselves; all others are interrupted.
_ENDS: Final = frozenset(
    ("Startup", "ControllerChange", "Reelect", "Expire", "RegisterBrokerAndReelect", "ResignController", "")
)


@dataclasses.dataclass(frozen=True)
class Probe:
    """A rare moment.

    Attributes:
        minimum: hits that 100 cluster-hours must have; 0 if nothing can reach it yet.
    """

    title: str
    minimum: int = 1


PROBES: Final[Mapping[str, Probe]] = {
    "PRB-01": Probe("commit refused by the fence", 300),
    "PRB-02": Probe("request refused for its controller epoch", 100),
    "PRB-03": Probe("request refused for its broker epoch", 100),
    "PRB-04": Probe("partition of a request refused for its leader epoch"),
    "PRB-05": Probe("partition of a request refused for its topic id"),
    "PRB-06": Probe("ISR proposal refused, for any reason"),
    "PRB-07": Probe("ISR proposal repeated, and answered without a write"),
    "PRB-08": Probe("unclean election", 100),
    "PRB-09": Probe("recovery confirmed after a failover of the controller"),
    "PRB-12": Probe("election from an ISR of one", 100),
    "PRB-13": Probe("partition offline and online again", 100),
    "PRB-14": Probe("broker that registered again between two looks"),
    "PRB-15": Probe("resignation with calls waiting"),
    "PRB-16": Probe("resignation while an event is handled", 5),
    "PRB-17": Probe("deletion halted and completed", 100),
    "PRB-18": Probe("reassignment replaced by another one", 100),
    "PRB-19": Probe("reassignment cancelled", 100),
    "PRB-20": Probe("request sent again"),
    "PRB-21": Probe("waiting requests merged"),
    "PRB-22": Probe("commit with unknown outcome that was done", 200),
    "PRB-23": Probe("commit with unknown outcome that was not done", 200),
    "PRB-24": Probe("registration refused because of an earlier session"),
    "PRB-26": Probe("three controller elections within one session timeout", 50),
    "PRB-28": Probe("two brokers lead one partition at once"),
    "PRB-30": Probe("two instances believe to be the controller", 1000),
    "PRB-31": Probe("leases that lapsed and were resumed", 100),
    "PRB-32": Probe("leader released that had waited for an earlier one", 100),
    "PRB-33": Probe("participant evicted that had not answered a new controller"),
    "PRB-34": Probe("heartbeat refused, since the controller could not confirm its epoch"),
    "PRB-35": Probe("session of an earlier controller ended after the grace, without a heartbeat"),
    "PRB-36": Probe("renewal answered after the end of the lease"),
    "PRB-37": Probe("handler stuck"),
    "PRB-41": Probe("participant evicted"),
    # Logs of brokers, and limits of inboxes.
    "PRB-10": Probe("truncation of a record", 0),
    "PRB-11": Probe("truncation over two leader epochs", 0),
    "PRB-25": Probe("inbox at its limit", 0),
    "PRB-27": Probe("high watermark moved by a smaller ISR", 0),
    "PRB-29": Probe("damaged end of a log found at start", 0),
}


class Probes(Checker):
    """Counts hits; never reports a violation.

    Attributes:
        hits: by number; besides, by `INV-24 ERROR` for each reason of a refused proposal, by `partition new>online` and
            `replica ...` for each transition, and by `resigned in EVENT`.
    """

    kinds = (
        "store.commit",
        "store.unknown",
        "ctl.elected",
        "ctl.resigned",
        "fsm.partition",
        "fsm.replica",
        "fsm.topic",
        "fsm.broker",
        "req.reject",
        "req.attempt",
        "req.replace",
        "role.apply",
        "role.stop",
        "isr.decide",
        "admin.call",
        "admin.reply",
        "node.crash",
        "session.heartbeat",
        "session.end",
        "lease.begin",
        "lease.lapse",
        "lease.late_answer",
        "handler.report",
        "req.accept",
        "req.enqueue",
    )

    def __init__(self, *, session_timeout_ms: float = 10_000.0) -> None:
        self.hits: collections.Counter[str] = collections.Counter()
        self._session_timeout_ms = session_timeout_ms
        self._stored = Stored()
        self._recovering: dict[tuple[str, str], int] = {}  # controller epoch of the unclean election
        self._ruling: dict[str, int] = {}
        self._elected_ms: collections.deque[float] = collections.deque(maxlen=3)
        self._halted: set[str] = set()
        self._calls: dict[int, str] = {}
        self._in_flight: dict[int, int] = {}
        self._leading: dict[tuple[str, str, int], int] = {}
        self._sampled_ms = 0.0
        self._registered_by: dict[int, int | None] = {}  # controller epoch by broker epoch
        self._heard: set[tuple[int, int]] = set()  # controller epoch and broker epoch
        self._answered: set[tuple[int, int]] = set()  # the same
        self._lapsed: set[tuple[str, int]] = set()  # nodes and broker epochs

    def check(self, event: Event) -> None:
        if event.time_ms - self._sampled_ms >= SAMPLE_MS:
            self._sampled_ms = event.time_ms
            self._hit("PRB-30", len(self._ruling) > 1)
        _COUNTS[event.kind](self, event.fields, event)

    def _hit(self, number: str, when: object = True) -> None:
        if when:
            self.hits[number] += 1

    # -- store ---------------------------------------------------------------------------------------------------------

    def _committed(self, fields: dict[str, Any], event: Event) -> None:
        self._hit("PRB-01", fields["outcome"] == "fenced")
        self._hit("PRB-24", fields["operation"] == "register" and fields["outcome"] != "ok")
        if fields["outcome"] != "ok":
            return
        for key, _, _, value in fields["ops"]:
            if key.startswith("brokers/") and value is not None:
                self._registered_by.setdefault(value["epoch"], fields["fence"])
                if fields["operation"] == "evict":
                    self._hit("PRB-41")
                    self._hit("PRB-33", (fields["fence"], value["epoch"]) not in self._answered)
        for topic, partition, _, _, value in leadership_writes(event):
            before = self._stored.leadership(topic, partition)
            if value is not None and before is not None:
                self._wrote((topic, partition), before.value, value)
        for topic, value in topic_writes(event):
            for partition, (replicas, adding, removing) in (value or {"partitions": {}})["partitions"].items():
                was = self._stored.assignment(topic, partition)
                if was is None or not (was[1] or was[2]):
                    continue
                self._hit("PRB-18", (adding or removing) and (list(adding), list(removing)) != was[1:])
                origin = [replica for replica in was[0] if replica not in was[1]]
                self._hit("PRB-19", not (adding or removing) and list(replicas) == origin)
        self._stored.apply(event)

    def _wrote(self, key: tuple[str, str], before: dict[str, Any], value: dict[str, Any]) -> None:
        if value["leader"] not in (NO_LEADER, before["leader"]):
            self._hit("PRB-08", value["leader"] not in before["isr"])
            self._hit("PRB-12", len(before["isr"]) == 1 and value["leader"] in before["isr"])
        if value["recovering"] and not before["recovering"]:
            self._recovering[key] = value["controller_epoch"]
        elif before["recovering"] and not value["recovering"]:
            self._hit("PRB-09", value["controller_epoch"] > self._recovering.pop(key, value["controller_epoch"]))

    def _unknown(self, fields: dict[str, Any], event: Event) -> None:
        self._hit("PRB-22" if fields["done"] else "PRB-23")

    # -- controllers ---------------------------------------------------------------------------------------------------

    def _elected(self, fields: dict[str, Any], event: Event) -> None:
        self._ruling[event.node] = fields["controller_epoch"]
        self._elected_ms.append(event.time_ms)
        within_ms = event.time_ms - self._elected_ms[0]
        self._hit("PRB-26", len(self._elected_ms) == 3 and within_ms <= self._session_timeout_ms)

    def _resigned(self, fields: dict[str, Any], event: Event) -> None:
        self._ruling.pop(event.node, None)
        self._hit("PRB-15", event.node in self._calls.values())
        if fields["handler"] not in _ENDS:
            self._hit("PRB-16")
            self._hit(f"resigned in {fields['handler']}")

    def _crashed(self, fields: dict[str, Any], event: Event) -> None:
        self._ruling.pop(event.node, None)
        self._calls = {call: node for call, node in self._calls.items() if node != event.node}

    def _broker_changed(self, fields: dict[str, Any], event: Event) -> None:
        self._hit("PRB-14", fields["what"] == "bounced")

    def _partition_moved(self, fields: dict[str, Any], event: Event) -> None:
        if not fields["refused"]:
            self._hit("PRB-13", fields["from_state"] == "offline" and fields["to_state"] == "online")
            self._hit(f"partition {fields['from_state']}>{fields['to_state']}")

    def _replica_moved(self, fields: dict[str, Any], event: Event) -> None:
        self._hit(f"replica {fields['from_state']}>{fields['to_state']}")

    def _topic_changed(self, fields: dict[str, Any], event: Event) -> None:
        if fields["what"] == "deletion halted":
            self._halted.add(fields["topic"])
        elif fields["what"] == "deleted" and fields["topic"] in self._halted:
            self._halted.discard(fields["topic"])
            self._hit("PRB-17")

    def _decided(self, fields: dict[str, Any], event: Event) -> None:
        if fields["error"] != "NONE":
            self._hit("PRB-06")
            self._hit(f"INV-24 {fields['error']}")
        elif fields["leadership"] is not None:
            self._hit("PRB-07", fields["leadership"][3] <= fields["partition_epoch"])

    # -- requests ------------------------------------------------------------------------------------------------------

    def _rejected(self, fields: dict[str, Any], event: Event) -> None:
        self._hit("PRB-02", fields["reason"] == "controller epoch")
        self._hit("PRB-03", fields["reason"] == "broker epoch")

    def _attempted(self, fields: dict[str, Any], event: Event) -> None:
        if fields["outcome"] == "begin":
            self._hit("PRB-20", self._in_flight.get(fields["channel"]) == fields["request"])
            self._in_flight[fields["channel"]] = fields["request"]

    def _replaced(self, fields: dict[str, Any], event: Event) -> None:
        self._hit("PRB-21", len(fields["after"]) < len(fields["before"]))

    def _applied(self, fields: dict[str, Any], event: Event) -> None:
        self._hit("PRB-04", fields["outcome"] == "leader epoch")
        self._hit("PRB-05", fields["outcome"] == "topic id")
        if event.kind != "role.apply" or fields["outcome"] != "applied":
            return
        key, broker = (fields["topic"], fields["topic_id"], fields["partition"]), fields["broker"]
        if fields["role"] == "follower":
            if self._leading.get(key) == broker:
                del self._leading[key]
            return
        self._hit("PRB-28", self._leading.get(key, broker) != broker)
        self._leading[key] = broker

    # -- sessions with the controller ----------------------------------------------------------------------------------

    def _heartbeat(self, fields: dict[str, Any], event: Event) -> None:
        self._hit("PRB-34", fields["verdict"] == "unconfirmed")
        if fields["verdict"] == "granted":
            self._heard.add((fields["controller_epoch"], fields["life"]))

    def _session_ends(self, fields: dict[str, Any], event: Event) -> None:
        is_own = self._registered_by.get(fields["life"]) == fields["controller_epoch"]
        was_heard = (fields["controller_epoch"], fields["life"]) in self._heard
        self._hit("PRB-35", fields["cause"] == "expired" and not is_own and not was_heard)

    # -- leases --------------------------------------------------------------------------------------------------------

    def _lease_begins(self, fields: dict[str, Any], event: Event) -> None:
        life = event.node, fields["life"]
        self._hit("PRB-31", life in self._lapsed)
        self._lapsed.discard(life)

    def _lapses(self, fields: dict[str, Any], event: Event) -> None:
        self._lapsed.add((event.node, fields["life"]))

    def _answered_late(self, fields: dict[str, Any], event: Event) -> None:
        self._hit("PRB-36")

    def _handler_reported(self, fields: dict[str, Any], event: Event) -> None:
        self._hit("PRB-37", fields["status"] == "STUCK")
        self._hit(f"handler {fields['status'].lower()}")

    def _accepted(self, fields: dict[str, Any], event: Event) -> None:
        if fields["what"] == "StateSent":
            self._answered.add((fields["controller_epoch"], fields["broker_epoch"]))

    def _enqueued(self, fields: dict[str, Any], event: Event) -> None:
        if fields["what"] == "LeaseRelease":
            self.hits["PRB-32"] += len(fields["partitions"])

    def _called(self, fields: dict[str, Any], event: Event) -> None:
        self._calls[fields["call"]] = fields["controller"]

    def _replied(self, fields: dict[str, Any], event: Event) -> None:
        self._calls.pop(fields["call"], None)


_COUNTS: Final[dict[str, Callable[[Probes, dict[str, Any], Event], None]]] = {
    "store.commit": Probes._committed,
    "store.unknown": Probes._unknown,
    "ctl.elected": Probes._elected,
    "ctl.resigned": Probes._resigned,
    "fsm.partition": Probes._partition_moved,
    "fsm.replica": Probes._replica_moved,
    "fsm.topic": Probes._topic_changed,
    "fsm.broker": Probes._broker_changed,
    "req.reject": Probes._rejected,
    "req.attempt": Probes._attempted,
    "req.replace": Probes._replaced,
    "role.apply": Probes._applied,
    "role.stop": Probes._applied,
    "isr.decide": Probes._decided,
    "admin.call": Probes._called,
    "admin.reply": Probes._replied,
    "node.crash": Probes._crashed,
    "session.heartbeat": Probes._heartbeat,
    "session.end": Probes._session_ends,
    "lease.begin": Probes._lease_begins,
    "lease.lapse": Probes._lapses,
    "lease.late_answer": Probes._answered_late,
    "handler.report": Probes._handler_reported,
    "req.accept": Probes._accepted,
    "req.enqueue": Probes._enqueued,
}


def minima() -> dict[str, int]:
    """Returns the hits that 100 cluster-hours must have: of the numbered probes, of each point at which faults may
    happen, of each legal transition, and of resignations in each handler."""
    partitions = (f"partition {before}>{after}" for before, after in sorted(PARTITION_MOVES))
    replicas = (f"replica {before}>{after}" for before, after in sorted(REPLICA_MOVES))
    return {
        **{number: probe.minimum for number, probe in PROBES.items() if probe.minimum},
        **dict.fromkeys((*(f"point {point}" for point in POINTS), *partitions, *replicas), 1),
        **dict.fromkeys((f"resigned in {event}" for event in EVENTS), PROBES["PRB-16"].minimum),
    }


def missed(hits: Mapping[str, int], *, cluster_hours: float) -> dict[str, tuple[int, float]]:
    """Returns hits and required hits of each probe that was not hit often enough, by number.

    The minimum is proportional to the hours; less than one hit is not required.
    """
    required = {number: probe.minimum * cluster_hours / 100 for number, probe in PROBES.items()}
    return {
        number: (hits.get(number, 0), minimum)
        for number, minimum in required.items()
        if minimum >= 1 and hits.get(number, 0) < minimum
    }


def table(hits: Mapping[str, int], *, cluster_hours: float) -> str:
    """Returns the hits of all probes as text, one line each, with hits per cluster-hour; other counters follow."""
    lines = []
    for number in sorted(PROBES):
        count = hits.get(number, 0)
        rate = f"{count / cluster_hours:9.2f}/h" if cluster_hours > 0 else " " * 11
        lines.append(f"{number}  {count:8d} {rate}  {PROBES[number].title}")
    lines += [f"{'':6}  {count:8d} {'':11}  {name}" for name, count in sorted(hits.items()) if name not in PROBES]
    return "\n".join(lines)
