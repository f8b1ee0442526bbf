"""`kactl get`: lists of partitions, shards, brokers, topics, elections and events, and the controller."""

import collections
import datetime
from collections.abc import Iterable, Sequence
from typing import Final, get_args

import click
import msgspec

from kactl.admin.schema import (
    LIMIT_MAX,
    AnyEvent,
    BrokerInfo,
    BrokerList,
    ControllerInfo,
    DrainInfo,
    ElectionEvent,
    ElectionList,
    EventPage,
    HoldInfo,
    PartitionInfo,
    ShardStateName,
    TopicInfo,
)
from kactl.model import order_text

from . import output
from . import shards as shards_
from .common_options import Settings, options
from .moments import SINCE, Since
from .output import BAD, NONE, PLAIN, WARN, Cell
from .repeat import watchable
from .watch import concerns, kinds_option, line

LIMIT: Final = 500


def _with_offset(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Returns a time with the offset of this machine if it has none. The server checks the rest."""
    try:
        moment = None if value is None or value.isdecimal() else datetime.datetime.fromisoformat(value)
    except ValueError:
        moment = None
    return value if moment is None or moment.tzinfo is not None else moment.astimezone().isoformat()


@click.group()
def get() -> None:
    """Show partitions, shards, brokers, topics, elections, events and the controller."""


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
    "--at",
    metavar="TIME",
    callback=_with_offset,
    help="As of this time within the state-change log: 2026-11-23T14:05:00, local or with an offset, or ms since 1970.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True, help="Maximum number of partitions shown."
)
@options
@watchable
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
    at: str | None,
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
    items, matched = settings.api.partitions({**wanted, "at": at}, limit=limit)
    show_partitions(settings, items)
    if not matched:
        settings.note("No partition matches." if any(wanted.values()) else "There are no partitions.")
    if matched > len(items):
        settings.note(f"{len(items):,} of {matched:,} are shown: use a narrower filter, or raise --limit.")


@get.command(short_help="List shards with their owners.")
@click.option(
    "--state",
    "states",
    type=click.Choice(get_args(ShardStateName)),
    multiple=True,
    help="Only those in this state, such as unowned or failing; may be repeated.",
)
@click.option("--owner", type=int, metavar="ID", help="Only those of this participant; -1: without an owner.")
@click.option("--topic", metavar="T", help="Only those of this topic; * and ? are wildcards.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True, help="Maximum number of shards shown."
)
@options
@watchable
def shards(settings: Settings, *, states: tuple[str, ...], owner: int | None, topic: str | None, limit: int) -> None:
    """List the partitions of ownership topics with their owners and standbys."""
    wanted = {"kind": "ownership", "shard": ",".join(states) or None, "leader": owner, "topic": topic}
    items, matched = settings.api.partitions(wanted, limit=limit)
    show(settings, items, shards_.HEADER, map(shards_.row, items))
    if not matched:
        settings.note("No shard matches: `kactl topic list` names the topics of the kind ownership.")
    if matched > len(items):
        settings.note(f"{len(items):,} of {matched:,} are shown: use a narrower filter, or raise --limit.")


@get.command(short_help="List the brokers.")
@options
@watchable
def brokers(settings: Settings) -> None:
    """List the brokers: the registered ones, and the dead ones that still have replicas."""
    items = settings.api.get("/v1/brokers", BrokerList).items
    show(settings, items, _BROKER_HEADER, map(_broker_row, items))
    if settings.form() not in output.DATA:
        for item in items:
            if item.drain is not None:
                settings.note(f"Broker {item.id} is drained {drain_text(item.drain)}.")


@get.command()
@options
@watchable
def topics(settings: Settings) -> None:
    """List the topics."""
    list_topics(settings)


@get.command(short_help="List recent elections with their stages.")
@click.option(
    "--limit", type=click.IntRange(min=1, max=1000), default=20, show_default=True, help="Maximum number shown."
)
@options
@watchable
def elections(settings: Settings, *, limit: int) -> None:
    """List the newest events that moved leadership, newest first, with the time of each stage.

    ACKED is the time from the detection to the last acknowledgement.
    """
    items = settings.api.get("/v1/elections/recent", ElectionList, {"limit": limit}).items
    show(settings, items, _ELECTION_HEADER, map(_election_row, items))
    if not items:
        settings.note("No leadership has moved since this instance started.")


@get.command(short_help="List recent events.")
@click.option(
    "--since",
    type=SINCE,
    default="10m",
    show_default=True,
    metavar="SEQ|TIME|10m",
    help="Only events after this event, or since this time.",
)
@kinds_option
@click.option("--topic", metavar="T", help="Only events of this topic; * and ? are wildcards.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True, help="Maximum number, the newest."
)
@options
@watchable
def events(settings: Settings, *, since: Since, kinds: tuple[str, ...], topic: str | None, limit: int) -> None:
    """List recent events, oldest first. `kactl watch` shows them as they occur."""
    api = settings.api
    found: collections.deque[AnyEvent] = collections.deque(maxlen=limit)
    after, newest = since.after(api), None
    while newest is None or after < newest:
        page = api.get("/v1/events", EventPage, {"after": after, "kinds": ",".join(kinds), "limit": LIMIT_MAX})
        found.extend(event for event in page.items if topic is None or concerns(event, topic))
        newest = page.as_of.seq if newest is None else newest
        if page.next_after <= after:
            break
        after = page.next_after
    if not settings.printed(list(found), found):
        output.print_lines(line(event) for event in found)
    if not found:
        settings.note("There are no such events in this time.")


@get.command(short_help="Show the controller.")
@options
@watchable
def controller(settings: Settings) -> None:
    """Show the controller, and the state of the server that responds."""
    items = settings.api.get("/v1/controller", ControllerInfo)
    if not settings.printed(items):
        output.print_lines(output.pairs(controller_values(items)))


# -- shared with other commands ----------------------------------------------------------------------------------------


def show(
    settings: Settings, items: Sequence[msgspec.Struct], header: Sequence[str], rows: Iterable[Sequence[Cell]]
) -> None:
    """Print a list in the requested format; JSON and YAML have the items of the API's response."""
    if not settings.printed(items, items):
        output.print_lines(output.table(header, rows))


def list_topics(settings: Settings) -> None:
    """Print all topics, by name."""
    items = settings.api.topics()
    show(settings, items, _TOPIC_HEADER, map(_topic_row, items))


def show_partitions(settings: Settings, items: Sequence[PartitionInfo]) -> None:
    """Print partitions."""
    if not settings.printed(items, items):
        output.print_lines(partition_table(items))


def partition_table(items: Iterable[PartitionInfo]) -> list[str]:
    """Returns the lines of some partitions, and after them those of shards."""
    replicated: list[PartitionInfo] = []
    owned: list[PartitionInfo] = []
    for item in items:
        (replicated if item.shard is None else owned).append(item)
    lines = output.table(_PARTITION_HEADER, map(_partition_row, replicated)) if replicated or not owned else []
    gap = [""] if lines and owned else []
    return [*lines, *gap, *(output.table(shards_.HEADER, map(shards_.row, owned)) if owned else [])]


_PARTITION_HEADER: Final = ("PARTITION", "STATE", "LEADER", "EPOCH", "ISR", "REPLICAS", "MIN ISR")
_BROKER_HEADER: Final = (
    "ID",
    "ROLE",
    "STATE",
    "RACK",
    "LEADERS (SKEW)",
    "REPLICAS (SKEW)",
    "NOT IN SYNC",
    "SHARDS",
    "EPOCH",
    "QUEUE",
    "LAST ERROR",
)
_STAGES: Final = ("queue", "plan", "commit", "apply", "encode")
_ELECTION_HEADER: Final = (
    "EVENT",
    "TIME",
    "TRIGGER",
    "STRATEGY",
    "MOVED",
    "REJECTED",
    *(stage.upper() for stage in _STAGES),
    "HANDLED",
    "ACKED",
    "BROKERS",
)
_TOPIC_HEADER: Final = ("TOPIC", "PARTITIONS", "REPLICATION", "OFFLINE", "URP", "KIND", "ID")


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


def _election_row(item: ElectionEvent) -> tuple[Cell, ...]:
    spans = [getattr(item.stages, stage) for stage in _STAGES]
    acked = sum(broker.acked_us is not None for broker in item.brokers)
    return (
        str(item.because.event),
        output.time_of_day(item.detected_ms),
        item.because.trigger,
        item.because.strategy or NONE,
        str(item.moved),
        (str(item.rejected), WARN if item.rejected else PLAIN),
        *(_time(None if span is None else span[2]) for span in spans),
        _time(item.handled_us),
        _time(item.last_ack_us) if item.complete else ("waiting", WARN),
        (f"{acked}/{len(item.brokers)}", PLAIN if acked == len(item.brokers) else WARN),
    )


def _time(time_us: int | None) -> str:
    """Returns a time with two digits after the point while it is below ten milliseconds."""
    if time_us is None:
        return NONE
    return f"{time_us / 1000:.2f}ms" if time_us < 10_000 else output.duration(time_us / 1000)


def _broker_row(item: BrokerInfo) -> tuple[Cell, ...]:
    dead = item.state == "dead"
    return (
        shards_.named(item.id, item.name) + ("*" if item.is_controller else ""),
        "participant" if item.participant or item.linked is not None else "broker",
        ("DEAD", BAD) if dead else broker_state(item),
        item.rack or NONE,
        f"{item.leaders} ({item.leader_skew:+.1f}%)",
        f"{item.replicas} ({item.replica_skew:+.1f}%)",
        (str(item.out_of_sync), WARN if item.out_of_sync else PLAIN),
        str(item.shards),
        NONE if item.epoch is None else str(item.epoch),
        _queue(item),
        (item.last_error or NONE, BAD if item.last_error else PLAIN),
    )


def broker_state(item: BrokerInfo) -> Cell:
    """Returns the state of a registered broker, and whether its link is lost."""
    if item.state in ("fenced", "drained"):
        return item.state, WARN
    return (f"{item.state}, no link", WARN) if item.linked is False else (item.state, PLAIN)


def drain_text(drain: DrainInfo) -> str:
    """Returns by whom a broker is drained, since and until when, and why."""
    until = "" if drain.until_ms is None else output.moment(drain.until_ms)
    return order_text(drain.by, output.moment(drain.since_ms), until, drain.reason, until_restart=drain.until_restart)


def _held(holds: Sequence[HoldInfo] | None) -> str:
    """Returns the instances that leave the controllership to others, by whom, since and until when, and why."""
    if holds is None:
        return NONE
    return "; ".join(f"{hold.controller_id}, {hold_text(hold)}" for hold in holds) or "no"


def hold_text(hold: HoldInfo) -> str:
    """Returns by whom an instance is held, since and until when, and why."""
    until = "" if hold.until_ms is None else output.moment(hold.until_ms)
    return order_text(hold.by, output.moment(hold.since_ms), until, hold.reason)


def _queue(item: BrokerInfo) -> Cell:
    """Returns the number of queued requests, and the age of the oldest."""
    if not item.queue_size:
        return "0"
    return f"{item.queue_size} ({output.duration(item.queue_oldest_ms)})", WARN if item.last_error else PLAIN


def _topic_row(item: TopicInfo) -> tuple[Cell, ...]:
    return (
        item.name,
        str(item.partitions),
        str(item.replication_factor) if item.kind == "replicated" else NONE,
        (str(item.offline_partitions), BAD if item.offline_partitions else PLAIN),
        (str(item.under_replicated_partitions), WARN if item.under_replicated_partitions else PLAIN),
        item.kind,
        (item.id or NONE) + (" (being deleted)" if item.deleting else ""),
    )


def controller_values(items: ControllerInfo) -> list[tuple[str, Cell]]:
    """Returns the names and values of the controller."""
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
        ("held", (_held(items.holds), WARN if items.holds else PLAIN)),
        (
            "insecure",
            ("; ".join(f"{each.interface}: {each.what}" for each in items.insecure), WARN) if items.insecure else "no",
        ),
        ("as of event", str(items.as_of.seq)),
    ]
