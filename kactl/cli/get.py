"""`kactl get`: what the controller knows, as lists."""

from collections.abc import Iterable, Sequence
from typing import Final

import click
import msgspec

from kactl.admin.schema import BrokerInfo, BrokerList, ControllerInfo, PartitionInfo, TopicInfo

from . import output
from .output import BAD, NONE, PLAIN, WARN, Cell
from .settings import Settings, options

LIMIT: Final = 500


@click.group()
def get() -> None:
    """Show what the controller knows."""


@get.command(short_help="List partitions and who leads them.")
@click.option("--offline", is_flag=True, help="Only those without a leader.")
@click.option("--urp", is_flag=True, help="Only under-replicated ones.")
@click.option("--under-min-isr", is_flag=True, help="Only those that reject acks=all: too few in sync, or no leader.")
@click.option("--at-min-isr", is_flag=True, help="Only those that one more failure would put under min ISR.")
@click.option("--not-preferred", is_flag=True, help="Only those not led by their preferred replica.")
@click.option("--leader", type=int, metavar="ID", help="Only those led by this broker; -1: by nobody.")
@click.option("--replica", type=int, metavar="ID", help="Only those with a replica on this broker.")
@click.option("--topic", metavar="T", help="Only of this topic; * and ? stand for any characters.")
@click.option("--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True, help="At most so many.")
@options
def partitions(
    settings: Settings,
    *,
    offline: bool,
    urp: bool,
    under_min_isr: bool,
    at_min_isr: bool,
    not_preferred: bool,
    leader: int | None,
    replica: int | None,
    topic: str | None,
    limit: int,
) -> None:
    """List partitions: who leads them, who holds them, who is in sync."""
    wanted = {
        "offline": offline or None,
        "urp": urp or None,
        "under_min_isr": under_min_isr or None,
        "at_min_isr": at_min_isr or None,
        "not_preferred": not_preferred or None,
        "leader": leader,
        "replica": replica,
        "topic": topic,
    }
    found, matched = settings.api.partitions(wanted, limit=limit)
    show_partitions(settings, found)
    if not matched:
        settings.note("No partition is like that." if any(wanted.values()) else "There are no partitions.")
    if matched > len(found):
        settings.note(f"{len(found):,} of {matched:,} are shown: narrow the choice, or raise --limit.")


@get.command(short_help="List the brokers.")
@options
def brokers(settings: Settings) -> None:
    """List the brokers: the registered ones, and the dead ones that still have replicas."""
    found = settings.api.get("/v1/brokers", BrokerList).items
    show(settings, found, _BROKER_HEADER, map(_broker_row, found))


@get.command()
@options
def topics(settings: Settings) -> None:
    """List the topics."""
    list_topics(settings)


@get.command(short_help="Show who is the controller.")
@options
def controller(settings: Settings) -> None:
    """Show who is the controller, and what the server that was asked is doing."""
    found = settings.api.get("/v1/controller", ControllerInfo)
    match settings.form():
        case "json":
            output.print_json(found)
        case "jsonl":
            output.print_jsonl([found])
        case _:
            output.print_lines(output.pairs(_controller(found)))


# -- shared with other commands ----------------------------------------------------------------------------------------


def show(
    settings: Settings, items: Sequence[msgspec.Struct], header: Sequence[str], rows: Iterable[Sequence[Cell]]
) -> None:
    """A list in the form that was asked for; JSON is what the API answered."""
    match settings.form():
        case "json":
            output.print_json(items)
        case "jsonl":
            output.print_jsonl(items)
        case _:
            output.print_lines(output.table(header, rows))


def list_topics(settings: Settings) -> None:
    """All topics, by name."""
    found = settings.api.topics()
    show(settings, found, _TOPIC_HEADER, map(_topic_row, found))


def show_partitions(settings: Settings, found: Sequence[PartitionInfo]) -> None:
    """Some partitions."""
    show(settings, found, _PARTITION_HEADER, map(_partition_row, found))


_PARTITION_HEADER: Final = ("PARTITION", "STATE", "LEADER", "EPOCH", "ISR", "REPLICAS", "MIN ISR")
_BROKER_HEADER: Final = (
    "ID",
    "ROLE",
    "STATE",
    "RACK",
    "LEADERS (SKEW)",
    "REPLICAS (SKEW)",
    "NOT IN SYNC",
    "EPOCH",
    "QUEUE",
    "LAST ERROR",
)
_TOPIC_HEADER: Final = ("TOPIC", "PARTITIONS", "REPLICATION", "OFFLINE", "URP", "ID")


def _partition_row(item: PartitionInfo) -> tuple[Cell, ...]:
    """One partition; red if nobody leads it, yellow if not all of its replicas are in sync."""
    return (
        f"{item.topic}-{item.partition}",
        (item.state, PLAIN if item.state == "online" else BAD),
        (output.broker(item.leader), BAD if item.leader < 0 else PLAIN),
        output.broker(item.leader_epoch),
        (output.numbers(item.isr), WARN if item.under_replicated else PLAIN),
        output.numbers(item.replicas),
        (
            NONE if item.min_insync_replicas is None else str(item.min_insync_replicas),
            BAD if item.under_min_isr else PLAIN,
        ),
    )


def _broker_row(item: BrokerInfo) -> tuple[Cell, ...]:
    dead = item.state == "dead"
    return (
        f"{item.id}*" if item.is_controller else str(item.id),
        "participant" if item.participant else "broker",
        ("DEAD", BAD) if dead else (item.state, PLAIN),
        item.rack or NONE,
        f"{item.leaders} ({item.leader_skew:+.1f}%)",
        f"{item.replicas} ({item.replica_skew:+.1f}%)",
        (str(item.out_of_sync), WARN if item.out_of_sync else PLAIN),
        NONE if item.epoch is None else str(item.epoch),
        _queue(item),
        (item.last_error or NONE, BAD if item.last_error else PLAIN),
    )


def _queue(item: BrokerInfo) -> Cell:
    """Requests that wait for a broker, and since when the oldest does."""
    if not item.queue_size:
        return "0"
    return f"{item.queue_size} ({output.duration(item.queue_oldest_ms)})", WARN if item.last_error else PLAIN


def _topic_row(item: TopicInfo) -> tuple[Cell, ...]:
    return (
        item.name,
        str(item.partitions),
        str(item.replication_factor),
        (str(item.offline_partitions), BAD if item.offline_partitions else PLAIN),
        (str(item.under_replicated_partitions), WARN if item.under_replicated_partitions else PLAIN),
        (item.id or NONE) + (" (being deleted)" if item.deleting else ""),
    )


def _controller(found: ControllerInfo) -> list[tuple[str, Cell]]:
    who = "this instance" if found.is_active else "another instance"
    held: Cell = ("nobody", BAD) if found.active_id is None else f"{found.active_id} ({who})"
    return [
        ("cluster", found.cluster or NONE),
        ("controller", held),
        ("epoch", str(found.epoch) if found.is_active else NONE),
        ("since", output.moment(found.since_ms)),
        ("ready", "yes" if found.ready else "no"),
        ("doing", f"{found.state} ({found.state_number})"),
        ("events waiting", str(found.queue_size)),
        ("times elected", str(found.changes)),
        ("this instance", str(found.node_id)),
        ("participants", output.numbers(found.participants)),
        ("version", found.version),
        ("as of event", str(found.as_of.seq)),
    ]
