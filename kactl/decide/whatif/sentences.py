"""Sentences about outcomes, rolling restarts, and the limits of an answer."""

from collections.abc import Iterable

from kactl.runtime.plural import count

from .outcomes import Now, Outcome, Rolling
from .prepared_snapshot import PreparedSnapshot


def explained(outcome: Outcome, *, weighted: bool, whole: bool) -> str:
    """Returns the explanation of an outcome.

    Args:
        weighted: loads are weights, not numbers of partitions.
        whole: all partitions of the cluster are known. Otherwise the text speaks of known partitions.
    """
    if not outcome.scenario.brokers:
        return _now(outcome, whole=whole)
    parts = [f"If {outcome.scenario.name} {'fail' if _are_many(outcome) else 'fails'}, {_lost(outcome, whole=whole)}"]
    rest, before = outcome.under_min - outcome.offline, _refusing_before(outcome)
    if rest > before:
        parts.append(
            f"{count(rest)} can be read but {_do(rest, 'refuse')} acks=all{_now_too(before)}: fewer replicas are in "
            "sync than min.insync.replicas."
        )
    if outcome.lone_more > 0:
        lone = outcome.lone
        parts.append(f"{count(lone)} would be one failure from loss{_now_too(lone - outcome.lone_more)}.")
    parts.append(_load(outcome, weighted=weighted))
    return " ".join(filter(None, parts))


def explained_roll(rolling: Rolling, *, whole: bool) -> str:
    """Returns the explanation of a rolling restart; `whole` as in `explained`."""
    nothing, everything = ("nothing", "everything") if whole else ("no known partition", "the known ones")
    moves = f"Leaders move {count(rolling.moves, 'time')} in all."
    worst = rolling.worst
    if not worst.scenario.brokers:
        return "There is no broker to restart."
    if rolling.bad_steps:
        return (
            f"Restarting {rolling.order} takes partitions offline in {rolling.bad_steps:,} of {rolling.steps:,} steps, "
            f"{count(worst.offline_more)} at worst, while {_while(worst)}. {moves}"
        )
    if worst.under_min_more:
        return (
            f"Restarting {rolling.order} takes {nothing} offline; at worst {count(worst.under_min_more)} "
            f"{_do(worst.under_min_more, 'refuse')} acks=all, while {_while(worst)}. {moves}"
        )
    return f"Restarting {rolling.order} takes {nothing} offline and leaves {everything} writable. {moves}"


def _now(outcome: Outcome, *, whole: bool) -> str:
    every = "Every partition" if whole else "Every known partition"
    if not outcome.under_min and not outcome.lossy:
        return f"{every} has a leader and as many in-sync replicas as min.insync.replicas requires."
    parts = []
    if outcome.offline:
        parts.append(f"{count(outcome.offline)} already {_has(outcome.offline)} no leader.")
    rest = outcome.under_min - outcome.offline
    if rest > 0:
        parts.append(f"{count(rest)} already {_has(rest)} fewer in-sync replicas than min.insync.replicas.")
    return " ".join(parts) or f"{every} has a leader."


def _lost(outcome: Outcome, *, whole: bool) -> str:
    """Returns the part about partitions without a leader, or with a leader that lacks records."""
    offline, lossy = outcome.offline_more, outcome.lossy
    topics = f" of {count(outcome.topics, 'topic')}" if outcome.topics else ""
    if not offline and not lossy:
        every = "every partition" if whole else "every known partition"
        return f"{every} keeps a leader" + (" that has one now." if outcome.offline else ".")
    parts = []
    if offline:
        parts.append(f"{count(offline)}{topics} {_has(offline)} no leader: all in-sync replicas are down.")
        parts.append(_recoverable(offline, outcome.recoverable))
    if lossy:
        subject = f"{lossy:,} more" if offline else f"{count(lossy)}{topics}"
        parts.append(
            f"{subject} {'is' if lossy == 1 else 'are'} led by a replica that was not in sync, because unclean "
            "elections are allowed: records that it lacks are lost."
        )
    return " ".join(filter(None, parts))


def _recoverable(offline: int, recoverable: int) -> str:
    price = "would lose the records that the remaining replicas lack"
    if recoverable == offline:
        return f"An unclean election {price}."
    if not recoverable:
        return f"No other replica of {'it' if offline == 1 else 'them'} is alive."
    return f"For {recoverable:,} of them, an unclean election {price}; the others have no live replica."


def _load(outcome: Outcome, *, weighted: bool) -> str:
    if outcome.busiest is None:
        return ""
    leads, led = outcome.busiest_leads, outcome.busiest_led
    if weighted:
        return f"Broker {outcome.busiest} would have the highest leader load: {leads:,.6g} ({led:,.6g} now)."
    return f"Broker {outcome.busiest} would lead the most partitions: {round(leads):,} ({round(led):,} now)."


def _while(outcome: Outcome) -> str:
    return f"{outcome.scenario.name} {'are' if _are_many(outcome) else 'is'} down"


def _are_many(outcome: Outcome) -> bool:
    """Returns whether the scenario has more than one name; a rack has one."""
    return len(outcome.scenario.racks) + len(outcome.scenario.alone) > 1


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


def _do(number: int, verb: str) -> str:
    return f"{verb}s" if number == 1 else verb


def _refusing_before(outcome: Outcome) -> int:
    return (outcome.under_min - outcome.under_min_more) - (outcome.offline - outcome.offline_more)


def _now_too(number: int) -> str:
    return f" ({number:,} now)" if number else ""


def notes(snapshot: PreparedSnapshot, now: Now) -> tuple[str, ...]:
    """Returns the limits of an answer: unknown partitions, assumptions, brokers without a rack."""
    sentences = (_unknown(now), _stuck(now), _unsure(snapshot), _defaulted(snapshot, now), _without_rack(now))
    return (*snapshot.notes, *filter(None, sentences))


def _unknown(now: Now) -> str:
    if not now.unknown:
        return ""
    is_ = "is" if now.unknown == 1 else "are"
    return f"{count(now.unknown)} {is_} left out: leader, replicas or ISR are not known."


def _stuck(now: Now) -> str:
    if not now.stuck:
        return ""
    return (
        f"{count(now.stuck)} had no leader although an in-sync replica seems to be alive (a directory failed, "
        "or an election was in progress): assumed to have none throughout."
    )


def _unsure(snapshot: PreparedSnapshot) -> str:
    unsure = snapshot.engine.topology.unsure
    if not unsure:
        return ""
    return f"Assumed to be down, because they are in no ISR: {_ids(unsure)}. If they are alive: --alive {_ids(unsure)}."


def _defaulted(snapshot: PreparedSnapshot, now: Now) -> str:
    if not snapshot.defaulted:
        return ""
    return (
        f"min.insync.replicas is assumed to be {now.min_isr} for {count(snapshot.defaulted)} of which it is not known: "
        "set it with --min-isr or --topics."
    )


def _without_rack(now: Now) -> str:
    inside = {broker for rack in now.racks.values() for broker in rack}
    others = [broker for broker in now.brokers if broker not in inside]
    return f"Without a known rack: {_ids(others)}." if now.racks and others else ""


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
