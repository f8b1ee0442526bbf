"""State machines and memory of the active controller: INV-09 to INV-14."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from .stored import NO_LEADER, Stored, Views, is_zero, leadership_writes, topic_writes

# Between two comparisons of the whole memory with the store.
FULL_MS: Final = 10_000.0

PARTITION_MOVES: Final = frozenset(
    (
        ("absent", "new"),
        ("new", "online"),
        ("new", "offline"),
        ("online", "online"),
        ("online", "offline"),
        ("offline", "online"),
        ("offline", "offline"),
        ("offline", "absent"),
    )
)
_HOSTED: Final = ("new", "online", "offline", "deletion_ineligible")
REPLICA_MOVES: Final = frozenset(
    (
        ("absent", "new"),
        *((state, "online") for state in _HOSTED),
        *((state, "offline") for state in _HOSTED),
        ("offline", "deletion_started"),
        ("deletion_started", "deletion_successful"),
        ("offline", "deletion_ineligible"),
        ("deletion_started", "deletion_ineligible"),
        ("deletion_successful", "absent"),
    )
)


class PartitionMemory(NamedTuple):
    """One partition in the memory of a controller. States by name, as in the event log."""

    topic: str
    topic_id: str
    partition: int
    state: str
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    recovering: bool
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    replica_states: Mapping[int, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of an instance that is the controller by its own state, and has taken over.

    Attributes:
        node: name of its node.
        settled: whether no event is being handled; between two parts of an event, memory may be ahead of the event log.
        brokers: epoch by id.
        deleting: topics of which the deletion has started.
        queued: topics that wait for their deletion, the started ones included.
        blocked: topics of which the deletion is blocked.
        shutting_down: brokers that count as shutting down.
        offline, imbalanced, live: the published counts.
    """

    node: str
    controller_epoch: int
    settled: bool
    partitions: list[PartitionMemory]
    brokers: Mapping[int, int]
    deleting: frozenset[str]
    queued: frozenset[str]
    blocked: frozenset[str] = frozenset()
    shutting_down: frozenset[int] = frozenset()
    offline: int
    imbalanced: int
    live: int


class _Overwrite(NamedTuple):
    """Latest write or removal of a topic by a tool, over the removal of a replica.

    Attributes:
        seq: of its event.
        epoch: the controller epoch in the store. Later controllers read what the tool has written.
    """

    seq: int
    epoch: int


@dataclasses.dataclass
class _Replay:
    """States of one controllership, folded from its events."""

    partitions: dict[tuple[str, int], tuple[str, Event]] = dataclasses.field(default_factory=dict)
    replicas: dict[tuple[str, int, int], tuple[str, Event]] = dataclasses.field(default_factory=dict)
    gone: dict[str, int] = dataclasses.field(default_factory=dict)  # when each topic was last found to be gone, by seq

    def forget(self, topic: str, seq: int) -> None:
        self.gone[topic] = seq
        self.partitions = {key: state for key, state in self.partitions.items() if key[0] != topic}
        self.replicas = {key: state for key, state in self.replicas.items() if key[0] != topic}


