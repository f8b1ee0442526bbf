"""Decisions on the ISRs that leaders propose: INV-24."""

from typing import Any

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from .stored import Views, leadership_writes

Key = tuple[str, str]


class Proposals(Checker):
    """Compares each accepted proposal with the stored entries: it equals an entry of its sender, or it was written over
    the entry that it names.

    A refusal is always safe. Its error must be the fencing error if the controller knows of a later leader epoch, so
    that the sender stops leading.

    A move that is refused changes nothing in memory, and its event has the row as it was read for the move. The
    controller need not know that row if the store rejects the write of the proposal.
    """

    kinds = ("store.commit", "ctl.brokers", "fsm.partition", "isr.decide")
    invariants = ("INV-24",)

    def __init__(self) -> None:
        # All versions of each partition in commit order, over the lives of its topic; and the stored one.
        self._versions: dict[Key, list[tuple[int, dict[str, Any], Event]]] = {}
        self._current: dict[Key, tuple[dict[str, Any], Event]] = {}
        self._views = Views()
        # The last event of each partition in the controllership of a node; and the last one that was not refused.
        self._moved: dict[tuple[str, int, str, int], Event] = {}
        self._applied: dict[tuple[str, int, str, int], Event] = {}
        # The last write of each partition by a node that the store rejected, until a refusal follows.
        self._rejected: dict[tuple[str, str, str], Event] = {}

    def check(self, event: Event) -> Violation | None:
        if event.kind == "ctl.brokers":
            self._views.add(event)
        elif event.kind == "fsm.partition":
            self._moved[_partition_of(event)] = event
            if not event.fields["refused"]:
                self._applied[_partition_of(event)] = event
        elif event.kind == "isr.decide":
            return self._decided(event) if event.fields["error"] == "NONE" else self._refused(event)
        else:
            return self._committed(event)
        return None

    def _committed(self, event: Event) -> Violation | None:
        violation = None
        for name in event.fields["conflicts"]:
            kind, *partition = name.split("/")
            if kind == "leadership":
                self._rejected[event.fields["client"], partition[0], partition[1]] = event
        for topic, partition, _, new, value in leadership_writes(event):
            key = (topic, partition)
            before = self._current.pop(key, None)
            if value is None:
                continue
            if before is not None and event.fields["fence"] is not None and _is_same(before[0], value):
                text = f"{topic}-{partition}: version {new} was written, and repeats version {new - 1}"
                violation = violation or Violation("INV-24", text, event=event, contradicts=before[1])
            self._versions.setdefault(key, []).append((new, value, event))
            self._current[key] = (value, event)
        return violation

    def _decided(self, event: Event) -> Violation | None:
        fields = event.fields
        name = f"{fields['topic']}-{fields['partition']}"
        text = self._is_from_known(event) or self._is_stored(event)
        if fields["broker"] not in fields["isr"]:
            text = f"the ISR {fields['isr']} does not contain its sender, broker {fields['broker']}"
        if not text:
            return None
        versions = self._versions.get((fields["topic"], str(fields["partition"])), [])
        contradicts = versions[-1][2] if versions else None
        return Violation("INV-24", f"{name}: accepted, though {text}", event=event, contradicts=contradicts)

    def _refused(self, event: Event) -> Violation | None:
        fields = event.fields
        moved = self._moved.get(_partition_of(event))
        rejected = self._rejected.pop((event.node, fields["topic"], str(fields["partition"])), None)
        if moved is not None and rejected is not None and rejected.seq > moved.seq:
            moved = self._applied.get(_partition_of(event))
        if fields["error"] != "INVALID_UPDATE_VERSION" or moved is None:
            return None
        known = moved.fields
        if known["partition_epoch"] <= fields["partition_epoch"] or known["leader_epoch"] <= fields["leader_epoch"]:
            return None
        name = f"{fields['topic']}-{fields['partition']}"
        epochs = f"leader epoch {fields['leader_epoch']}, and the controller knows {known['leader_epoch']}"
        return Violation("INV-24", f"{name}: {fields['error']} for {epochs}", event=event, contradicts=moved)

    def _is_from_known(self, event: Event) -> str:
        """The view cannot have changed since the decision: one event is handled before the next."""
        broker, epoch = event.fields["broker"], event.fields["broker_epoch"]
        view = self._views.at(event.node, event.seq)
        if view is None or view.brokers.get(broker) == epoch:
            return ""
        return f"broker {broker} sent it under broker epoch {epoch}; the controller knows {view.brokers.get(broker)}"

    def _is_stored(self, event: Event) -> str:
        """The proposed state was stored, in a version after the one that it names or in that version."""
        fields = event.fields
        versions = self._versions.get((fields["topic"], str(fields["partition"])), [])
        for version, value, _ in reversed(versions):
            if version >= fields["partition_epoch"] and self._equals(fields, value):
                return ""
        named = [value for version, value, _ in versions if version == fields["partition_epoch"]]
        proposed = f"leader {fields['broker']}, leader epoch {fields['leader_epoch']}, ISR {sorted(fields['isr'])}"
        return f"{proposed} was never stored; version {fields['partition_epoch']} is {named}"

    @staticmethod
    def _equals(fields: dict[str, Any], value: dict[str, Any]) -> bool:
        return bool(
            value["leader"] == fields["broker"]
            and value["leader_epoch"] == fields["leader_epoch"]
            and set(value["isr"]) == set(fields["isr"])
            and value["recovering"] == fields["recovering"]
        )


def _partition_of(event: Event) -> tuple[str, int, str, int]:
    return event.node, event.fields["controller_epoch"], event.fields["topic"], event.fields["partition"]


def _is_same(before: dict[str, Any], value: dict[str, Any]) -> bool:
    return all(before[name] == value[name] for name in ("leader", "leader_epoch", "recovering")) and set(
        before["isr"]
    ) == set(value["isr"])
