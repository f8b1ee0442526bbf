"""`kactl describe`: everything that is known about one thing, with causes."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from kactl.admin.schema import (
    AnyEvent,
    BrokerEvent,
    BrokerInfo,
    ClusterInfo,
    CompletedReassignment,
    ControllerInfo,
    EventPage,
    PartitionExplanation,
    PartitionHistory,
    PartitionInfo,
    PartitionPage,
    QueueInfo,
    ReassignmentInfo,
    ReassignmentList,
    Stoppable,
    TermList,
    TopicDetail,
    TopicExplanation,
)
from kactl.model import TopicPartition

from . import output
from .api_client import Api, quoted
from .common_options import Settings, options
from .describe_text import (
    broker_lines,
    controller_lines,
    partition_lines,
    reassignment_lines,
    topic_lines,
)
from .exits import Exit, Failure
from .repeat import watchable

# Events shown of one partition or broker, and partitions shown of one topic or broker.
EVENTS_MAX: Final = 10
PARTITIONS_MAX: Final = 20
TERMS_MAX: Final = 5
# Broker events are few; more of them are not looked through.
_BROKER_EVENTS_MAX: Final = 10_000
_Answer = TypeVar("_Answer")


@click.group()
def describe() -> None:
    """Describe one object in detail, with causes."""


@describe.command(short_help="Describe the controller.")
@options
@watchable
def controller(settings: Settings) -> None:
    """Describe the controller: its checks that do not pass, its queue, and earlier controllers."""
    api = settings.api
    terms = api.get("/v1/controller/history", TermList)
    document: dict[str, Any] = {
        "controller": api.get("/v1/controller", ControllerInfo),
        "cluster": api.get("/v1/cluster", ClusterInfo),
        "queue": api.get("/v1/controller/queue", QueueInfo, {"limit": EVENTS_MAX}),
        "terms": terms.items[-TERMS_MAX:],
    }
    _show(settings, document, lambda: controller_lines(**document))


@describe.command(short_help="Describe a broker.")
@click.argument("broker_id", type=int, metavar="ID")
@options
@watchable
def broker(settings: Settings, *, broker_id: int) -> None:
    """Describe a broker: its state, whether it can stop, its partitions that are not in sync, its recent events."""
    api = settings.api
    info = api.get(f"/v1/brokers/{quoted(broker_id)}", BrokerInfo)
    lagging = api.get("/v1/partitions", PartitionPage, {"replica": broker_id, "urp": True, "limit": _BROKER_EVENTS_MAX})
    document: dict[str, Any] = {
        "broker": info,
        "stoppable": _of_controller(lambda: api.get(f"/v1/brokers/{quoted(broker_id)}/stoppable", Stoppable)),
        "out_of_sync": [item for item in lagging.items if broker_id not in item.isr][:PARTITIONS_MAX],
        "events": _broker_events(api, broker_id),
    }
    _show(settings, document, lambda: broker_lines(**document))


@describe.command(short_help="Describe a topic.")
@click.argument("name", metavar="T")
@options
@watchable
def topic(settings: Settings, *, name: str) -> None:
    """Describe a topic: its overrides, its deletion, and its partitions, first those that need attention."""
    api = settings.api
    detail = api.get(f"/v1/topics/{quoted(name)}", TopicDetail)
    members, matched = api.partitions({"topic": name}, limit=_BROKER_EVENTS_MAX)
    members.sort(key=lambda item: (not item.offline, not item.under_min_isr, not item.under_replicated))
    document: dict[str, Any] = {
        "topic": detail.topic,
        "config": detail.config,
        "explanation": _of_controller(lambda: api.get(f"/v1/topics/{quoted(name)}/explanation", TopicExplanation)),
        "partitions": members[:PARTITIONS_MAX],
    }
    _show(settings, document, lambda: topic_lines(**document))
    if matched > PARTITIONS_MAX:
        settings.note(f"{PARTITIONS_MAX} of {matched:,} partitions are shown: kactl get partitions --topic {name}")


@describe.command(short_help="Describe a partition.")
@click.argument("name", metavar="T-P")
@options
@watchable
def partition(settings: Settings, *, name: str) -> None:
    """Describe a partition: its state, why it has this leader or none, and its recent events with their causes."""
    document = _partition(settings.api, _parsed(name))
    history = settings.api.get(f"{_path(_parsed(name))}/history", PartitionHistory, {"limit": EVENTS_MAX})
    document["events"] = history.items
    _show(settings, document, lambda: partition_lines(**document))


@describe.command(short_help="Describe a reassignment in progress.")
@click.argument("name", metavar="T-P")
@options
@watchable
def reassignment(settings: Settings, *, name: str) -> None:
    """Describe a reassignment in progress: its replicas, and what it waits for."""
    wanted = _parsed(name)
    running = settings.api.get("/v1/reassignments", ReassignmentList)
    found = next((item for item in running.items if _is(item, wanted)), None)
    if found is None:
        completed = next((item for item in running.last_completed if _is(item, wanted)), None)
        last = f"; the last one was completed at {output.moment(completed.completed_ms)}" if completed else ""
        raise Failure(f"{name}: no reassignment of it is in progress{last}: see `kactl reassign list`")
    document: dict[str, Any] = {"reassignment": found, **_partition(settings.api, wanted)}
    _show(settings, document, lambda: reassignment_lines(**document))


def _partition(api: Api, name: TopicPartition) -> dict[str, Any]:
    return {
        "partition": api.get(_path(name), PartitionInfo),
        "explanation": _of_controller(lambda: api.get(f"{_path(name)}/explanation", PartitionExplanation)),
    }


def _broker_events(api: Api, broker_id: int) -> list[AnyEvent]:
    """Returns the newest events of a broker, oldest first."""
    page = api.get("/v1/events", EventPage, {"kinds": "broker", "limit": _BROKER_EVENTS_MAX})
    found = [event for event in page.items if isinstance(event, BrokerEvent) and event.broker == broker_id]
    return [*found[-EVENTS_MAX:]]


def _show(settings: Settings, document: Mapping[str, Any], lines: Callable[[], list[str]]) -> None:
    if not settings.printed(document):
        output.print_lines(lines())


def _of_controller(ask: Callable[[], _Answer]) -> _Answer | None:
    """Returns a part that only the controller has; None from a standby, whose copy has the other parts."""
    try:
        return ask()
    except Failure as failure:
        if failure.code is Exit.PRECONDITION:
            return None
        raise


def _is(item: ReassignmentInfo | CompletedReassignment, name: TopicPartition) -> bool:
    return (item.topic, item.partition) == (name.topic, name.partition)


def _parsed(name: str) -> TopicPartition:
    try:
        return TopicPartition.parse(name)
    except ValueError:
        raise Failure(f"{name!r} is not the name of a partition: write it as orders-0", Exit.USAGE) from None


def _path(name: TopicPartition) -> str:
    return f"/v1/topics/{quoted(name.topic)}/partitions/{name.partition}"
