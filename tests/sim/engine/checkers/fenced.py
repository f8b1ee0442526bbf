"""Brokers without a link to the controller: INV-62.

A registration of a participant is fenced at an instance until a link of that registration was opened there, since the
election or before it and not closed by then. A controller decides by what it knew when it sent a write.
"""

import bisect

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from .stored import NO_LEADER, Rules, Stored, leadership_writes

# A registration: broker and incarnation.
_Life = tuple[int, str]


class Fenced(Checker):
    """No fenced broker is elected or joins an ISR."""

    kinds = ("store.commit", "ctl.elected", "ctl.participants", "link.open", "link.close", "node.crash")
    invariants = ("INV-62",)

    def __init__(self, rules: Rules) -> None:
        self._links = rules.links
        self._stored = Stored()
        self._open: dict[str, dict[_Life, int]] = {}  # by instance: when each link was opened
        self._reached: dict[str, dict[_Life, int]] = {}
        self._known: dict[str, list[tuple[int, dict[int, str]]]] = {}

    def check(self, event: Event) -> Violation | None:
        if not self._links:
            return None
        node, fields = event.node, event.fields
        match event.kind:
            case "store.commit":
                return self._committed(event) if fields["outcome"] == "ok" else None
            case "ctl.elected":
                self._reached[node] = dict(self._open.get(node, {}))
            case "ctl.participants":
                self._known.setdefault(node, []).append((event.seq, dict(fields["brokers"])))
            case "link.open":
                life = fields["broker"], fields["incarnation"]
                self._open.setdefault(node, {})[life] = event.seq
                self._reached.setdefault(node, {}).setdefault(life, event.seq)
            case "link.close":
                self._open.get(node, {}).pop((fields["broker"], fields["incarnation"]), None)
            case "node.crash":
                self._open.pop(node, None)
                self._reached.pop(node, None)
                self._known.pop(node, None)
        return None

    def _committed(self, event: Event) -> Violation | None:
        fenced = self._fenced(event.fields["client"], event.fields["sent"])
        violation = None
        if event.fields["fence"] is not None and fenced:
            for topic, partition, _, _, value in leadership_writes(event):
                before = self._stored.leadership(topic, partition)
                if value is None:
                    continue
                was = (NO_LEADER, []) if before is None else (before.value["leader"], before.value["isr"])
                chosen = set(value["isr"]).difference(was[1])
                if value["leader"] != was[0]:
                    chosen.add(value["leader"])
                if chosen & fenced and violation is None:
                    text = f"{topic}-{partition}: {sorted(chosen & fenced)} are chosen without a link to the controller"
                    violation = Violation("INV-62", text, event=event)
        self._stored.apply(event)
        return violation

    def _fenced(self, node: str, sent: int) -> set[int]:
        """Returns the registered participants that were fenced at an instance when it sent a write."""
        views = self._known.get(node, [])
        position = bisect.bisect_left(views, sent, key=lambda view: view[0])
        if not position:
            return set()
        reached = self._reached.get(node, {})
        return {
            broker
            for broker, incarnation in views[position - 1][1].items()
            if reached.get((broker, incarnation), sent) >= sent
        }
