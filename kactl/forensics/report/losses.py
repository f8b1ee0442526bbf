"""Lost records, and the unclean elections that lose them: queries and report sections.

`jobs/losses/sums.py` defines how losses add up.
"""

from collections.abc import Iterator
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from kactl.forensics.jobs import losses as loss_job
from kactl.forensics.jobs import unclean as unclean_job
from kactl.forensics.jobs.expressions import is_true
from kactl.forensics.jobs.losses import sums as loss_sums
from kactl.forensics.wording import Moments, duration, known_id, listed

from .facts import Facts
from .findings import Down, Loss, Unclean
from .incidents import bucket_of
from .model import Lost
from .rows import values
from .section import PARTITION, Section, field_table, fields

LOSSES_SHOWN: Final = 20
UNCLEAN_SHOWN: Final = 20
TOPICS_SHOWN: Final = 20
# Names of the sums in a report.
_LOST: Final = {
    "partitions": "partitions",
    "committed": "committed_records",
    "tail": "tail_records",
    "committed_sure": "sure_committed_records",
    "tail_sure": "sure_tail_records",
    "unsized": "unknown",
}


def with_bucket(table: DataFrame) -> DataFrame:
    """Returns a table with its times as microseconds, and their buckets."""
    time = f.unix_micros("at")
    return table.withColumns({"at_us": time, "bucket": bucket_of(time)})


# -- lost records ------------------------------------------------------------------------------------------------------


def by_partition(losses: DataFrame) -> DataFrame:
    """Returns a row for each partition and epoch with a loss at its beginning, with its time and bucket."""
    return with_bucket(loss_sums.by_partition(losses))


def as_lost(row: Row) -> Lost:
    """Returns a row of `losses.sums.sums` as a value."""
    return Lost(**{name: row[column] for name, column in _LOST.items()})


def by_topic(partitions: DataFrame) -> tuple[tuple[str, Lost], ...]:
    """Returns the topics with the greatest losses. Spark sorts, because there may be as many topics as in the logs."""
    worst = loss_sums.sums(partitions, "topic").orderBy(f.desc("committed_records"), f.desc("tail_records"), "topic")
    return tuple((row["topic"], as_lost(row)) for row in worst.limit(TOPICS_SHOWN).collect())


def worst(partitions: DataFrame) -> tuple[Loss, ...]:
    """Returns the partitions with the greatest losses, those of committed records first."""
    most = [f.desc(f.coalesce(name, f.lit(0))) for name in ("committed_records", "tail_records")]
    ranked = partitions.orderBy(*most, "topic", "partition", "life", "leader_epoch")
    records = {"committed_records": "committed", "tail_records": "tail"}
    return values(ranked.limit(LOSSES_SHOWN).withColumnsRenamed(records), Loss)


def loss_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Yields nothing if no record was lost."""
    if not facts.losses:
        return
    topics = field_table(
        (
            ("topic", lambda topic: topic[0]),
            ("partitions", lambda topic: topic[1].partitions),
            ("committed, at least", lambda topic: topic[1].committed),
            ("cut off in all", lambda topic: topic[1].tail),
            ("committed, certain", lambda topic: topic[1].committed_sure),
            ("cut off, certain", lambda topic: topic[1].tail_sure),
        ),
        facts.lost_topics,
        "By topic",
    )
    partitions = field_table(
        (
            PARTITION,
            *fields(loss_job.COLUMNS, moments, "leader_epoch", "at"),
            ("new leader", lambda loss: known_id(loss.leader) + (" (unclean)" if loss.unclean else "")),
            *fields(loss_job.COLUMNS, moments, "log_end"),
            ("replicas with more", lambda loss: listed(loss.replicas) or None),
            ("committed", lambda loss: loss.committed),
            ("cut off", lambda loss: loss.tail),
            ("evidence", _loss_evidence),
        ),
        facts.losses,
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


def _loss_evidence(loss: Loss) -> str:
    truncated = ", truncated" if loss.truncated and "truncated" not in loss.evidence else ""
    return listed(loss.evidence) + truncated + _uncertain(loss)


def _uncertain(finding: Loss | Unclean) -> str:
    return "" if finding.certain else ", not certain"


# -- unclean elections -------------------------------------------------------------------------------------------------


def first_unclean(unclean: DataFrame) -> tuple[Unclean, ...]:
    """Returns some unclean elections, the certain ones first, in order of time."""
    first = unclean.orderBy(f.desc("certain"), "at", "topic", "partition", "life").limit(UNCLEAN_SHOWN)
    down = f.transform("isr_down", lambda broker: broker.withField("away", is_true(broker["away"])))
    lists = {"prev_isr": f.col("prev_isr"), "evidence": f.col("evidence"), "isr_down": down}
    known = {name: f.coalesce(value, f.array().cast(unclean.schema[name].dataType)) for name, value in lists.items()}
    return values(first.withColumns(known | {"certain": is_true(f.col("certain"))}), Unclean)


def unclean_section(facts: Facts, moments: Moments) -> Iterator[Section]:
    """Yields nothing if no election was unclean."""
    if not facts.unclean_all:
        return
    shown = len(facts.unclean)
    more = f" Shown are {shown:,} of {facts.unclean_all:,}." if shown < facts.unclean_all else ""
    yield Section(
        name="unclean",
        title="Unclean elections",
        paragraphs=("A replica became leader that was not in sync, because no replica in sync was available." + more,),
        tables=field_table(
            (
                PARTITION,
                *fields(unclean_job.COLUMNS, moments, "at", "leader"),
                ("out of sync for", lambda election: duration(election.out_ms)),
                *fields(unclean_job.COLUMNS, moments, "prev_isr"),
                (
                    "state of those",
                    lambda election: "; ".join(_down(down, moments) for down in election.isr_down) or None,
                ),
                ("requested by", lambda election: election.asked_by or "the controller, by the topic's setting"),
                ("evidence", lambda election: listed(election.evidence) + _uncertain(election)),
            ),
            facts.unclean,
        ),
    )


def _down(down: Down, moments: Moments) -> str:
    if not down.away:
        return f"{down.broker} not known to be away"
    since = f" since {moments.clock(down.down_at)}" if down.down_at is not None else " since before the logs"
    length = f" for {duration(down.down_ms)}" if down.down_ms is not None else ""
    return f"{down.broker} away{since}{length}"
