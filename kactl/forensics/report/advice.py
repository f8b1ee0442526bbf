"""Advice: rules that each examine facts, and return advice only if the facts support it."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from kactl.forensics.jobs.outages.totals import PARTS
from kactl.forensics.wording import brokers, count, count_was, duration, listed, sentence, share, was, writers

from .facts import Advice, Facts
from .findings import Clock
from .limits import brokers_at_info
from .summary import together

# A part with more than this share of the time is reported.
_MOST: Final = 0.5
# A shorter part of an outage is not reported.
_WORTH_MS: Final = 1000
_FLAPS: Final = 3
_ALONE_MS: Final = 60_000
_CLOCK_US: Final = 500_000
_FAILOVER_MS: Final = 10_000
_APPLY_MS: Final = 5_000

# Recommended action of each rule.
_ACTIONS: Final = {
    "unclean-enabled": "Set unclean.leader.election.enable=false, unless availability matters more than the records.",
    "unclean-asked": "Before requesting another unclean election, check whether a replica that was in sync can be "
    "restarted.",
    "min-insync-replicas": "Give these topics min.insync.replicas=2 or more, with at least one replica more than that.",
    "acks": "Where these records matter, write with acks=all (and idempotence, so that retries cause no duplicates).",
    "no-live-replica": "Place replicas on brokers that do not fail together (broker.rack), and add replicas to topics "
    "that have one.",
    "alone": "Check followers that leave the ISR: one more failure would have cost these partitions their leader.",
    "slow-detection": "Detect failed brokers sooner: reduce zookeeper.session.timeout.ms (broker.session.timeout.ms "
    "with KRaft), as far as pauses for garbage collection allow.",
    "slow-queue": "Find out which events the controller handled before these partitions: reduce the number of "
    "partitions, or schedule operators' changes at other times.",
    "slow-election": "Check the store of the controller's state: electing and storing took longest.",
    "slow-send": "Check the controller's connections to brokers: the new leaders received requests late.",
    "slow-apply": "Check the disks and the load of the new leaders' brokers: becoming leader took longest.",
    "broker-flaps": "Take {brokers} out of service until the cause of their failures is known.",
    "cluster-flaps": "Look for what {brokers} have in common (network, machines, the store of the controller's state): "
    "too many of the brokers failed repeatedly to take them out of service.",
    "follower-flaps": "Check the disks, network and pauses of {brokers}: it cannot keep up, or is near to it.",
    "slow-failover": "Fewer partitions, or a newer controller (KRaft, or kactl standing by), would shorten this: no "
    "leader is elected meanwhile.",
    "two-controllers": "Look for long pauses (garbage collection, suspended machines) of the controllers that still "
    "acted.",
    "slow-broker": "Check {brokers}: requests of controllers are processed late there.",
    "deletion-stuck": "Restart the brokers that have replicas of these topics, or have these replicas removed.",
    "reassignment-stuck": "Check whether the copies still make progress; if not, cancel these reassignments, or remove "
    "a throttle that was set.",
    "audit": "Check the lines named below: a controller or broker broke a rule, or another program changed the stored "
    "state.",
    "trace": "Set the logger state.change.logger to TRACE on all brokers (kafka-configs.sh --entity-type "
    "broker-loggers does it without a restart): the next outage is then observed, and not inferred.",
    "missing-logs": "Add the logs of {brokers} and run the report again.",
    "clocks": "Synchronise the brokers' clocks by NTP.",
}


def advise(facts: Facts) -> tuple[Advice, ...]:
    """Returns advice against data loss first, then against lost time, then for a better next report."""
    return tuple(advice for examine in _RULES for advice in examine(facts))


def _advice(rule: str, evidence: str, **names: str) -> Advice:
    return Advice(rule=rule, do=_ACTIONS[rule].format(**names), because=sentence(evidence))


def _unclean(facts: Facts) -> Iterator[Advice]:
    enabled = facts.unclean_enabled
    by_setting = sorted(
        {election.topic for election in facts.unclean if election.asked_by is None and election.certain}
    )
    requested = [election.asked_by for election in facts.unclean if election.asked_by is not None]
    if enabled or by_setting:
        evidence = f"replicas out of sync became leaders of {listed(by_setting)}"
        if enabled:
            scope = "by default" if "" in enabled else f"for {listed(enabled)}"
            evidence = f"the logs show that it is enabled {scope}"
        lost = f"; lost: {count(facts.lost.tail, 'record')}" if facts.lost.tail else ""
        yield _advice("unclean-enabled", f"{evidence}{lost}")
    if requested:
        triggers = listed(sorted(set(requested)))
        yield _advice("unclean-asked", f"{count_was(len(requested), 'unclean election')} requested ({triggers})")


def _losses(facts: Facts) -> Iterator[Advice]:
    if facts.lost.committed:
        topics = listed([name for name, lost in facts.lost_topics if lost.committed])
        number = facts.lost.committed
        records = f"{count(number, 'committed record')} of {topics} {was(number)} lost"
        yield _advice("min-insync-replicas", f"at least {records}: a replica without them became leader")
    rest = facts.lost.tail - facts.lost.committed
    if rest > 0:
        topics = listed([name for name, lost in facts.lost_topics if lost.tail > lost.committed])
        yield _advice(
            "acks",
            f"{count(rest, 'record')} of {topics} had not been committed when their leader was lost: writers with "
            "acks=1 had received an acknowledgement",
        )


def _few_replicas(facts: Facts) -> Iterator[Advice]:
    for cause in together(facts.incidents, "causes"):
        if cause.name == "no-live-replica":
            partitions = count(cause.partitions, "partition")
            longest = duration(cause.longest_ms)
            yield _advice(cause.name, f"{partitions} had no live replica that could lead, for {longest} at the longest")
    alone = [partition for partition in facts.flapping if (partition.lone_ms or 0) > _ALONE_MS]
    if alone:
        worst = max(alone, key=lambda partition: partition.lone_ms or 0)
        yield _advice(
            "alone",
            f"{count(len(alone), 'partition')} had one replica in sync for more than a minute, "
            f"{worst.topic}-{worst.partition} for {duration(worst.lone_ms)}",
        )


def _parts(facts: Facts) -> Iterator[Advice]:
    """The parts that took most of the time, over all bands of the incidents shown, each with its weight."""
    spent_ms: Counter[str] = Counter()
    for incident in facts.incidents:
        for band in incident.bands:
            for part in (*PARTS, "unknown"):
                spent_ms[part] += int(band.part_ms(part) * band.outages)
    total_ms = sum(spent_ms.values())
    by_cause = any(cause.name == "no-live-replica" for cause in together(facts.incidents, "causes"))
    if spent_ms["waiting"] > _MOST * total_ms and (facts.forced.waiting.max or 0) >= _WORTH_MS and not by_cause:
        lost = [int(broker.name) for broker in together(facts.incidents, "brokers") if broker.name != "unknown"]
        on = f" after the loss of {brokers(lost)}" if lost else ""
        part = share(spent_ms["waiting"], total_ms)
        evidence = f"for {part} of the time without leaders no replica that may lead was alive"
        yield _advice("no-live-replica", f"{evidence}{on}")
    inferred = "" if facts.forced.observed == facts.forced.outages else ", as far as can be inferred"
    for part in ("detection", "queue", "election", "send", "apply"):
        times = getattr(facts.forced, part)
        if total_ms and spent_ms[part] > _MOST * total_ms and (times.max or 0) >= _WORTH_MS:
            yield _advice(
                f"slow-{part}",
                f"{share(spent_ms[part], total_ms)} of the time without leaders was spent there{inferred}: "
                f"{duration(times.p50)} for half where it is known, {duration(times.max)} for the worst",
            )


def _unstable(facts: Facts) -> Iterator[Advice]:
    """Brokers that leave repeatedly without being shut down, and followers that leave ISRs."""
    left = Counter(absence.broker for absence in facts.absences if not absence.planned)
    flapping = sorted(broker for broker, times in left.items() if times >= _FLAPS)
    if flapping:
        worst = max(flapping, key=lambda broker: (left[broker], -broker))
        evidence = f"broker {worst} was lost {left[worst]} times within these logs"
        rest = len(facts.sources.brokers) - len(flapping)
        rule = "broker-flaps" if len(flapping) <= rest else "cluster-flaps"
        yield _advice(rule, evidence, brokers=brokers(flapping))
    fell: Counter[int] = Counter()
    for partition in facts.flapping:
        if partition.worst_follower is not None:
            fell[partition.worst_follower] += partition.worst_follower_falls or 0
    for broker, falls in fell.most_common(1):
        if falls >= _FLAPS:
            times = count(falls, "time")
            evidence = f"it fell out of ISRs {times}, counting only the partitions with most changes"
            yield _advice("follower-flaps", evidence, brokers=brokers([broker]))


def _controllers(facts: Facts) -> Iterator[Advice]:
    slow = max(facts.controllers, key=lambda term: term.failover_ms or 0, default=None)
    if slow is not None and (slow.failover_ms or 0) >= _FAILOVER_MS:
        yield _advice("slow-failover", f"controller {slow.controller} needed {duration(slow.failover_ms)} to take over")
    overlaps = [term.overlap_ms for term in facts.controllers if term.overlap_ms and term.overlap_ms > 0]
    if overlaps:
        acted = f"{count(len(overlaps), 'controller')} still acted after another one had been elected"
        yield _advice("two-controllers", f"{acted}, for up to {duration(max(overlaps))}")
    late = [requests for requests in facts.requests if (requests.apply_p99_ms or 0) >= _APPLY_MS]
    if late:
        worst = max(late, key=lambda requests: requests.apply_p99_ms or 0)
        evidence = f"broker {worst.broker} took {duration(worst.apply_p99_ms)} for one in a hundred requests"
        ids = sorted({requests.broker for requests in late if requests.broker is not None})
        yield _advice("slow-broker", evidence, brokers=brokers(ids))


def _stuck(facts: Facts) -> Iterator[Advice]:
    if facts.deletions_all:
        deletion = facts.deletions[0]
        by = f", blocked by {brokers(deletion.blocked_by)}" if deletion.blocked_by else ""
        topics = count(facts.deletions_all, "topic")
        span = duration(deletion.span_ms)
        yield _advice("deletion-stuck", f"{topics} could not be deleted: {deletion.topic} for {span}{by}")
    if facts.reassignments_all:
        move = facts.reassignments[0]
        waits = f", waiting for {brokers(move.waiting_for)}" if move.waiting_for else ""
        yield _advice(
            "reassignment-stuck",
            f"{count_was(facts.reassignments_all, 'reassignment')} not completed: "
            f"{move.topic}-{move.partition} for {duration(move.span_ms)}{waits}",
        )


def _audit(facts: Facts) -> Iterator[Advice]:
    if facts.audit:
        lines = count(sum(finding.count for finding in facts.audit), "line")
        yield _advice("audit", f"{lines} broke {listed([finding.rule for finding in facts.audit])}")


def _better_logs(facts: Facts) -> Iterator[Advice]:
    sources = facts.sources
    info = brokers_at_info(sources)
    uncertain = facts.forced.inferred + facts.forced.bounded
    if info and uncertain:
        outages = count(uncertain, "outage")
        yield _advice("trace", f"{brokers(info)} logged at INFO, and {outages} could not be observed at both ends")
    if sources.silent:
        evidence = "only a broker's own log shows its records, its losses, and when it became leader or follower"
        yield _advice("missing-logs", evidence, brokers=brokers(sources.silent))
    worst = max(sources.clocks, key=_off_us, default=None)
    if worst is not None and _off_us(worst) >= _CLOCK_US:
        off = duration(_off_us(worst) / 1000)
        yield _advice("clocks", f"the clock of {writers([worst.broker])} was {off} off, or more")


def _off_us(clock: Clock) -> int:
    """Returns the minimum offset of a clock: as far as its bounds prove it, not the best estimate."""
    return max(clock.low_us or 0, -(clock.high_us or 0), 0)


_RULES: Final[tuple[Callable[[Facts], Iterator[Advice]], ...]] = (
    _unclean,
    _losses,
    _few_replicas,
    _parts,
    _unstable,
    _controllers,
    _stuck,
    _audit,
    _better_logs,
)
