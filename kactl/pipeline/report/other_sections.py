"""The parts of the report beside incidents: records lost, unclean elections, what flapped, controllers, what got stuck,
and what must never be."""

from collections.abc import Callable, Iterator
from typing import Final

from .facts import Facts
from .findings import Controllership, Down, Loss, Requests, Unclean
from .section import Section, table
from .wording import Moments, count, duration, listed

_Made = Callable[[Facts, Moments], Iterator[Section]]


def other_sections(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Those that have something to say."""
    for make in _ORDER:
        yield from make(facts, moments)


def _losses(facts: Facts, moments: Moments) -> Iterator[Section]:
    if not facts.losses:
        return
    topics = table(
        ("topic", "partitions", "committed, at least", "cut off in all", "committed, certain", "cut off, certain"),
        (
            (name, lost.partitions, lost.committed, lost.tail, lost.committed_sure, lost.tail_sure)
            for name, lost in facts.lost_topics
        ),
        "By topic",
    )
    partitions = table(
        ("partition", "epoch", "when", "new leader", "its log end", "who had more", "committed", "cut off", "evidence"),
        (_loss(each, moments) for each in facts.losses),
        "Partitions that lost most",
    )
    yield Section(
        name="losses",
        title="Records lost",
        paragraphs=(
            "A replica that begins to follow a leader whose log is shorter cuts off what the leader does not have. "
            "What was below the highest known high watermark had been committed: that many at the least, as the "
            "watermark may lag. Of several replicas that had the same records the one that had most counts.",
        ),
        tables=(*topics, *partitions),
    )


def _loss(each: Loss, moments: Moments) -> tuple[object, ...]:
    evidence = listed(each.evidence) + (", truncated" if each.truncated and "truncated" not in each.evidence else "")
    return (
        known_name(each.topic, each.partition, each.life),
        known_id(each.leader_epoch),
        moments.full(each.at),
        known_id(each.leader) + (" (unclean)" if each.unclean else ""),
        each.log_end,
        listed(each.replicas) or None,
        each.committed,
        each.tail,
        evidence + ("" if each.certain else ", not certain"),
    )


def _unclean(facts: Facts, moments: Moments) -> Iterator[Section]:
    if not facts.unclean_all:
        return
    shown = len(facts.unclean)
    more = f" Shown are {shown:,} of {facts.unclean_all:,}." if shown < facts.unclean_all else ""
    yield Section(
        name="unclean",
        title="Unclean elections",
        paragraphs=("A replica was made leader that was not in sync, as nobody who was could be." + more,),
        tables=table(
            (
                "partition",
                "when",
                "new leader",
                "out of sync for",
                "last in sync",
                "where those were",
                "asked by",
                "evidence",
            ),
            (_unclean_row(each, moments) for each in facts.unclean),
        ),
    )


def _unclean_row(each: Unclean, moments: Moments) -> tuple[object, ...]:
    return (
        known_name(each.topic, each.partition, each.life),
        moments.full(each.at),
        known_id(each.leader),
        duration(each.out_ms) if each.out_ms is not None else None,
        listed(each.prev_isr) or None,
        "; ".join(_down(down, moments) for down in each.isr_down) or None,
        each.asked_by or "the controller, by the topic's setting",
        listed(each.evidence) + ("" if each.certain else ", not certain"),
    )


def _down(down: Down, moments: Moments) -> str:
    if not down.away:
        return f"{down.broker} not known to be away"
    since = f" since {moments.clock(down.down_at)}" if down.down_at is not None else " since before the logs"
    length = f" for {duration(down.down_ms)}" if down.down_ms is not None else ""
    return f"{down.broker} away{since}{length}"


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


def known_name(topic: str, partition: int | None, life: int) -> str:
    number = "" if partition is None else f"-{partition}"
    return f"{topic}{number}" + (f" (life {life + 1})" if life else "")


def known_id(number: int | None) -> str:
    """Ids are names: no commas in them, and -1 is nobody."""
    return "–" if number is None else "none" if number == -1 else f"{number}"


_ORDER: Final[tuple[_Made, ...]] = (_losses, _unclean, _moving, _controllers, _stuck, _audit)
