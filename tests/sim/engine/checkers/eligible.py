"""Brokers that are elected or join an ISR: INV-22, INV-23.

A controller decides by the registrations that it has read. A registration may end while a write is on its way: the
brokers as the instance knew them when it sent the write decide, not those at the position of the commit.
"""

from typing import Any

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from .stored import NO_LEADER, Entry, Stored, View, Views, is_failure, leadership_writes

Proposal = tuple[str, str, int, frozenset[int]]


class Eligible(Checker):
    """Compares new leaders and new ISR members with the brokers that the controller knew to be live."""

    kinds = ("store.commit", "ctl.brokers", "isr.propose", "role.apply", "handler.report")
    invariants = ("INV-22", "INV-23")

    def __init__(self) -> None:
        self._stored = Stored()
        self._views = Views()
        # Broker epochs of the members, of each proposal for a partition, version and ISR.
        self._proposed: dict[Proposal, list[dict[int, int]]] = {}
        self._failed: set[tuple[int, str, str]] = set()

    def check(self, event: Event) -> Violation | None:
        if event.kind == "ctl.brokers":
            self._views.add(event)
        elif event.kind == "isr.propose":
            self._note(event)
        elif event.kind in ("role.apply", "handler.report"):
            if is_failure(event):
                self._failed.add((event.fields["broker"], event.fields["topic"], str(event.fields["partition"])))
        elif event.fields["outcome"] == "ok":
            return self._committed(event)
        return None

    def _note(self, event: Event) -> None:
        fields = event.fields
        members = dict(zip(fields["isr"], fields["member_epochs"], strict=False))
        key = (fields["topic"], str(fields["partition"]), fields["partition_epoch"], frozenset(fields["isr"]))
        self._proposed.setdefault(key, []).append(members)

    def _committed(self, event: Event) -> Violation | None:
        view = self._views.at(event.fields["client"], event.fields["sent"])
        violation = None
        if event.fields["fence"] is not None and view is not None:
            for topic, partition, old, _, value in leadership_writes(event):
                if value is not None and violation is None:
                    violation = self._written(event, view, topic, partition, old, value)
        self._stored.apply(event)
        return violation

    def _written(
        self, event: Event, view: View, topic: str, partition: str, old: int, value: dict[str, Any]
    ) -> Violation | None:
        before = self._stored.leadership(topic, partition)
        leader, isr = value["leader"], set(value["isr"])
        if leader != NO_LEADER and (before is None or before.value["leader"] != leader):
            text = self._is_electable(view, topic, partition, before, leader)
            if text:
                return Violation("INV-22", f"{topic}-{partition}: {text}", event=event)
        joined = sorted(isr - set(before.value["isr"])) if before is not None and leader in before.value["isr"] else []
        for member in joined:
            text = self._is_eligible(view, member, (topic, partition, old, frozenset(isr)))
            if text:
                return Violation("INV-23", f"{topic}-{partition}: {text}", event=event)
        return None

    def _is_electable(self, view: View, topic: str, partition: str, before: Entry | None, leader: int) -> str:
        if leader not in view.brokers:
            return f"{leader} is elected and is not registered; the controller knows {sorted(view.brokers)}"
        if leader not in view.shutting_down or before is None:
            return ""
        better = [
            member
            for member in before.value["isr"]
            if member in view.live and (member, topic, partition) not in self._failed
        ]
        return f"{leader} is elected while it shuts down, and {better} are in sync and live" if better else ""

    def _is_eligible(self, view: View, member: int, proposal: Proposal) -> str:
        if member not in view.brokers:
            return f"{member} joins the ISR and is not registered; the controller knows {sorted(view.brokers)}"
        if member in view.shutting_down:
            return f"{member} joins the ISR while it shuts down"
        epochs = [members[member] for members in self._proposed.get(proposal, ()) if member in members]
        if epochs and not {-1, view.brokers[member]}.intersection(epochs):
            return f"{member} joins the ISR under broker epoch {view.brokers[member]}, and was in sync under {epochs}"
        return ""
