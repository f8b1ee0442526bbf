"""Controller election and fencing: INV-01 to INV-05."""

from typing import Final

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

# Operations of the store protocol that only a controller may carry out.
_FENCED: Final = frozenset(
    (
        "commit",
        "resign",
        "unmark_deletions",
        "delete_topics",
        "set_reassignment_request",
        "delete_preferred_election_request",
        "write_features",
        "write_maintenance",
        "delete_notifications",
    )
)


class Fence(Checker):
    """Compares the fence that each commit presents with the epoch in the order of commits, and each act of an instance
    with its own epoch."""

    kinds = (
        "store.commit",
        "ctl.elected",
        "ctl.resigned",
        "ctl.gate",
        "ctl.brokers",
        "fsm.partition",
        "fsm.replica",
        "fsm.broker",
        "fsm.topic",
        "req.enqueue",
        "req.attempt",
        "node.start",
    )
    invariants = ("INV-01", "INV-02", "INV-03", "INV-04", "INV-05")

    def __init__(self) -> None:
        self._epoch = 0
        self._raised: Event | None = None  # the commit that stored the epoch
        self._granted: dict[int, str] = {}  # client of each epoch
        self._elected: dict[int, tuple[str, int, Event]] = {}
        self._holds: dict[str, Event] = {}  # election of each instance that is active by its own state
        self._resigned: dict[tuple[str, int], Event] = {}
        self._doubts: dict[str, Event] = {}  # instances that must send nothing, because their session may have ended

    def check(self, event: Event) -> Violation | None:
        if event.kind == "store.commit":
            return self._committed(event) if event.fields["outcome"] == "ok" else None
        if event.kind == "ctl.elected":
            return self._was_elected(event)
        if event.kind == "ctl.resigned":
            self._holds.pop(event.node, None)
            self._resigned[event.node, event.fields["controller_epoch"]] = event
            return None
        if event.kind == "ctl.gate":
            self._doubts.pop(event.node, None)
            if not event.fields["open"]:
                self._doubts[event.node] = event
            return None
        if event.kind == "node.start":
            self._holds.pop(event.node, None)
            self._doubts.pop(event.node, None)
            return None
        if event.kind == "req.attempt":
            return self._sent(event) if event.fields["outcome"] == "begin" else None
        return self._acted(event)

    # -- store ---------------------------------------------------------------------------------------------------------

    def _committed(self, event: Event) -> Violation | None:
        violation = self._is_fenced(event)
        for key, _, _, value in event.fields["ops"]:
            if key == "epoch" and violation is None:
                violation = self._epoch_written(event, None if value is None else value["epoch"])
        return violation

    def _is_fenced(self, event: Event) -> Violation | None:
        fence, ops = event.fields["fence"], event.fields["ops"]
        if not ops:
            return None
        if fence is None:
            if event.fields["operation"] not in _FENCED:
                return None
            return Violation("INV-03", f"{event.fields['operation']} has no fence", event=event)
        if fence != self._epoch:
            text = f"a write under controller epoch {fence} was committed, and {self._epoch} is stored"
            return Violation("INV-03", text, event=event, contradicts=self._raised)
        client = event.fields["client"]
        if self._granted.get(fence, client) != client:
            text = f"{client} wrote under epoch {fence}, which belongs to {self._granted[fence]}"
            return Violation("INV-04", text, event=event, contradicts=self._raised)
        resigned = self._resigned.get((client, fence))
        only_resigns = all(key == "controller" for key, *_ in ops)
        if resigned is not None and event.fields["sent"] > resigned.seq and not only_resigns:
            text = f"{client} sent a write under epoch {fence} after it had resigned"
            return Violation("INV-05", text, event=event, contradicts=resigned)
        return None

    def _epoch_written(self, event: Event, epoch: int | None) -> Violation | None:
        before, contradicts = self._epoch, self._raised
        if epoch is None or epoch != before + 1:
            text = f"the stored controller epoch goes from {before} to {epoch}"
            return Violation("INV-02", text, event=event, contradicts=contradicts)
        self._epoch, self._raised = epoch, event
        self._granted[epoch] = event.fields["client"]
        return None

    # -- instances -----------------------------------------------------------------------------------------------------

    def _was_elected(self, event: Event) -> Violation | None:
        epoch = event.fields["controller_epoch"]
        holder = (event.node, event.fields["incarnation"])
        other = self._elected.get(epoch)
        if other is not None and other[:2] != holder:
            return Violation("INV-01", f"epoch {epoch} has two holders", event=event, contradicts=other[2])
        if self._granted.get(epoch) != event.node:
            text = f"{event.node} takes epoch {epoch}, which the store has not given to it"
            return Violation("INV-02", text, event=event, contradicts=self._raised)
        previous = self._holds.get(event.node)
        if previous is not None and previous.fields["controller_epoch"] != epoch:
            was = previous.fields["controller_epoch"]
            text = f"{event.node} goes from epoch {was} to {epoch} without a resignation"
            return Violation("INV-04", text, event=event, contradicts=previous)
        self._elected[epoch] = (*holder, event)
        self._holds[event.node] = event
        return None

    def _sent(self, event: Event) -> Violation | None:
        doubts = self._doubts.get(event.node)
        if doubts is not None:
            text = f"{event.node} sends request {event.fields['request']}, and its session may have ended"
            return Violation("INV-05", text, event=event, contradicts=doubts)
        if event.node not in self._holds:
            text = f"{event.node} sends request {event.fields['request']}, and is not the controller"
            return Violation("INV-05", text, event=event)
        return None

    def _acted(self, event: Event) -> Violation | None:
        epoch = event.fields["controller_epoch"]
        holds = self._holds.get(event.node)
        if holds is not None and holds.fields["controller_epoch"] == epoch:
            return None
        if holds is not None:
            text = f"{event.node} acts under epoch {epoch}, and was elected under {holds.fields['controller_epoch']}"
            return Violation("INV-04", text, event=event, contradicts=holds)
        resigned = self._resigned.get((event.node, epoch))
        text = f"{event.node} acts under epoch {epoch}, and is not the controller"
        return Violation("INV-05", text, event=event, contradicts=resigned)