class Memories(Checker):
    """Compares the state machines' events with their tables and with the store; and from time to time the memory of
    the active controllers with the store, with the events, and with their counts.

    Args:
        memories: returns the memory of each active controller, zombies included.
    """

    kinds = ("store.commit", "ctl.brokers", "fsm.partition", "fsm.replica", "fsm.topic")
    invariants = ("INV-09", "INV-10", "INV-11", "INV-12", "INV-13", "INV-14")

    def __init__(self, memories: Callable[[], Iterable[Memory]] = tuple) -> None:
        self._memories = memories
        self._stored = Stored()
        self._views = Views()
        self._versions: dict[tuple[str, str], dict[int, tuple[dict[str, Any], Event]]] = {}
        # Leadership of earlier topics of a name, by version.
        self._earlier: dict[tuple[str, str], dict[int, list[dict[str, Any]]]] = {}
        self._replays: dict[tuple[str, int], _Replay] = {}
        self._lives: dict[str, int] = {}  # how often each topic was created
        self._next_ms = FULL_MS
        self._overwritten: dict[tuple[str, int, int], _Overwrite] = {}  # by topic, partition and broker

    def check(self, event: Event) -> Violation | None:
        return _CHECKS[event.kind](self, event)

    def at_end(self) -> Violation | None:
        return self._compare(None)

    def _committed(self, event: Event) -> Violation | None:
        if event.fields["outcome"] == "ok":
            for topic, partition, _, new, value in leadership_writes(event):
                if value is None:
                    earlier = self._earlier.setdefault((topic, partition), {})
                    for version, (last, _) in self._versions.pop((topic, partition), {}).items():
                        earlier.setdefault(version, []).append(last)
                else:
                    self._versions.setdefault((topic, partition), {})[new] = (value, event)
            for topic, value in topic_writes(event):
                if value is not None and self._stored.value(f"topics/{topic}") is None:
                    self._lives[topic] = self._lives.get(topic, 0) + 1
                self._overwrite(event, topic, value)
            self._stored.apply(event)
        if event.time_ms >= self._next_ms:
            self._next_ms = event.time_ms + FULL_MS
            return self._compare(event)
        return None

    def _overwrite(self, event: Event, topic: str, value: dict[str, Any] | None) -> None:
        """Note the replicas that were being removed, according to an assignment that a tool has overwritten or removed.

        A write of the controller that only adds partitions ends no exception.
        """
        if event.fields["fence"] is not None:
            if not self._stored.grows(topic, value):
                self._overwritten = {key: kept for key, kept in self._overwritten.items() if key[0] != topic}
            return
        before = self._stored.value(f"topics/{topic}") or {"partitions": {}}
        overwrite = _Overwrite(event.seq, self._stored.epoch)
        for partition, (_, _, removing) in before["partitions"].items():
            self._overwritten |= {(topic, int(partition), broker): overwrite for broker in removing}

    def _replay(self, event: Event) -> _Replay:
        return self._replays.setdefault((event.node, event.fields["controller_epoch"]), _Replay())

    # -- events of the state machines ----------------------------------------------------------------------------------

    def _partition_moved(self, event: Event) -> Violation | None:
        fields = event.fields
        move = (fields["from_state"], fields["to_state"])
        name = (fields["topic"], fields["partition"])
        known = self._replay(event).partitions
        last = known.get(name)
        if fields["refused"]:
            if last is None or last[0] == move[0]:
                return None
            text = f"{name[0]}-{name[1]} stays {move[0]}, and was {last[0]}"
            return Violation("INV-10", text, event=event, contradicts=last[1])
        if move == ("absent", "absent"):
            return None  # read in a takeover, before states are assigned
        known[name] = (move[1], event)
        text = f"{name[0]}-{name[1]} goes from {move[0]} to {move[1]}"
        if move not in PARTITION_MOVES and move[0] != move[1]:
            return Violation("INV-10", text, event=event)
        if last is not None and last[0] != move[0]:
            return Violation("INV-10", f"{text}, and was {last[0]}", event=event, contradicts=last[1])
        return self._means_something(event, move) or self._is_stored(event)

    def _means_something(self, event: Event, move: tuple[str, str]) -> Violation | None:
        fields = event.fields
        if move[1] != "online" or move[0] == "online":
            return None
        view = self._views.at(event.node, event.seq)
        name = f"{fields['topic']}-{fields['partition']}"
        if fields["leader"] == NO_LEADER or fields["leader_epoch"] < 0:
            return Violation("INV-12", f"{name} is online without a leader", event=event)
        if view is not None and fields["leader"] not in view.brokers:
            text = f"{name} is online, and leader {fields['leader']} is none of {sorted(view.brokers)}"
            return Violation("INV-12", text, event=event)
        return None

    def _is_stored(self, event: Event) -> Violation | None:
        """Memory may lag behind the store. The event does not name the life of the topic: from the second one on,
        only whole memories are compared."""
        fields = event.fields
        if self._lives.get(fields["topic"], 0) != 1:
            return None
        versions = self._versions.get((fields["topic"], str(fields["partition"])))
        if versions is None or fields["leader_epoch"] < 0:
            return None
        name = f"{fields['topic']}-{fields['partition']}"
        if fields["partition_epoch"] < 0:
            text = f"{name}: memory has leader epoch {fields['leader_epoch']} in a version that was never stored"
            return Violation("INV-09", text, event=event)
        newest = max(versions)
        if fields["partition_epoch"] > newest:
            text = f"{name}: memory has version {fields['partition_epoch']}, and {newest} is stored"
            return Violation("INV-09", text, event=event, contradicts=versions[newest][1])
        value, wrote = versions.get(fields["partition_epoch"], (None, None))
        if value is None:
            return None
        stored = (value["leader"], value["leader_epoch"], sorted(value["isr"]))
        memory = (fields["leader"], fields["leader_epoch"], sorted(fields["isr"]))
        if stored != memory:
            text = f"{name}, version {fields['partition_epoch']}: memory has {memory}, and {stored} is stored"
            return Violation("INV-09", text, event=event, contradicts=wrote)
        return None

    def _replica_moved(self, event: Event) -> Violation | None:
        fields = event.fields
        move = (fields["from_state"], fields["to_state"])
        name = (fields["topic"], fields["partition"], fields["broker"])
        known = self._replay(event).replicas
        last = known.get(name)
        known[name] = (move[1], event)
        text = f"replica {name[2]} of {name[0]}-{name[1]} goes from {move[0]} to {move[1]}"
        if move not in REPLICA_MOVES and move[0] != move[1]:
            return Violation("INV-11", text, event=event)
        if last is not None and last[0] != move[0]:
            return Violation("INV-11", f"{text}, and was {last[0]}", event=event, contradicts=last[1])
        if move[1] == "deletion_started" and not self._may_be_deleted(event):
            return Violation("INV-12", f"{text}; no deletion and no removal is stored", event=event)
        return None

    def _may_be_deleted(self, event: Event) -> bool:
        topic, partition, broker = (event.fields[name] for name in ("topic", "partition", "broker"))
        if self._stored.value(f"deletions/{topic}") is not None:
            return True
        assignment = self._stored.assignment(topic, partition)
        if assignment is None or broker in assignment[2] or broker not in assignment[0]:
            return True
        # A tool that had read the topic before may have written it over the reassignment. The controller takes only
        # added partitions from such a write, as in Kafka, and goes on. It also goes on with a topic that was removed by
        # hand, and maybe created again, until it handles the notification.
        overwrite = self._overwritten.get((topic, partition, broker))
        if overwrite is None or overwrite.epoch < event.fields["controller_epoch"]:
            return False
        return overwrite.seq > self._replay(event).gone.get(topic, -1)

    def _topic_changed(self, event: Event) -> None:
        if event.fields["what"] in ("vanished", "deleted"):
            self._replay(event).forget(event.fields["topic"], event.seq)

    # -- whole memories ------------------------------------------------------------------------------------------------

    def _compare(self, event: Event | None) -> Violation | None:
        for memory in self._memories():
            violation = self._compare_one(memory, event)
            if violation is not None:
                return violation
        return None

    def _compare_one(self, memory: Memory, event: Event | None) -> Violation | None:
        replay = self._replays.get((memory.node, memory.controller_epoch), _Replay())
        for partition in memory.partitions:
            text = self._lags_only(partition)
            if text:
                return Violation("INV-09", f"{memory.node}: {text}", event=event)
            text = _differs(replay, partition) if memory.settled else ""
            if text:
                return Violation("INV-14", f"{memory.node}: {text}", event=event)
        text = _stale_marks(memory)
        if text:
            return Violation("INV-12", f"{memory.node}: {text}", event=event)
        text = _miscounts(memory) if memory.settled else ""
        return Violation("INV-13", f"{memory.node}: {text}", event=event) if text else None

    def _lags_only(self, memory: PartitionMemory) -> str:
        if memory.leader_epoch < 0 or self._stored.topic_id(memory.topic) != memory.topic_id:
            return ""
        key = (memory.topic, str(memory.partition))
        versions = self._versions.get(key)
        if versions is None:
            return ""
        # Without an id, memory may be of an earlier topic of the name, whose deletion the instance has not noticed.
        earlier = self._earlier.get(key, {}) if is_zero(memory.topic_id) else {}
        name = f"{memory.topic}-{memory.partition}"
        if memory.partition_epoch < 0:
            return f"{name}: memory has leader epoch {memory.leader_epoch} in a version that was never stored"
        newest = max(versions.keys() | earlier.keys())
        if memory.partition_epoch > newest:
            return f"{name}: memory has version {memory.partition_epoch}, and {newest} is stored"
        values = [value for version, (value, _) in versions.items() if version == memory.partition_epoch]
        values += earlier.get(memory.partition_epoch, [])
        stored = [
            (value["leader"], value["leader_epoch"], sorted(value["isr"]), value["recovering"]) for value in values
        ]
        known = (memory.leader, memory.leader_epoch, sorted(memory.isr), memory.recovering)
        return f"{name}: memory has {known}, and {stored[0]} is stored" if stored and known not in stored else ""


