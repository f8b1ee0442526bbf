"""Owners of the partitions of ownership topics, here called shards: INV-69 and INV-70.

An owner acts from the begin of its leadership to its end. While it acts and can serve, its shard stays, unless a move
makes the shares more even. Any candidate may take over a shard whose owner has ended, has failed, or leaves.
"""

from collections import Counter
from typing import Any, Final

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from .stored import NO_LEADER, Stored, Views, is_failure, is_ownership, leadership_writes

# Topic and index.
Shard = tuple[str, int]
# A handler that has failed or resigned may be passed over for this long: the longest pause before it is tried again,
# twice, since the controller may learn of the end of the pause late.
FAILED_MS: Final = 120_000.0
# A shard that fails goes from owner to owner, and no other shard moves because of it. It counts for the shares again
# after 30 s without a failure.
HEALED_MS: Final = 25_000.0


class Owners(Checker):
    """No leadership of an owner is interrupted but for a move of its own shard."""

    kinds = (
        "store.commit", "ctl.brokers", "lease.begin", "lease.end", "lease.lapse", "node.crash", "role.apply",
        "role.stop", "handler.report",
    )  # fmt: skip
    invariants = ("INV-69", "INV-70")

    def __init__(self) -> None:
        self._stored = Stored()
        self._views = Views()
        self._acting: dict[Shard, Event] = {}  # the begin of the last leadership of each shard, while it goes on
        # When shards have failed that were moved because of it, and the controller epoch of the move.
        self._failing: dict[Shard, tuple[float, int]] = {}
        self._failed_ms: dict[tuple[Shard, int], float] = {}  # by shard and broker

    def check(self, event: Event) -> Violation | None:
        fields = event.fields
        match event.kind:
            case "store.commit" if fields["outcome"] == "ok":
                violation = self._committed(event)
                self._stored.apply(event)
                return violation
            case "ctl.brokers":
                self._views.add(event)
            case "lease.begin" if is_ownership(fields["topic_id"]):
                self._acting[shard_of(fields)] = event
            case "lease.end":
                began = self._acting.get(shard_of(fields))
                if began is not None and began.fields["broker"] == fields["broker"]:
                    del self._acting[shard_of(fields)]
            case "lease.lapse" | "node.crash":
                for shard in [shard for shard, began in self._acting.items() if began.node == event.node]:
                    del self._acting[shard]
            case "role.stop":
                return self._stopped(event, fields)
            case "role.apply" | "handler.report" if is_failure(event):
                self._failed_ms[shard_of(fields), fields["broker"]] = event.time_ms
        return None

    def _committed(self, event: Event) -> Violation | None:
        writes = [write for write in leadership_writes(event) if is_ownership(self._stored.topic_id(write[0]))]
        if not writes:
            return None
        owners = self._owners()
        for topic, partition, _, _, value in writes:
            shard, before = (topic, int(partition)), owners.get((topic, int(partition)), NO_LEADER)
            owner = NO_LEADER if value is None else value["leader"]
            if before not in (NO_LEADER, owner) and value is not None and self._may_serve(event, shard, before):
                text = self._uneven(owners, shard, owner, (event.time_ms, value["controller_epoch"]))
                if text:
                    name = f"{topic}-{partition}"
                    text = f"{name} is taken from owner {before}, which acts and can serve: {text}"
                    return Violation("INV-69", text, event=event, contradicts=self._acting[shard])
            failed_ms = self._failed_ms.get((shard, before), -HEALED_MS)
            fails = event.time_ms - failed_ms < HEALED_MS
            if fails and value is not None and owner != before and self._is_member(event, before):
                self._failing[shard] = failed_ms, value["controller_epoch"]
            owners[shard] = owner
        return None

    def _uneven(self, owners: dict[Shard, int], shard: Shard, after: int, moment: tuple[float, int]) -> str:
        """Returns why the move of a shard does not make the shares more even; empty if it does.

        Shards that the same controller has moved since they fail do not count. Others that have failed may count: the
        controller may not know of it.

        Args:
            moment: time and controller epoch of the move.
        """
        now_ms, epoch = moment
        fails = {each for each, (at_ms, by) in self._failing.items() if by == epoch and now_ms - at_ms < HEALED_MS}
        failed = {each for (each, _), at_ms in self._failed_ms.items() if now_ms - at_ms < FAILED_MS}
        text = ""
        for left_out in (fails, fails | failed):
            counted = {each: owner for each, owner in owners.items() if each == shard or each not in left_out}
            if not (text := _uneven(counted, shard[0], owners[shard], after)):
                break
        return text

    def _owners(self) -> dict[Shard, int]:
        """Returns the owner of each shard."""
        owners = {}
        for key, entry in self._stored.entries.items():
            if key.startswith("leadership/"):
                _, topic, partition = key.split("/")
                if is_ownership(self._stored.topic_id(topic)):
                    owners[topic, int(partition)] = entry.value["leader"]
        return owners

    def _is_member(self, event: Event, broker: int) -> bool:
        """Whether the controller that writes knows a broker, which does not leave."""
        view = self._views.at(event.fields["client"], event.fields["sent"])
        registered = self._stored.value(f"brokers/{broker}")
        if view is None or registered is None or registered.get("evicted") or broker in view.shutting_down:
            return False
        return bool(view.brokers.get(broker) == registered["epoch"])

    def _may_serve(self, event: Event, shard: Shard, owner: int) -> bool:
        """Whether an owner acts, and the controller that writes has no reason to pass it over."""
        began, registered = self._acting.get(shard), self._stored.value(f"brokers/{owner}")
        if began is None or began.fields["broker"] != owner or not self._is_member(event, owner):
            return False
        if registered is None or registered["epoch"] != began.fields["life"]:
            return False
        return event.time_ms - self._failed_ms.get((shard, owner), -FAILED_MS) >= FAILED_MS

    def _stopped(self, event: Event, fields: dict[str, Any]) -> Violation | None:
        """A stop has ended what a replica did."""
        shard = shard_of(fields)
        entry = self._stored.leadership(*shard)
        if entry is None or fields["outcome"] != "applied" or not is_ownership(fields["topic_id"]):
            return None
        is_deleted = self._stored.topic_id(shard[0]) != fields["topic_id"] or (
            self._stored.value(f"deletions/{shard[0]}") is not None
        )
        is_owner = entry.value["leader"] == fields["broker"] and entry.value["leader_epoch"] == fields["leader_epoch"]
        if is_deleted or not is_owner:
            return None
        text = f"{event.node} is stopped for {shard[0]}-{shard[1]} under the epoch under which it owns it"
        return Violation("INV-70", text, event=event, contradicts=entry.event)


def shard_of(fields: dict[str, Any]) -> Shard:
    """Returns the shard that an event is about."""
    return fields["topic"], fields["partition"]


def _uneven(owners: dict[Shard, int], topic: str, before: int, after: int) -> str:
    """Returns why the move of a shard does not make the shares more even; empty if it does.

    In its topic the new owner has at least two fewer, or one fewer and at least two fewer in all topics together.
    """
    if after == NO_LEADER:
        return "no other participant gets it"
    in_topic = Counter(owner for (name, _), owner in owners.items() if name == topic)
    in_all = Counter(owners.values())
    here, everywhere = in_topic[before] - in_topic[after], in_all[before] - in_all[after]
    if here >= 2 or (here == 1 and everywhere >= 2):
        return ""
    return f"it owns {in_topic[before]} of the topic, and the next owner {after} owns {in_topic[after]}"
