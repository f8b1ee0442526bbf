"""Topics, their assignments and their deletion: INV-40, INV-42, INV-43, INV-45."""

from collections.abc import Callable
from typing import Any, Final

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from .requested import Requested
from .stored import NO_LEADER, Entry, Stored, is_zero, leadership_writes, topic_writes

Assignment = tuple[list[int], list[int], list[int]]


class Topics(Checker):
    """Compares each write of a topic with the one before it, and the remains of a topic when its deletion ends."""

    kinds = (
        "store.commit", "fsm.topic", "fsm.replica", "ctl.elected", "ctl.resigned", "reassign.asked",
        "reassign.answered",
    )  # fmt: skip
    invariants = ("INV-40", "INV-42", "INV-43", "INV-45")

    def __init__(self) -> None:
        self._stored = Stored()
        self._id_of: dict[str, tuple[str, Event]] = {}  # name of the topic that was given each id
        self._born: dict[str, Event] = {}  # when each stored topic was created
        self._removed: dict[str, int] = {}  # when each topic was removed, by the number of the commit
        self._removed_by_hand: set[str] = set()  # at any time
        self._deleted: dict[tuple[str, str], int] = {}  # by node and topic, the number of a controller's last removal
        self._marked: dict[str, Event] = {}
        # Reassignments with the whole target in sync since they were stored: only their last write may be missing.
        self._complete: set[tuple[str, str]] = set()
        # Replicas that a controllership began to delete in such a reassignment, by partition and controller epoch.
        # Their end may be stored before that of the reassignment, if others could not be stopped.
        self._stopped: dict[tuple[str, str, int], set[int]] = {}
        # Assignments that a tool has overwritten, until the controller writes the topic: it takes only added partitions
        # from such a write, as in Kafka, and goes on with the assignment that it knows. `Stored.grows` ends none.
        self._overwritten: dict[tuple[str, str], Assignment] = {}
        # Those of a topic without an id that was removed by hand and created again, until a controller notices the
        # removal: without ids the second topic cannot be distinguished from such a write to the first.
        self._earlier: dict[tuple[str, str], Assignment] = {}
        # By partition, the replicas before writes that the controller has not acted upon, and those that the last one
        # has added. It may not have learned of the success, or an error may have ended the call, so that it goes on
        # with the assignment that it knows. A move of an added replica shows that it knows the new one.
        self._in_doubt: dict[tuple[str, str], tuple[set[int], set[int]]] = {}
        # Deletions that a controller has started, by its node.
        self._started: dict[tuple[str, str], Event] = {}
        self._requested = Requested()

    def at_end(self) -> Violation | None:
        for key in sorted(self._stored.entries):
            if key.startswith("leadership/") and (text := self._is_orphan(*key.split("/")[1:])):
                return Violation("INV-42", text, event=self._stored.entries[key].event)
            if key.startswith("topics/"):
                topic = key.removeprefix("topics/")
                stored = self._stored.entries[key].value["partitions"]
                if lost := self._requested.lost(topic, stored):
                    return Violation("INV-45", f"partitions {lost} of topic {topic} are lost")
                for partition, now in stored.items():
                    if text := self._requested.is_end(topic, partition, now):
                        return Violation("INV-45", text)
        return None

    def _is_orphan(self, topic: str, partition: str) -> str:
        """Returns the fault of a leadership whose partition is not stored; empty if it is, or may be left.

        A controller may write it if the topic was removed by hand, before it knows. Nothing reads it until a topic of
        that name has so many partitions.
        """
        if topic in self._removed_by_hand or self._stored.assignment(topic, partition) is not None:
            return ""
        return f"the leadership of {topic}-{partition} is stored, and the partition is not"

    def check(self, event: Event) -> Violation | None:
        return _CHECKS[event.kind](self, event)

    def _committed(self, event: Event) -> Violation | None:
        if event.fields["outcome"] != "ok":
            return None
        violation = self._grows(event)
        for topic, value in topic_writes(event):
            violation = violation or self._written(event, topic, value)
        for key, *_, value in event.fields["ops"]:
            if key.startswith("deletions/") and value is not None:
                self._marked[key.removeprefix("deletions/")] = event
        self._apply(event)
        return violation

    def _apply(self, event: Event) -> None:
        if event.fields["fence"] is not None:
            self._doubt(event)
        for topic, value in topic_writes(event):
            for partition, lists in (value or {"partitions": {}})["partitions"].items():
                if self._stored.assignment(topic, partition) != tuple(map(list, lists)):
                    self._complete.discard((topic, partition))
                    for key in [key for key in self._stopped if key[:2] == (topic, partition)]:
                        del self._stopped[key]
        self._stored.apply(event)
        written = [(topic, partition) for topic, partition, *_ in leadership_writes(event)]
        begun = [
            (topic, partition)
            for topic, value in topic_writes(event)
            for partition in (value or {}).get("partitions", ())
        ]
        for topic, partition in (*written, *begun):
            now, entry = self._stored.assignment(topic, partition), self._stored.leadership(topic, partition)
            if now is not None and entry is not None and not {*now[0]} - {*now[2], *entry.value["isr"]}:
                self._complete.add((topic, partition))

    def _doubt(self, event: Event) -> None:
        for topic, value in topic_writes(event):
            for partition, now in (value or {"partitions": {}})["partitions"].items():
                was = self._stored.assignment(topic, partition)
                if was is not None and set(was[0]) != set(now[0]):
                    known, _ = self._in_doubt.get((topic, partition), (set(), set()))
                    self._in_doubt[topic, partition] = known | set(was[0]), set(now[0]) - set(was[0])

    def _is_lost(self, topic: str, partition: str, was: Assignment | None, now: Assignment) -> str:
        """Returns the fault of an assignment without a replica in sync, where the one before had some; else empty."""
        entry = self._stored.leadership(topic, partition)
        if was is None or entry is None:
            return ""
        isr = set(entry.value["isr"])
        if isr & set(now[0]) or not isr & set(was[0]):
            return ""
        return f"none of the replicas {now[0]} is in sync: the ISR is {sorted(isr)}"

    # -- identity and assignment ---------------------------------------------------------------------------------------

    def _written(self, event: Event, topic: str, value: dict[str, Any] | None) -> Violation | None:
        before = self._stored.entries.get(f"topics/{topic}")
        if value is None:
            self._born.pop(topic, None)
            kept = self._known(topic, before) if event.fields["fence"] is None else {}
            self._forget(topic)
            self._earlier.update(kept)
            self._removed[topic] = event.seq
            if event.fields["fence"] is None:
                self._removed_by_hand.add(topic)
            else:
                self._deleted[event.fields["client"], topic] = event.seq
            self._stored.entries.pop(f"topics/{topic}", None)  # the same commit may create it again
            return None
        if before is None:
            self._born[topic] = event
            if not is_zero(value["id"]):
                self._forget(topic)
            self._requested.born(topic, value["partitions"])
            return self._is_fresh(event, topic, value["id"])
        if before.value["id"] != value["id"]:
            if not is_zero(before.value["id"]):
                text = f"the id of topic {topic} goes from {before.value['id']} to {value['id']}"
                return Violation("INV-40", text, event=event, contradicts=before.event)
            violation = self._is_fresh(event, topic, value["id"])
            if violation is not None:
                return violation
        if event.fields["fence"] is None:
            self._requested.written_by_hand(topic, value["partitions"])
            for partition in value["partitions"]:
                was = self._stored.assignment(topic, partition)
                if was is not None:
                    self._overwritten.setdefault((topic, partition), was)
            return None  # administrators may write anything
        grows = self._stored.grows(topic, value)
        for partition, (replicas, adding, removing) in value["partitions"].items():
            was, now = self._stored.assignment(topic, partition), (list(replicas), list(adding), list(removing))
            if grows and was is not None:
                continue
            stopped = self._stopped.get((topic, partition, event.fields["fence"]), set())
            earlier = self._earlier.pop((topic, partition), None)
            known = self._overwritten.pop((topic, partition), None) or earlier
            text = "" if was is None else self._is_step(topic, partition, was, now, stopped)
            if text and known is not None:
                text = self._is_step(topic, partition, known, now, stopped)
            text = text or self._requested.is_step(topic, partition, was, now)
            text = text or self._is_lost(topic, partition, was, now)
            if text:
                return Violation("INV-45", f"{topic}-{partition}: {text}", event=event, contradicts=before.event)
        return None

    def _known(self, topic: str, removed: Entry | None) -> dict[tuple[str, str], Assignment]:
        """Returns the assignments that controllers know of a topic that is removed; none if it has an id."""
        if removed is None or not is_zero(removed.value["id"]):
            return {}
        known: dict[tuple[str, str], Assignment] = {}
        for partition, (replicas, adding, removing) in removed.value["partitions"].items():
            stored = (list(replicas), list(adding), list(removing))
            known[topic, partition] = self._overwritten.get((topic, partition), stored)
        return known

    def _forget(self, topic: str) -> None:
        by_partition: tuple[dict[tuple[str, str], Any], ...] = (self._overwritten, self._earlier, self._in_doubt)
        for kept in by_partition:
            for key in [key for key in kept if key[0] == topic]:
                del kept[key]

    def _is_fresh(self, event: Event, topic: str, topic_id: str) -> Violation | None:
        if is_zero(topic_id):
            return None
        other = self._id_of.get(topic_id)
        # A client repeats a request with an unknown outcome; the topic may have been deleted meanwhile.
        if other is not None and (other[0] != topic or not _is_same_creation(other[1], event)):
            text = f"topic {topic} is given id {topic_id}, which topic {other[0]} had"
            return Violation("INV-40", text, event=event, contradicts=other[1])
        self._id_of[topic_id] = (topic, event)
        return None

    def _is_step(self, topic: str, partition: str, was: Assignment, now: Assignment, stopped: set[int]) -> str:
        """Returns the fault of a change of an assignment by the controller; empty if there is none.

        Args:
            stopped: replicas that this controllership began to delete when the whole target was in sync.
        """
        kept = [replica for replica in now[0] if replica not in now[1]]
        gone = stopped.intersection(was[2]).difference(kept)  # the next reassignment may add them again
        origin = [replica for replica in was[0] if replica not in was[1] and replica not in gone]
        target = [replica for replica in was[0] if replica not in was[2]]
        if was == now:
            return ""
        if (topic, partition) in self._complete and set(kept) == set(target):
            origin = target  # the other replicas are stopped already
        if now[1] or now[2]:
            lost = [replica for replica in origin if replica not in now[0]]
            if lost:
                return f"a reassignment of {was[0]} begins, and loses the original replicas {lost}"
            # In-sync replicas that a tool's write has left out: they are stopped once assigned ones are in sync.
            entry = self._stored.leadership(topic, partition)
            strays = set() if entry is None else set(entry.value["isr"]).difference(was[0])
            changed = set(kept).symmetric_difference(origin) - strays
            return f"the origin changes from {origin} to {kept}" if changed else ""
        if not (was[1] or was[2]):
            # Another order is reached in one step. Before the first leader, controllers are replaced among replicas.
            may_change = self._stored.leadership(topic, partition) is None or set(was[0]) == set(now[0])
            return "" if may_change else f"replicas {was[0]} become {now[0]} without a reassignment"
        if set(now[0]) == set(origin):
            return ""  # cancelled; the order of the original replicas is not kept
        if now[0] != target:
            return f"a reassignment from {origin} to {target} ends with {now[0]}"
        entry = self._stored.leadership(topic, partition)
        missing = [replica for replica in target if entry is None or replica not in entry.value["isr"]]
        return f"a reassignment to {target} ends, and {missing} are not in sync" if missing else ""

    # -- deletion ------------------------------------------------------------------------------------------------------

    def _grows(self, event: Event) -> Violation | None:
        """Returns a violation if a controller grows or elects in a topic whose deletion it has started.

        After a write of a tool, or one of its own that it has not acted upon, it may restore the assignment that it
        knows.
        """
        fields = event.fields
        if fields["fence"] is None:
            return None
        for topic, partition, _, _, value in leadership_writes(event):
            started = self._started.get((fields["client"], topic))
            if started is None or value is None or started.seq >= fields["sent"]:
                continue
            before = self._stored.leadership(topic, partition)
            if value["leader"] != NO_LEADER and (before is None or before.value["leader"] != value["leader"]):
                text = f"{topic}-{partition}: {value['leader']} is elected after the deletion of the topic has started"
                return Violation("INV-43", text, event=event, contradicts=started)
        for topic, value in topic_writes(event):
            started = self._started.get((fields["client"], topic))
            if started is None or value is None or started.seq >= fields["sent"]:
                continue
            was = self._stored.value(f"topics/{topic}") or {"partitions": {}}
            replicas = {partition: {*each[0]} for partition, each in was["partitions"].items()}
            for (name, partition), known in self._overwritten.items():
                if name == topic:
                    replicas.setdefault(partition, set()).update(known[0])
            for (name, partition), (doubted, _) in self._in_doubt.items():
                if name == topic:
                    replicas.setdefault(partition, set()).update(doubted)
            if any(set(each[0]) - replicas.get(partition, set()) for partition, each in value["partitions"].items()):
                text = f"topic {topic} grows after its deletion has started"
                return Violation("INV-43", text, event=event, contradicts=started)
        return None

    def _topic_changed(self, event: Event) -> Violation | None:
        topic, what = event.fields["topic"], event.fields["what"]
        key = (event.node, topic)
        if what == "deletion started":
            self._started[key] = event
            return None
        if what == "vanished":
            for known in [known for known in self._earlier if known[0] == topic]:
                del self._earlier[known]
        started = self._started.pop(key, None) if what in ("deleted", "vanished") else None
        return self._is_gone(event, topic, started) if what == "deleted" else None

    def _replica_moved(self, event: Event) -> None:
        fields = event.fields
        name = (fields["topic"], str(fields["partition"]))
        if (event.node, fields["topic"]) not in self._started:
            _, added = self._in_doubt.get(name, (set(), set()))
            if not added or fields["broker"] in added:
                self._in_doubt.pop(name, None)
        if fields["to_state"] == "deletion_started" and name in self._complete:
            self._stopped.setdefault((*name, fields["controller_epoch"]), set()).add(fields["broker"])

    def _is_gone(self, event: Event, topic: str, started: Event | None) -> Violation | None:
        marked, born = self._marked.get(topic), self._born.get(topic)
        # The mark may be that of the next topic of the name, which was created before the response to the removal.
        is_removed = started is not None and self._deleted.get((event.node, topic), -1) > started.seq
        if born is not None and marked is not None and born.seq < marked.seq and not is_removed:
            text = f"topic {topic} is reported as deleted, and is stored"
            return Violation("INV-42", text, event=event, contradicts=born)
        if born is not None:
            return None  # created again
        prefix = f"leadership/{topic}/"
        left = [key for key in self._stored.entries if key.startswith(prefix)]
        config = self._stored.entries.get(f"configs/{topic}")
        if config is not None and config.event.seq < self._removed.get(topic, config.event.seq + 1):
            left.append(f"configs/{topic}")  # an administrator may configure a topic that is gone
        if left:
            text = f"topic {topic} is reported as deleted, and {sorted(left)} are stored"
            return Violation("INV-42", text, event=event, contradicts=started)
        return None

    def _begins_anew(self, event: Event) -> None:
        """A controllership ends, also without a resignation if the process was killed. The next one reads the store."""
        if event.kind == "ctl.elected":
            self._in_doubt.clear()
        for key in [key for key in self._started if key[0] == event.node]:
            del self._started[key]


def _is_same_creation(first: Event, second: Event) -> bool:
    """Whether two commits are of one request to create a topic."""
    is_creation = first.fields["operation"] == second.fields["operation"] == "create_topic"
    return is_creation and all(first.fields[name] == second.fields[name] for name in ("client", "sent"))


_CHECKS: Final[dict[str, Callable[[Topics, Event], Violation | None]]] = {
    "store.commit": Topics._committed,
    "fsm.topic": Topics._topic_changed,
    "fsm.replica": Topics._replica_moved,
    "ctl.elected": Topics._begins_anew,
    "ctl.resigned": Topics._begins_anew,
    "reassign.asked": lambda self, event: self._requested.asked(event),
    "reassign.answered": lambda self, event: self._requested.answered(event),
}
