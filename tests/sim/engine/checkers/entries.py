"""Leadership entries of the store: INV-07, INV-15 to INV-18, INV-20, INV-21."""

from typing import Any, Final

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation

from .earlier_leaders import KINDS, EarlierLeaders
from .stored import (
    NO_LEADER,
    NO_VERSION,
    Entry,
    Rules,
    Stored,
    View,
    Views,
    is_failure,
    is_ownership,
    is_zero,
    leadership_writes,
    topic_writes,
)

# A controller reads the configuration of a topic before it elects: one that was stored this long ago may still count.
CONFIG_LAG_MS: Final = 120_000.0
UNCLEAN_SETTING: Final = "unclean.leader.election.enable"

Value = dict[str, Any]


class Entries(Checker):
    """Compares each write of a leadership entry with the one before it, and with the assignment."""

    kinds = (*KINDS, "ctl.brokers", "admin.call", "handler.report")
    invariants = ("INV-07", "INV-15", "INV-16", "INV-17", "INV-18", "INV-20", "INV-21")

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = Rules() if rules is None else rules
        self._stored = Stored()
        self._views = Views()
        # When each replica set of a partition was stored, and of which topic id.
        self._replicas: dict[tuple[str, str], list[tuple[int, str, frozenset[int]]]] = {}
        # Those that a tool has overwritten, until the controller writes the topic: it takes only added partitions from
        # such a write, as in Kafka, and goes on with the assignment that it knows.
        self._overwritten: dict[tuple[str, str], frozenset[int]] = {}
        self._allowed_ms: dict[str, float] = {}  # when unclean elections were last allowed, by key of the configuration
        self._asked_unclean: set[str] = set()  # partitions for which an operator asked for one; all: ""
        self._failed: set[tuple[int, str, int]] = set()  # broker, topic and partition of replicas that have failed
        self._earlier = EarlierLeaders()

    def check(self, event: Event) -> Violation | None:
        if event.kind == "store.commit":
            if event.fields["outcome"] != "ok":
                return None
            violation = next(filter(None, (self._written(event, *write) for write in leadership_writes(event))), None)
            self._earlier.add(event, self._stored)
            self._apply(event)
            return violation
        if event.kind == "ctl.brokers":
            self._views.add(event)
        elif event.kind == "admin.call":
            if event.fields["operation"] == "elect unclean":
                self._asked_unclean.update(event.fields["target"].split(", "))
        elif event.kind in ("role.apply", "handler.report") and is_failure(event):
            self._failed.add((event.fields["broker"], event.fields["topic"], event.fields["partition"]))
        if event.kind in KINDS:
            self._earlier.add(event, self._stored)
        return None

    def _apply(self, event: Event) -> None:
        for key in ("config", *(key for key, *_ in event.fields["ops"] if key.startswith("config"))):
            if self._allows(key):
                self._allowed_ms[key] = event.time_ms
        grown = {topic for topic, value in topic_writes(event) if self._stored.grows(topic, value)}
        self._stored.apply(event)
        for topic, value in topic_writes(event):
            if value is None:
                continue
            for partition, (replicas, _adding, _removing) in value["partitions"].items():
                known = self._replicas.setdefault((topic, partition), [])
                is_written = event.fields["fence"] is not None and topic not in grown
                if is_written or (known and known[-1][1] != value["id"]):
                    self._overwritten.pop((topic, partition), None)
                elif known and event.fields["fence"] is None:
                    self._overwritten.setdefault((topic, partition), known[-1][2])
                here = (event.seq, value["id"], frozenset(replicas))
                if not known or known[-1][1:] != here[1:]:
                    known.append(here)

    # -- one write -----------------------------------------------------------------------------------------------------

    def _written(
        self, event: Event, topic: str, partition: str, old: int, new: int, value: Value | None
    ) -> Violation | None:
        name = f"{topic}-{partition}"
        before = self._stored.leadership(topic, partition)
        stored = NO_VERSION if before is None else before.version
        found = None if before is None else before.event
        if old != stored or (value is not None and new != stored + 1):
            text = f"{name}: version {stored} was stored, and a write from {old} to {new} was committed"
            return Violation("INV-07", text, event=event, contradicts=found)
        if value is None:
            self._stored.entries.pop(f"leadership/{topic}/{partition}", None)  # the same commit may write it again
            return None
        if is_ownership(self._stored.topic_id(topic)):
            # Any participant may own it: see `owners`.
            wrong = self._is_sound(value) or self._epochs_rise(before, value)
        elif self._earlier.has_written(event, topic, partition, value):
            # It continues the leadership of another topic, not the one that it replaces.
            wrong = self._is_sound(value) or self._holds_replicas(event, topic, partition, before, value)
        else:
            # The cause before its consequences: a leader from nowhere is usually not in the ISR written with it.
            wrong = (
                self._is_elected_rightly(event, topic, partition, before, value)
                or self._is_sound(value)
                or self._epochs_rise(before, value)
                or self._holds_replicas(event, topic, partition, before, value)
                or self._recovers_rightly(event, before, value)
            )
        if wrong is None:
            return None
        invariant, text = wrong
        return Violation(invariant, f"{name}: {text}", event=event, contradicts=found)

    @staticmethod
    def _is_sound(value: Value) -> tuple[str, str] | None:
        leader, isr = value["leader"], value["isr"]
        if not isr:
            return "INV-17", "the ISR is empty"
        if leader != NO_LEADER and leader not in isr:
            return "INV-15", f"leader {leader} is not in ISR {isr}"
        if len(set(isr)) != len(isr):
            return "INV-16", f"ISR {isr} names a broker twice"
        return None

    @staticmethod
    def _epochs_rise(before: Entry | None, value: Value) -> tuple[str, str] | None:
        if before is None:
            return None
        was, now = before.value["leader_epoch"], value["leader_epoch"]
        if now < was:
            return "INV-18", f"the leader epoch falls from {was} to {now}"
        if now == was and value["leader"] != before.value["leader"]:
            text = f"the leader goes from {before.value['leader']} to {value['leader']} within leader epoch {now}"
            return "INV-18", text
        return None

    def _holds_replicas(
        self, event: Event, topic: str, partition: str, before: Entry | None, value: Value
    ) -> tuple[str, str] | None:
        """Members that join are replicas: at this moment, or when the write was sent. A leader may join replicas that
        the topic had earlier, because it learns of its assignment late."""
        known = self._replicas.get((topic, partition))
        if not known:
            return None
        begin = 0 if event.fields["fence"] is None else event.fields["sent"]
        allowed = self._overwritten.get((topic, partition), frozenset())
        first = known[-1][0]
        for seq, topic_id, replicas in reversed(known):
            if not is_zero(topic_id) and not is_zero(known[-1][1]) and topic_id != known[-1][1]:
                break  # an earlier topic of that name: stores write only to the topic that is meant
            if is_zero(known[-1][1]) and topic_id != known[-1][1] and first < begin:
                break  # without ids they cannot tell; a write that was sent before may still be for it
            allowed |= replicas
            first = seq
            if seq < begin:
                break
        in_sync = set(before.value["isr"]) if before is not None else set()
        joined = set(value["isr"]) - in_sync
        if joined - allowed:
            return "INV-16", f"{sorted(joined - allowed)} join ISR {value['isr']}, and are none of {sorted(allowed)}"
        is_new_leader = before is None or before.value["leader"] != value["leader"]
        if not in_sync & allowed:
            allowed |= in_sync  # the assigned replicas copy from one that is not
        if is_new_leader and value["leader"] != NO_LEADER and value["leader"] not in allowed:
            return "INV-16", f"{value['leader']} is elected, and is none of the replicas {sorted(allowed)}"
        return None

    # -- elections -----------------------------------------------------------------------------------------------------

    def _is_elected_rightly(
        self, event: Event, topic: str, partition: str, before: Entry | None, value: Value
    ) -> tuple[str, str] | None:
        leader = value["leader"]
        if before is None or leader in (NO_LEADER, before.value["leader"]) or leader in before.value["isr"]:
            return None
        isr = before.value["isr"]
        if not self._may_be_unclean(event, topic, partition):
            return "INV-20", f"{leader} is elected and was not in ISR {isr}; unclean elections are not allowed"
        view = self._views.at(event.fields["client"], event.fields["sent"])
        live = sorted(member for member in isr if self._is_live(view, member, topic, partition))
        if live:
            return "INV-20", f"{leader} is elected and was not in ISR {isr}, of which {live} are live"
        return None

    def _may_be_unclean(self, event: Event, topic: str, partition: str) -> bool:
        if not self._asked_unclean.isdisjoint((f"{topic}-{partition}", "")):
            return True
        for key in (f"configs/{topic}", "config"):
            if self._allows(key) or event.time_ms - self._allowed_ms.get(key, -CONFIG_LAG_MS) < CONFIG_LAG_MS:
                return True
        return self._rules.unclean

    def _allows(self, key: str) -> bool:
        value = self._stored.value(key)
        return value is not None and str(value.get(UNCLEAN_SETTING, "")).lower() == "true"

    def _is_live(self, view: View | None, broker: int, topic: str, partition: str) -> bool:
        if view is None or (broker, topic, int(partition)) in self._failed:
            return False
        return broker in view.live

    def _recovers_rightly(self, event: Event, before: Entry | None, value: Value) -> tuple[str, str] | None:
        recovering, leader, isr = value["recovering"], value["leader"], value["isr"]
        was = before is not None and before.value["recovering"]
        is_new = before is not None and leader not in (NO_LEADER, before.value["leader"])
        unclean = before is not None and is_new and leader not in before.value["isr"]
        if unclean and (isr != [leader] or recovering != self._rules.recovery):
            return "INV-21", f"{leader} is elected uncleanly with ISR {isr}, recovering {recovering}"
        if recovering and not was and not unclean:
            return "INV-21", f"it is marked as recovering without an unclean election, leader {leader}, ISR {isr}"
        if recovering and len(isr) != 1:
            return "INV-21", f"ISR {isr} grows while leader {leader} recovers"
        if was and not recovering:
            assert before is not None
            same = (leader, value["leader_epoch"]) == (before.value["leader"], before.value["leader_epoch"])
            if not same or leader == NO_LEADER:
                return "INV-21", "the end of a recovery comes from another leader epoch than the recovering leader's"
        return None
