"""`kactl get`: lists of partitions, brokers and topics, and the controller."""

from collections.abc import Iterable, Sequence
from typing import Final

import click
import msgspec

from kactl.admin.schema import BrokerInfo, BrokerList, ControllerInfo, PartitionInfo, TopicInfo

from . import output
from .common_options import Settings, options
from .output import BAD, NONE, PLAIN, WARN, Cell

LIMIT: Final = 500


@click.group()
def get() -> None:
    """Show partitions, brokers, topics and the controller."""


@get.command(short_help="List partitions with their leaders.")
@click.option("--offline", is_flag=True, help="Only those without a leader.")
@click.option("--urp", is_flag=True, help="Only under-replicated ones.")
@click.option(
    "--under-min-isr", is_flag=True, help="Only those that reject acks=all: too few in-sync replicas, or no leader."
)
@click.option("--at-min-isr", is_flag=True, help="Only those that one more failure puts below min ISR.")
@click.option("--not-preferred", is_flag=True, help="Only those not led by their preferred replica.")
@click.option("--leader", type=int, metavar="ID", help="Only those led by this broker; -1: without a leader.")
@click.option("--replica", type=int, metavar="ID", help="Only those with a replica on this broker.")
@click.option("--topic", metavar="T", help="Only those of this topic; * and ? are wildcards.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True, help="Maximum number of partitions shown."
)
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
    """List partitions with their leaders, replicas and ISRs."""
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
    items, matched = settings.api.partitions(wanted, limit=limit)
    show_partitions(settings, items)
    if not matched:
        settings.note("No partition matches." if any(wanted.values()) else "There are no partitions.")
    if matched > len(items):
        settings.note(f"{len(items):,} of {matched:,} are shown: use a narrower filter, or raise --limit.")


@get.command(short_help="List the brokers.")
@options
def brokers(settings: Settings) -> None:
    """List the brokers: the registered ones, and the dead ones that still have replicas."""
    items = settings.api.get("/v1/brokers", BrokerList).items
    show(settings, items, _BROKER_HEADER, map(_broker_row, items))


@get.command()
@options
def topics(settings: Settings) -> None:
    """List the topics."""
    list_topics(settings)


@get.command(short_help="Show the controller.")
@options
def controller(settings: Settings) -> None:
    """Show the controller, and the state of the server that responds."""
    items = settings.api.get("/v1/controller", ControllerInfo)
    match settings.form():
        case "json":
            output.print_json(items)
        case "jsonl":
            output.print_jsonl([items])
        case _:
            output.print_lines(output.pairs(_controller(items)))


# -- shared with other commands ----------------------------------------------------------------------------------------


def show(
    settings: Settings, items: Sequence[msgspec.Struct], header: Sequence[str], rows: Iterable[Sequence[Cell]]
) -> None:
    """Print a list in the requested format; JSON has the items of the API's response."""
    match settings.form():
        case "json":
            output.print_json(items)
        case "jsonl":
            output.print_jsonl(items)
        case _:
            output.print_lines(output.table(header, rows))


def list_topics(settings: Settings) -> None:
    """Print all topics, by name."""
    items = settings.api.topics()
    show(settings, items, _TOPIC_HEADER, map(_topic_row, items))


def show_partitions(settings: Settings, items: Sequence[PartitionInfo]) -> None:
    """Print partitions."""
    show(settings, items, _PARTITION_HEADER, map(_partition_row, items))


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
    """Returns one row; red without a leader, yellow if a replica is not in sync."""
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
    """Returns the number of queued requests, and the age of the oldest."""
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


def _controller(items: ControllerInfo) -> list[tuple[str, Cell]]:
    role = "this instance" if items.is_active else "another instance"
    active: Cell = ("none", BAD) if items.active_id is None else f"{items.active_id} ({role})"
    return [
        ("cluster", items.cluster or NONE),
        ("controller", active),
        ("epoch", str(items.epoch) if items.is_active else NONE),
        ("since", output.moment(items.since_ms)),
        ("ready", "yes" if items.ready else "no"),
        ("doing", f"{items.state} ({items.state_number})"),
        ("events waiting", str(items.queue_size)),
        ("times elected", str(items.changes)),
        ("this instance", str(items.node_id)),
        ("participants", output.numbers(items.participants)),
        ("version", items.version),
        ("as of event", str(items.as_of.seq)),
    ]
