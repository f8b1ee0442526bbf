"""Advice: rules that each examine facts, and return advice only if the facts support it."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from kactl.forensics.event_types import Kind
from kactl.forensics.jobs.outages.totals import PARTS

from .facts import Advice, Facts
from .findings import Clock
from .wording import brokers, count, duration, listed, sentence, share, writers
from .words import together

_Rule = Callable[[Facts], Iterator[Advice]]
# A part with more than this share of the time is reported.
_MOST: Final = 0.5
# A shorter part of an outage is not reported.
_WORTH_MS: Final = 1000
_FLAPS: Final = 3
_CLOCK_US: Final = 500_000
_FAILOVER_MS: Final = 10_000
_APPLY_MS: Final = 5_000


def advise(facts: Facts) -> tuple[Advice, ...]:
    """Returns advice against data loss first, then against lost time, then for a better next report."""
    found = (each for rule in RULES for each in rule(facts))
    return tuple(Advice(rule=each.rule, do=each.do, because=sentence(each.because)) for each in found)


def _unclean_allowed(facts: Facts) -> Iterator[Advice]:
    allowed = facts.unclean_enabled
    by_setting = sorted({each.topic for each in facts.unclean if each.asked_by is None and each.certain})
    asked = [each for each in facts.unclean if each.asked_by is not None]
    if allowed or by_setting:
        names = "by default" if "" in allowed else f"for {listed(allowed)}"
        became = f"replicas out of sync became leaders of {listed(by_setting)}"
        said = f"the logs show that it is enabled {names}" if allowed else became
        lost = f"; lost: {count(facts.lost.tail, 'record')}" if facts.lost.tail else ""
        yield Advice(
            rule="unclean-enabled",
            do="Set unclean.leader.election.enable=false, unless availability matters more than the records.",
            because=f"{said}{lost}.",
        )
    if asked:
        who = listed(sorted({each.asked_by or "" for each in asked}))
        yield Advice(
            rule="unclean-asked",
            do="Before requesting another unclean election, check whether a replica that was in sync can be restarted.",
            because=f"{count(len(asked), 'unclean election')} {'was' if len(asked) == 1 else 'were'} requested "
            f"({who}).",
        )


def _committed(facts: Facts) -> Iterator[Advice]:
    if facts.lost.committed:
        topics = listed([name for name, lost in facts.lost_topics if lost.committed])
        yield Advice(
            rule="min-insync-replicas",
            do="Give these topics min.insync.replicas=2 or more, with one replica more than that at the least.",
            because=f"At least {count(facts.lost.committed, 'committed record')} of {topics} lost: a replica without "
            "them became leader.",
        )


def _tail(facts: Facts) -> Iterator[Advice]:
    rest = facts.lost.tail - facts.lost.committed
    if rest > 0:
        topics = listed([name for name, lost in facts.lost_topics if lost.tail > lost.committed])
        yield Advice(
            rule="acks",
            do="Where these records matter, write with acks=all (and idempotence, so that trying again makes no "
            "doubles).",
            because=f"{count(rest, 'record')} of {topics} had not been committed when their leader was lost: writers "
            "with acks=1 had received an acknowledgement.",
        )


def _alone(facts: Facts) -> Iterator[Advice]:
    dead = [each for each in together(facts.incidents, "causes") if each.name == "no-live-replica"]
    for each in dead:
        yield Advice(
            rule="no-live-replica",
            do="Place replicas on brokers that do not fail together (broker.rack), and give topics of one replica "
            "more.",
            because=f"{count(each.partitions, 'partition')} had no live replica that could lead, for "
            f"{duration(each.longest_ms)} at the longest.",
        )
    lone = [each for each in facts.flapping if (each.lone_ms or 0) > 60_000]
    if lone:
        worst = max(lone, key=lambda each: each.lone_ms or 0)
        yield Advice(
            rule="alone",
            do="Look after followers that fall out: one more failure would have cost these partitions their leader.",
            because=f"{count(len(lone), 'partition')} had one replica in sync for more than a minute, "
            f"{worst.topic}-{worst.partition} for {duration(worst.lone_ms)}.",
        )


def _parts(facts: Facts) -> Iterator[Advice]:
    """The parts that most of the time was spent in, over all bands of the shown incidents, each with its weight."""
    spent: Counter[str] = Counter()
    for incident in facts.incidents:
        for band in incident.bands:
            for part in (*PARTS, "unknown"):
                spent[part] += int(band.part_ms(part) * band.outages)
    total = sum(spent.values())
    guess = "" if facts.forced.observed == facts.forced.outages else ", as far as can be inferred"
    for part, do in _SLOW.items():
        times = getattr(facts.forced, part)
        if total and spent[part] > _MOST * total and (times.max or 0) >= _WORTH_MS:
            yield Advice(
                rule=f"slow-{part}",
                do=do,
                because=f"{share(spent[part], total)} of the time without leaders went there{guess}: "
                f"{duration(times.p50)} for half where it is known, {duration(times.max)} for the worst.",
            )


_SLOW: Final = {
    "detection": "Let brokers be missed sooner: zookeeper.session.timeout.ms (broker.session.timeout.ms with KRaft), "
    "as far "
    "as pauses for garbage collection allow.",
    "queue": "Find out what the controller was busy with before it came to these partitions: fewer partitions, or "
    "changes "
    "by operators at other times.",
    "election": "Look at what the controller keeps its state in: electing and storing is what took longest.",
    "send": "Look at the controller's connections to brokers: the new leaders received requests late.",
    "apply": "Look at the disks and the load of the new leaders' brokers: taking their roles is what took longest.",
}


def _unstable(facts: Facts) -> Iterator[Advice]:
    """A broker that leaves repeatedly without being shut down."""
    left = Counter(each.broker for each in facts.absences if not each.planned)
    often = {broker: times for broker, times in left.items() if times >= _FLAPS}
    if often:
        worst = max(often, key=lambda broker: (often[broker], -broker))
        yield Advice(
            rule="broker-flaps",
            do=f"Take {brokers(sorted(often))} out of service until the cause of their failures is known.",
            because=f"Broker {worst} was lost {often[worst]} times within these logs.",
        )
    fell: Counter[int] = Counter()
    for each in facts.flapping:
        if each.worst_follower is not None:
            fell[each.worst_follower] += each.worst_follower_falls or 0
    if fell and fell.most_common(1)[0][1] >= _FLAPS:
        broker, falls = fell.most_common(1)[0]
        yield Advice(
            rule="follower-flaps",
            do=f"Look at broker {broker}'s disks, network and pauses: it cannot keep up, or is near to it.",
            because=f"It fell out of ISRs {count(falls, 'time')}, counting the partitions that moved most only.",
        )


def _controllers(facts: Facts) -> Iterator[Advice]:
    slow = [each for each in facts.controllers if (each.failover_ms or 0) >= _FAILOVER_MS]
    both = [each for each in facts.controllers if (each.overlap_ms or 0) > 0]
    if slow:
        worst = max(slow, key=lambda each: each.failover_ms or 0)
        yield Advice(
            rule="slow-failover",
            do="Fewer partitions, or a newer controller (KRaft, or kactl standing by), would shorten this: no "
            "leader is elected meanwhile.",
            because=f"Controller {worst.controller} needed {duration(worst.failover_ms)} to take over.",
        )
    if both:
        yield Advice(
            rule="two-controllers",
            do="Look for long pauses (garbage collection, suspended machines) of the controllers that still acted.",
            because=f"{count(len(both), 'controller')} still acted after another one had been elected, for up to "
            f"{duration(max(each.overlap_ms or 0 for each in both))}.",
        )
    dull = [each for each in facts.requests if (each.apply_p99_ms or 0) >= _APPLY_MS]
    if dull:
        worst_ = max(dull, key=lambda each: each.apply_p99_ms or 0)
        yield Advice(
            rule="slow-broker",
            do=f"Look at {brokers(sorted({each.broker for each in dull if each.broker is not None}))}: they "
            "process requests of controllers late.",
            because=f"Broker {worst_.broker} took {duration(worst_.apply_p99_ms)} for one in a hundred requests.",
        )


def _stuck(facts: Facts) -> Iterator[Advice]:
    if facts.deletions_all:
        first = facts.deletions[0]
        by = f", held up by {brokers(first.blocked_by)}" if first.blocked_by else ""
        yield Advice(
            rule="deletion-stuck",
            do="Bring back the brokers that hold replicas of these topics, or have them taken off.",
            because=f"{count(facts.deletions_all, 'topic')} could not be deleted: {first.topic} for "
            f"{duration(first.span_ms)}{by}.",
        )
    if facts.reassignments_all:
        move = facts.reassignments[0]
        waits = f", waiting for {brokers(move.waiting_for)}" if move.waiting_for else ""
        yield Advice(
            rule="reassignment-stuck",
            do="See whether the copies still make progress; if not, cancel these moves, or lift a throttle that was "
            "set.",
            because=f"{count(facts.reassignments_all, 'partition')} did not reach where they were to go: "
            f"{move.topic}-{move.partition} for {duration(move.span_ms)}{waits}.",
        )


def _audit(facts: Facts) -> Iterator[Advice]:
    if facts.audit:
        yield Advice(
            rule="audit",
            do="Look at the lines named below: a controller or broker broke a rule, or another program changed "
            "the stored state.",
            because=f"{count(sum(each.count for each in facts.audit), 'line')} broke "
            f"{listed([each.rule for each in facts.audit])}.",
        )


def _better_logs(facts: Facts) -> Iterator[Advice]:
    sources = facts.sources
    info = [
        each.speaker
        for each in sources.levels
        if each.kind == Kind.STATE_CHANGE and each.speaker is not None and not each.trace_hours
    ]
    guessed = facts.forced.inferred + facts.forced.bounded
    if info and guessed:
        yield Advice(
            rule="trace",
            do="Set the logger state.change.logger to TRACE on all brokers (kafka-configs.sh --entity-type "
            "broker-loggers "
            "does it without a restart): the next outage is then seen, and not inferred.",
            because=f"{brokers(info)} logged at INFO, and {count(guessed, 'outage')} could not be observed at both "
            "ends.",
        )
    if sources.silent:
        yield Advice(
            rule="missing-logs",
            do=f"Add the logs of {brokers(sources.silent)} and run the report again.",
            because="Only a broker's own log shows its records, its losses, and when it took its role.",
        )
    off = [each for each in sources.clocks if _off_us(each) >= _CLOCK_US]
    if off:
        worst = max(off, key=_off_us)
        yield Advice(
            rule="clocks",
            do="Have the brokers' clocks set by NTP.",
            because=f"The clock of {writers([worst.broker])} was {duration(_off_us(worst) / 1000)} off, or more.",
        )


def _off_us(clock: Clock) -> int:
    """The minimum offset of a clock: as far as its bounds prove it, not the best estimate."""
    return max(clock.low_us or 0, -(clock.high_us or 0), 0)


RULES: Final[tuple[_Rule, ...]] = (
    _unclean_allowed,
    _committed,
    _tail,
    _alone,
    _parts,
    _unstable,
    _controllers,
    _stuck,
    _audit,
    _better_logs,
)