def _differs(replay: _Replay, memory: PartitionMemory) -> str:
    """Compare states with the last events of a controllership. States without an event are those of the takeover."""
    name = f"{memory.topic}-{memory.partition}"
    last = replay.partitions.get((memory.topic, memory.partition))
    if last is not None and last[0] != memory.state:
        return f"{name} is {memory.state}, and its last event is {last[1]}"
    for broker, state in memory.replica_states.items():
        moved = replay.replicas.get((memory.topic, memory.partition, broker))
        if moved is not None and moved[0] != state:
            return f"replica {broker} of {name} is {state}, and its last event is {moved[1]}"
    return ""


def _stale_marks(memory: Memory) -> str:
    """Marks are of brokers that are registered, and of topics that are queued for their deletion.

    A handler may be held between two of its functions. The one that removes a failed broker then has not yet removed
    its mark, which nothing reads before it goes on.
    """
    unregistered = memory.shutting_down - memory.brokers.keys() if memory.settled else frozenset[int]()
    marks = (
        ("shutting down", unregistered, "not registered"),
        ("blocked", memory.blocked - memory.queued, "not queued for its deletion"),
        ("being deleted", memory.deleting - memory.queued, "not queued for its deletion"),
    )
    for mark, without, reason in marks:
        if without:
            return f"{min(without)} counts as {mark}, and is {reason}"
    return ""


