"""Remaining report sections: flapping, controllers, unfinished operations, and violations."""

from collections.abc import Callable, Iterator
from typing import Final

from .facts import Facts
from .findings import Controllership, Requests
from .section import Section, table
from .wording import Moments, count, duration, known_id, known_name, listed

_Made = Callable[[Facts, Moments], Iterator[Section]]


def other_sections(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Returns the sections that are not empty."""
    for make in _ORDER:
        yield from make(facts, moments)


def _moving(facts: Facts, moments: Moments) -> Iterator[Section]:
    hours = [each for each in facts.churn if each.elections or each.shrinks]
    storms = [each for each in facts.churn if each.storm]
    if not facts.flapping and not hours:
        return
    said = []
    if facts.flapping_all:
        shown = (
            f"; the {len(facts.flapping)} that moved most are shown" if facts.flapping_all > len(facts.flapping) else ""
        )
        said.append(f"{count(facts.flapping_all, 'partition')} moved more than once{shown}.")
    if storms:
        said.append(f"In {count(len(storms), 'hour')} leaders moved many times as often as is usual in these logs.")
    flapping = table(
        (
            "partition",
            "leaders",
            "after a failure",
            "to and fro",
            "preferred, lost again",
            "ISR shrank",
            "grew",
            "who fell out most",
            "one in sync",
            "fewer than assigned",
        ),
        (
            (
                known_name(each.topic, each.partition, each.life),
                each.elections,
                each.forced,
                each.ping_pongs,
                each.preferred_lost,
                each.shrinks,
                each.expands,
                None if each.worst_follower is None else f"{each.worst_follower} ({each.worst_follower_falls or 0})",
                duration(each.lone_ms),
                duration(each.under_replicated_ms),
            )
            for each in facts.flapping
        ),
        "Partitions that moved most",
    )
    busy = table(
        (
            "hour",
            "leaders",
            "wanted",
            "after a failure",
            "partitions",
            "ISRs shrank",
            "grew",
            "in its worst minute",
            "",
        ),
        (
            (
                moments.seconds(each.hour),
                each.elections,
                each.planned,
                each.forced,
                each.partitions,
                each.shrinks,
                each.expands,
                each.most_in_a_minute,
                "storm" if each.storm else "",
            )
            for each in hours
        ),
        "Hours in which most moved",
    )
    yield Section(name="moving", title="What moved again and again", paragraphs=tuple(said), tables=(*flapping, *busy))


def _controllers(facts: Facts, moments: Moments) -> Iterator[Section]:
    if not facts.controllers and not facts.requests:
        return
    acted = table(
        (
            "controller",
            "epoch",
            "elected",
            "took over in",
            "nobody before it for",
            "acted on for",
            "refused",
            "moved",
            "until",
        ),
        (_controller(each, moments) for each in facts.controllers),
        "Controllers, in order of time",
    )
    asked = table(
        (
            "broker",
            "by",
            "request",
            "sent",
            "begun",
            "done",
            "no answer",
            "old",
            "half",
            "99 %",
            "longest",
            "waited, 99 %",
        ),
        (_request(each) for each in facts.requests),
        "Requests to brokers, the slowest first",
    )
    yield Section(name="controllers", title="Controllers and their requests", tables=(*acted, *asked))


def _controller(each: Controllership, moments: Moments) -> tuple[object, ...]:
    return (
        known_id(each.controller),
        known_id(each.controller_epoch),
        moments.full(each.elected_at),
        duration(each.failover_ms),
        duration(each.gap_ms),
        duration(each.overlap_ms) if each.overlap_ms else None,
        each.refused,
        each.partitions_moved,
        moments.full(each.resigned_at or each.last_act_at),
    )


def _request(each: Requests) -> tuple[object, ...]:
    times = (each.apply_p50_ms, each.apply_p99_ms, each.apply_max_ms, each.wait_p99_ms)
    return (
        known_id(each.broker),
        known_id(each.controller),
        each.request,
        each.sent,
        each.received,
        each.applied,
        each.unanswered,
        each.ignored,
        *(duration(time) for time in times),
    )


def _stuck(facts: Facts, moments: Moments) -> Iterator[Section]:
    if not facts.deletions and not facts.reassignments:
        return
    deletions = table(
        ("topic", "asked", "for", "begun again", "halted", "why", "held up by"),
        (
            (
                each.topic,
                moments.full(each.asked_at),
                duration(each.span_ms),
                each.restarts,
                each.halts,
                each.reason,
                listed(each.blocked_by) or None,
            )
            for each in facts.deletions
        ),
        f"Topics that were to be deleted and were not: {facts.deletions_all:,}",
    )
    moves = table(
        ("partition", "begun", "for", "to go to", "not in sync yet"),
        (
            (
                known_name(each.topic, each.partition, each.life),
                moments.full(each.started_at),
                duration(each.span_ms),
                listed(each.target) or None,
                listed(each.waiting_for) or None,
            )
            for each in facts.reassignments
        ),
        f"Partitions that were to be moved and were not: {facts.reassignments_all:,}",
    )
    yield Section(name="stuck", title="What did not come to its end", tables=(*deletions, *moves))


def _audit(facts: Facts, moments: Moments) -> Iterator[Section]:
    if not facts.audit:
        return
    yield Section(
        name="audit",
        title="What must never be",
        paragraphs=("Rules that lines of these logs break, each with the first line that shows it.",),
        tables=table(
            ("rule", "lines", "first", "what", "broker", "expected", "found", "file", "at byte"),
            (
                (
                    each.rule,
                    each.count,
                    moments.full(each.at),
                    None if each.topic is None else known_name(each.topic, each.partition, 0),
                    known_id(each.broker),
                    each.expected,
                    each.found,
                    each.path,
                    each.offset,
                )
                for each in facts.audit
            ),
        ),
    )


_ORDER: Final[tuple[_Made, ...]] = (_moving, _controllers, _stuck, _audit)
