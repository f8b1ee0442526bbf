"""Outcomes in sentences: what would be so, for how much of the cluster, and why."""

from .sweep import Outcome, Rolling


def explained(outcome: Outcome, *, weighted: bool, whole: bool) -> str:
    """One outcome.

    Args:
        weighted: loads are in weights, not in partitions.
        whole: all partitions of the cluster are known; else every claim about "every partition" names the known ones.
    """
    if not outcome.scenario.brokers:
        return _now(outcome, whole=whole)
    dies = "die" if _are_many(outcome) else "dies"
    parts = [f"If {outcome.scenario.name} {dies}, {_lost(outcome, whole=whole)}"]
    rest, before = outcome.under_min - outcome.offline, _refusing_before(outcome)
    if rest > before:
        parts.append(
            f"{count(rest)} can be read but {_do(rest, 'refuse')} acks=all{_now_too(before)}: fewer are in sync than "
            "min.insync.replicas."
        )
    if outcome.lone_more > 0:
        lone = outcome.lone
        parts.append(f"{count(lone)} would be one failure from loss{_now_too(lone - outcome.lone_more)}.")
    parts.append(_load(outcome, weighted=weighted))
    return " ".join(filter(None, parts))


def explained_roll(rolling: Rolling, *, whole: bool) -> str:
    """One rolling restart; `whole` as in `explained`."""
    nothing, everything = ("nothing", "everything") if whole else ("no known partition", "the known ones")
    moves = f"Leaders move {rolling.moves:,} time{'' if rolling.moves == 1 else 's'} in all."
    worst = rolling.worst
    if not worst.scenario.brokers:
        return "There is nobody to restart."
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


def count(number: int, thing: str = "partition") -> str:
    """'1 partition', '1,204 partitions'."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _now(outcome: Outcome, *, whole: bool) -> str:
    every = "Every partition" if whole else "Every known partition"
    if not outcome.under_min and not outcome.lossy:
        return f"{every} has a leader, and as many in sync as min.insync.replicas asks for."
    parts = []
    if outcome.offline:
        parts.append(f"{count(outcome.offline)} {_has(outcome.offline)} no leader already.")
    rest = outcome.under_min - outcome.offline
    if rest > 0:
        parts.append(f"{count(rest)} {_has(rest)} fewer in sync than min.insync.replicas already.")
    return " ".join(parts) or f"{every} has a leader."


def _lost(outcome: Outcome, *, whole: bool) -> str:
    """Partitions without a leader, or with one that lacks records."""
    offline, lossy = outcome.offline_more, outcome.lossy
    topics = f" of {count(outcome.topics, 'topic')}" if outcome.topics else ""
    if not offline and not lossy:
        every = "every partition" if whole else "every known partition"
        return f"{every} keeps a leader" + (" that has one now." if outcome.offline else ".")
    parts = []
    if offline:
        parts.append(f"{count(offline)}{topics} {_has(offline)} no leader: all who are in sync are gone.")
        parts.append(_recoverable(offline, outcome.recoverable))
    if lossy:
        whose = f"{lossy:,} more" if offline else f"{count(lossy)}{topics}"
        parts.append(
            f"{whose} {'is' if lossy == 1 else 'are'} led by a replica that was not in sync, as unclean elections are "
            "allowed: what it did not have is lost."
        )
    return " ".join(filter(None, parts))


def _recoverable(offline: int, recoverable: int) -> str:
    """What could be done about those that are offline, short of waiting."""
    price = "would lose what the replicas that are left did not have"
    if recoverable == offline:
        return f"An unclean election {price}."
    if not recoverable:
        return f"No other replica of {'it' if offline == 1 else 'them'} is alive."
    return f"For {recoverable:,} of them an unclean election {price}; of the others no replica is alive."


def _load(outcome: Outcome, *, weighted: bool) -> str:
    if outcome.busiest is None:
        return ""
    leads, led = outcome.busiest_leads, outcome.busiest_led
    if weighted:
        return f"Broker {outcome.busiest} would bear most as a leader: {leads:,.6g} ({led:,.6g} now)."
    return f"Broker {outcome.busiest} would lead most: {count(round(leads))} ({round(led):,} now)."


def _while(outcome: Outcome) -> str:
    return f"{outcome.scenario.name} {'are' if _are_many(outcome) else 'is'} away"


def _are_many(outcome: Outcome) -> bool:
    """Whether more than one thing is named; a rack is one."""
    return len(outcome.scenario.racks) + len(outcome.scenario.alone) > 1


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


def _do(number: int, verb: str) -> str:
    return f"{verb}s" if number == 1 else verb


def _refusing_before(outcome: Outcome) -> int:
    """How many are led now with fewer in sync than they should be."""
    return (outcome.under_min - outcome.under_min_more) - (outcome.offline - outcome.offline_more)


def _now_too(number: int) -> str:
    return f" ({number:,} now)" if number else ""