def _miscounts(memory: Memory) -> str:
    """Count again what is published."""
    offline = sum(each.state == "offline" and each.topic not in memory.deleting for each in memory.partitions)
    imbalanced = sum(_is_imbalanced(each) and each.topic not in memory.queued for each in memory.partitions)
    counts = (("offline partitions", memory.offline, offline), ("imbalanced partitions", memory.imbalanced, imbalanced))
    for name, published, counted in (*counts, ("brokers", memory.live, len(memory.brokers))):
        if published != counted or published < 0:
            return f"{name}: {published} are published, and there are {counted}"
    return ""


def _is_imbalanced(memory: PartitionMemory) -> bool:
    """The preferred replica does not lead; one that is being added counts as soon as it is in sync, as in Kafka.
    Partitions that never had a leader do not count."""
    if memory.leader_epoch < 0 or not memory.replicas:
        return False
    preferred = memory.replicas[0]
    return preferred in memory.isr if preferred in memory.adding else memory.leader != preferred


_CHECKS: Final[dict[str, Callable[[Memories, Event], Violation | None]]] = {
    "store.commit": Memories._committed,
    "ctl.brokers": lambda self, event: self._views.add(event),
    "fsm.partition": Memories._partition_moved,
    "fsm.replica": Memories._replica_moved,
    "fsm.topic": Memories._topic_changed,
}
