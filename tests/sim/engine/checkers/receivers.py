"""Requests as brokers receive and apply them: INV-06, INV-19, INV-41, INV-44, INV-48, INV-49."""

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Final

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from .stored import NO_LEADER, Rules, Stored, is_zero, leadership_writes

Name = tuple[str, int]


@dataclasses.dataclass
class _Hosted:
    topic_id: str
    leader_epoch: int
    event: Event
    controller_epoch: int  # of the last controller that has named it
    since: int  # message that started the replica under this topic id
    undeleted: bool = False  # it was to be deleted, and could not be


@dataclasses.dataclass
class _Incarnation:
    """One registration of a broker."""

    accepted: Event | None = None  # the last request
    greeted: set[int] = dataclasses.field(default_factory=set)  # controllers that have sent an UpdateMetadata
    hosted: dict[Name, _Hosted] = dataclasses.field(default_factory=dict)
    # Leader epoch and controller epoch of each stop.
    stopped: dict[tuple[str, int, str], tuple[int, int, Event]] = dataclasses.field(default_factory=dict)

    @property
    def controller_epoch(self) -> int:
        """The controller epoch of the request that is being applied."""
        return -1 if self.accepted is None else int(self.accepted.fields["controller_epoch"])


class Receivers(Checker):
    """Follows the state of each registration of each broker."""

    kinds = ("store.commit", "req.accept", "role.apply", "role.stop", "broker.complaint")
    invariants = ("INV-06", "INV-19", "INV-41", "INV-44", "INV-48", "INV-49")

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = Rules() if rules is None else rules
        self._stored = Stored()
        self._lives = Counter[str]()  # how often each topic was created
        self._lives_of_id = Counter[tuple[str, str]]()  # the same under each id
        self._registered: dict[int, int] = {}  # the last epoch of each broker
        # Leaders that the store named, by topic, topic id, partition and leader epoch.
        self._named: dict[tuple[str, str, int, int], int] = {}
        self._leads: dict[tuple[str, str, int, int], tuple[int, Event]] = {}
        self._incarnations: dict[tuple[int, int], _Incarnation] = {}

    def check(self, event: Event) -> Violation | None:
        return _CHECKS[event.kind](self, event)

    def _of(self, event: Event) -> _Incarnation:
        return self._incarnations.setdefault((event.fields["broker"], event.fields["broker_epoch"]), _Incarnation())

    def _committed(self, event: Event) -> None:
        if event.fields["outcome"] != "ok":
            return
        for key, _, _, value in event.fields["ops"]:
            if key.startswith("topics/") and value is not None and self._stored.value(key) is None:
                topic = key.removeprefix("topics/")
                self._lives[topic] += 1
                self._lives_of_id[topic, value["id"]] += 1
            if key.startswith("brokers/") and value is not None:
                self._registered[int(key.removeprefix("brokers/"))] = value["epoch"]
        self._stored.apply(event)
        for topic, partition, _, _, value in leadership_writes(event):
            if value is not None and value["leader"] != NO_LEADER:
                topic_id = self._stored.topic_id(topic)
                self._named[topic, topic_id, int(partition), value["leader_epoch"]] = value["leader"]

    # -- requests ------------------------------------------------------------------------------------------------------

    def _accepted(self, event: Event) -> Violation | None:
        fields = event.fields
        incarnation = self._of(event)
        name = f"broker {fields['broker']}, epoch {fields['broker_epoch']}"
        epoch, last = fields["controller_epoch"], incarnation.accepted
        incarnation.accepted = event
        if last is not None and epoch < last.fields["controller_epoch"]:
            text = f"{name}: controller epoch {epoch} accepted after {last.fields['controller_epoch']}"
            return Violation("INV-06", text, event=event, contradicts=last)
        if -1 < fields["asked_epoch"] < fields["broker_epoch"]:
            text = f"{name}: {fields['what']} accepted, which was made for epoch {fields['asked_epoch']}"
            return Violation("INV-49", text, event=event)
        if fields["asked_epoch"] > self._registered.get(fields["broker"], fields["asked_epoch"]):
            text = f"{name}: {fields['what']} was made for epoch {fields['asked_epoch']}, which was never registered"
            return Violation("INV-49", text, event=event)
        if fields["what"] == "UpdateMetadata":
            incarnation.greeted.add(epoch)
            # A broker that registers again has a later epoch at the store than it knows.
            later = max(fields["broker_epoch"], fields["asked_epoch"])
            self._incarnations.setdefault((fields["broker"], later), _Incarnation()).greeted.add(epoch)
        elif fields["what"] == "LeaderAndIsr" and epoch not in incarnation.greeted:
            request = f"LeaderAndIsr (controller epoch {epoch}, {len(fields.get('led', ()))} partitions)"
            text = f"{name}: {request} accepted before any UpdateMetadata"
            return Violation("INV-49", text, event=event)
        return None

    def _applied(self, event: Event) -> Violation | None:
        fields = event.fields
        if fields["outcome"] != "applied":
            held = self._of(event).hosted.get((fields["topic"], fields["partition"]))
            if held is not None and held.topic_id == fields["topic_id"]:
                held.controller_epoch = max(held.controller_epoch, self._of(event).controller_epoch)
            return None
        return self._is_known_leader(event) or self._is_new_to(self._of(event), event)

    def _is_known_leader(self, event: Event) -> Violation | None:
        fields = event.fields
        topic, topic_id = fields["topic"], fields["topic_id"]
        # Leader epochs begin anew in each life. A client may repeat a creation with its id; see INV-40.
        lives = self._lives[topic] if is_zero(topic_id) else self._lives_of_id[topic, topic_id]
        if fields["role"] != "leader" or lives > 1:
            return None
        broker, epoch = fields["broker"], fields["leader_epoch"]
        key = (topic, topic_id, fields["partition"], epoch)
        other = self._leads.setdefault(key, (broker, event))
        name = f"{topic}-{fields['partition']}"
        if other[0] != broker:
            text = f"{name}: brokers {other[0]} and {broker} both lead under leader epoch {epoch}"
            return Violation("INV-19", text, event=event, contradicts=other[1])
        named = self._named.get(key)
        if topic in self._lives and named != broker:
            text = f"{name}: broker {broker} leads under leader epoch {epoch}, for which the store names {named}"
            return Violation("INV-19", text, event=event)
        return None

    def _is_new_to(self, incarnation: _Incarnation, event: Event) -> Violation | None:
        fields = event.fields
        name = (fields["topic"], fields["partition"])
        topic_id, epoch = fields["topic_id"], fields["leader_epoch"]
        held = incarnation.hosted.get(name)
        since = fields["message"] if held is None or held.topic_id != topic_id else held.since
        incarnation.hosted[name] = _Hosted(topic_id, epoch, event, incarnation.controller_epoch, since)
        text = f"broker {fields['broker']}: {name[0]}-{name[1]}"
        if is_zero(topic_id):
            # Two topics without ids cannot be told apart.
            if held is not None and self._lives[name[0]] < 2 and epoch <= held.leader_epoch:
                text += f" is applied under leader epoch {epoch} after {held.leader_epoch}"
                return Violation("INV-48", text, event=event, contradicts=held.event)
            return None
        if held is not None and not is_zero(held.topic_id):
            # A controller that ended may have left a replica of an earlier topic. Participants delete it then, and one
            # whose deletion has failed before.
            is_left = incarnation.controller_epoch > held.controller_epoch or held.undeleted
            is_left &= not self._rules.stock_brokers
            if held.topic_id != topic_id and not is_left:
                text += f" of topic id {topic_id} is applied over id {held.topic_id}"
                return Violation("INV-41", text, event=event, contradicts=held.event)
            if held.topic_id == topic_id and epoch <= held.leader_epoch:
                text += f" is applied under leader epoch {epoch} after {held.leader_epoch}"
                return Violation("INV-48", text, event=event, contradicts=held.event)
        stopped = incarnation.stopped.get((*name, topic_id))
        if stopped is None or self._rules.stock_brokers:
            return None
        # A later controller does not know of the stop. It has read the stored epoch, which is not below that of the
        # stop: its request is no older one if the epochs are equal, and a lower one is not stored any more.
        is_later = incarnation.controller_epoch > stopped[1]
        if epoch < stopped[0] or (epoch == stopped[0] and not is_later):
            text += f" is started under leader epoch {epoch}, and was stopped under {stopped[0]}"
            return Violation("INV-44", text, event=event, contradicts=stopped[2])
        return None

    def _has_stopped(self, event: Event) -> Violation | None:
        fields = event.fields
        incarnation, name = self._of(event), (fields["topic"], fields["partition"])
        if fields["outcome"] != "applied":
            held = incarnation.hosted.get(name)
            if held is not None and held.topic_id == fields["topic_id"] and fields["delete"]:
                held.undeleted |= fields["outcome"] == "storage"
            return None
        held = incarnation.hosted.pop(name, None)
        topic_id = fields["topic_id"]
        has_ids = held is not None and not is_zero(topic_id) and not is_zero(held.topic_id)
        # Kafka's brokers receive no topic ids in a StopReplica. A copy that the controller has given up may be late.
        # So may be a LeaderAndIsr, which starts a replica again that was stopped: the controller knows of none. Nor
        # does it know of one that only earlier controllers have named: its stop was lost with the controller.
        stopped = None if held is None else incarnation.stopped.get((*name, held.topic_id))
        is_late = held is not None and fields["message"] < held.since
        is_unknown = held is not None and stopped is not None and held.since < stopped[2].fields["message"]
        is_left = held is not None and held.controller_epoch < incarnation.controller_epoch
        is_accepted = self._rules.stock_brokers and (is_late or is_unknown or is_left)
        if held is not None and has_ids and held.topic_id != topic_id and not is_accepted:
            text = f"broker {fields['broker']}: {name[0]}-{name[1]} of id {held.topic_id} is stopped for id {topic_id}"
            return Violation("INV-41", text, event=event, contradicts=held.event)
        if held is not None and has_ids and 0 <= fields["leader_epoch"] < held.leader_epoch:
            text = f"broker {fields['broker']}: {name[0]}-{name[1]} is stopped under leader epoch"
            text += f" {fields['leader_epoch']} after {held.leader_epoch}"
            return Violation("INV-48", text, event=event, contradicts=held.event)
        if held is not None:
            # A request for the deletion of a topic carries no leader epoch.
            epoch = fields["leader_epoch"] if fields["leader_epoch"] >= 0 else held.leader_epoch
            incarnation.stopped[(*name, held.topic_id)] = (epoch, incarnation.controller_epoch, event)
        return None

    def _complained(self, event: Event) -> Violation | None:
        fields = event.fields
        text = f"broker {fields['broker']}, epoch {fields['broker_epoch']}: {fields['text']}"
        return Violation(fields["invariant"], text, event=event)


_CHECKS: Final[dict[str, Callable[[Receivers, Event], Violation | None]]] = {
    "store.commit": Receivers._committed,
    "req.accept": Receivers._accepted,
    "role.apply": Receivers._applied,
    "role.stop": Receivers._has_stopped,
    "broker.complaint": Receivers._complained,
}
