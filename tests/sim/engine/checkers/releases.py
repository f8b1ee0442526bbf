"""Releases of leaders that wait for earlier ones: INV-60.

An earlier leadership has ended when its participant has ended it after an order, when its registration is gone from the
store, or some time after its registration was evicted. A lease that has lapsed is no end: it may be resumed. It cannot
be resumed any more after an order to follow under a later epoch, a stop, or a report that the handler has failed.
None of these ends a leadership that acts, but a leadership that has lapsed begins again before it acts.
"""

from typing import Any, Final

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from .stored import Rules, is_zero

# A partition: topic name, topic id, index.
_Partition = tuple[str, str, int]
# The clock of a controller is faster than that of the run by no more than this.
_SHARE: Final = 0.9
_RELEASE: Final = "LeaseRelease"
_REGISTRATION: Final = "brokers/"
# States of a handler that will not lead under the epochs that it has received.
_FAILURES: Final = ("NOT_READY", "FAILED", "STUCK", "ERROR")


class Releases(Checker):
    """A controller releases a leader only when no earlier leadership can act."""

    kinds = (
        "store.commit", "lease.begin", "lease.end", "lease.lapse", "role.apply", "role.stop", "handler.report",
        "req.enqueue",
    )  # fmt: skip
    invariants = ("INV-60",)

    def __init__(self, rules: Rules) -> None:
        wait_ms = rules.session_timeout_ms if rules.eviction_ms is None else rules.eviction_ms
        self._eviction_ms = _SHARE * wait_ms
        self._stored: dict[int, int] = {}  # broker epoch of each registered broker
        self._evicted_ms: dict[tuple[int, int], float] = {}  # by broker and broker epoch
        self._acting: dict[_Partition, dict[tuple[int, int], Event]] = {}
        self._lapsed: set[tuple[_Partition, int, int]] = set()  # of those, with their brokers and lives

    def check(self, event: Event) -> Violation | None:
        fields = event.fields
        match event.kind:
            case "store.commit":
                for key, _, _, value in fields["ops"]:
                    if key.startswith(_REGISTRATION):
                        self._registered(int(key.removeprefix(_REGISTRATION)), value, event)
            case "lease.begin" if not is_zero(fields["topic_id"]):
                partition = fields["topic"], fields["topic_id"], fields["partition"]
                self._acting.setdefault(partition, {})[fields["broker"], fields["life"]] = event
                self._lapsed.discard((partition, fields["broker"], fields["life"]))
            case "lease.end":
                for partition, acting in self._acting.items():
                    if (partition[0], partition[2]) == (fields["topic"], fields["partition"]):
                        acting.pop((fields["broker"], fields["life"]), None)
            case "lease.lapse":
                key = fields["broker"], fields["life"]
                self._lapsed |= {(partition, *key) for partition, acting in self._acting.items() if key in acting}
            case "role.apply" if fields["outcome"] == "storage" or (
                fields["outcome"] == "applied" and fields["leader"] != fields["broker"]
            ):
                self._ordered(fields, fields["leader_epoch"])
            case "role.stop" if fields["outcome"] in ("applied", "same", "storage"):
                self._ordered(fields, None)
            case "handler.report" if fields["status"] in _FAILURES:
                self._ordered(fields, None)
            case "req.enqueue" if fields["what"] == _RELEASE:
                return self._released(event, fields)
        return None

    def _registered(self, broker: int, value: dict[str, Any] | None, event: Event) -> None:
        if value is None:
            self._stored.pop(broker, None)
        else:
            self._stored[broker] = value["epoch"]
            if value.get("evicted"):
                self._evicted_ms.setdefault((broker, value["epoch"]), event.time_ms)

    def _ordered(self, fields: dict[str, Any], leader_epoch: int | None) -> None:
        """Forget the lapsed leaderships of a replica, all or those below an epoch: they are not resumed."""
        for lapsed in tuple(self._lapsed):
            (topic, _, index), broker, life = partition, _, _ = lapsed
            if (topic, index, broker) != (fields["topic"], fields["partition"], fields["broker"]):
                continue
            began = self._acting[partition].get((broker, life))
            if leader_epoch is None or began is None or began.fields["leader_epoch"] < leader_epoch:
                self._acting[partition].pop((broker, life), None)
                self._lapsed.discard(lapsed)

    def _released(self, event: Event, fields: dict[str, Any]) -> Violation | None:
        rows = zip(fields["partitions"], fields["topic_ids"], fields["leader_epochs"], strict=True)
        for name, topic_id, leader_epoch in rows:
            topic, _, index = name.rpartition("-")
            acting = self._acting.get((topic, topic_id, int(index)), {})
            for (broker, life), began in acting.items():
                if broker == fields["broker"] or began.fields["leader_epoch"] >= leader_epoch:
                    continue
                if self._may_act(broker, life, event.time_ms):
                    text = (
                        f"{event.node} releases broker {fields['broker']} for {name}, which {began.node} may still lead"
                    )
                    return Violation("INV-60", text, event=event, contradicts=began)
        return None

    def _may_act(self, broker: int, life: int, now_ms: float) -> bool:
        """Whether a registration is stored, and was not evicted some time ago."""
        evicted_ms = self._evicted_ms.get((broker, life))
        is_over = evicted_ms is not None and now_ms - evicted_ms >= self._eviction_ms
        return self._stored.get(broker) == life and not is_over
