"""Report sections about lost records, and about the unclean elections that lose them."""

from collections.abc import Iterator

from .facts import Facts
from .findings import Down, Loss, Unclean
from .section import Section, table
from .wording import Moments, duration, known_id, known_name, listed


def loss_sections(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Returns the sections that are not empty."""
    yield from _losses(facts, moments)
    yield from _unclean(facts, moments)


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
            "A replica that begins to follow a leader with a shorter log removes the records that the leader does not "
            "have. Records below the highest known high watermark had been committed; the number is a lower bound, "
            "because the watermark may lag. Of several replicas with the same records only the largest loss counts.",
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
