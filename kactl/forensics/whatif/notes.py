"""Notes about the limits of an answer: unknown partitions, assumptions, brokers without a rack."""

from . import words
from .prepared_snapshot import PreparedSnapshot
from .sweep import Now


def notes(snapshot: PreparedSnapshot, now: Now) -> tuple[str, ...]:
    """Return the notes as sentences; empty if the answer has no limits."""
    said = (*snapshot.notes, _unknown(now), _stuck(now), _unsure(snapshot), _defaulted(snapshot, now), _loose(now))
    return tuple(filter(None, said))


def _unknown(now: Now) -> str:
    if not now.unknown:
        return ""
    is_ = "is" if now.unknown == 1 else "are"
    return f"{words.count(now.unknown)} {is_} left out: their leader, replicas or ISR are not known."


def _stuck(now: Now) -> str:
    if not now.stuck:
        return ""
    return (
        f"{words.count(now.stuck)} had no leader although somebody in sync seems to be alive (a directory failed, or "
        "an election was going on): taken to have none throughout."
    )


def _unsure(snapshot: PreparedSnapshot) -> str:
    unsure = snapshot.engine.topology.unsure
    if not unsure:
        return ""
    return f"Taken to be away, as nobody has them in sync: {_ids(unsure)}. If they are alive: --alive {_ids(unsure)}."


def _defaulted(snapshot: PreparedSnapshot, now: Now) -> str:
    if not snapshot.defaulted:
        return ""
    return (
        f"min.insync.replicas is taken to be {now.min_isr} for {words.count(snapshot.defaulted)}, as nothing is known "
        "of theirs: say otherwise with --min-isr or --topics."
    )


def _loose(now: Now) -> str:
    inside = {broker for rack in now.racks.values() for broker in rack}
    loose = [broker for broker in now.brokers if broker not in inside]
    return f"Of no known rack: {_ids(loose)}." if now.racks and loose else ""


def _ids(brokers: "tuple[int, ...] | list[int]") -> str:
    return ",".join(map(str, brokers))
