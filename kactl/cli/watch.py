"""`kactl watch`: events as they occur."""

import fnmatch
from collections.abc import Mapping
from typing import Any, Final, get_args

import click

from kactl.admin.schema import (
    AnyEvent,
    BrokerEvent,
    ControllerEvent,
    ElectionEvent,
    EventKind,
    HandlerEvent,
    PartitionEvent,
    ReplicaEvent,
    RequestEvent,
    ResetEvent,
    TopicEvent,
)

from . import output
from .common_options import Settings, with_options
from .moments import SINCE, Since
from .output import BAD, GOOD, PLAIN, WARN
from .sse import EventStream

_KINDS: Final = get_args(EventKind)
# Replicas move with their brokers and partitions, and elections summarize these: shown on request only.
_DEFAULT_KINDS: Final = tuple(kind for kind in _KINDS if kind not in ("replica", "election"))


def _kinds(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    if value is None:
        return _DEFAULT_KINDS
    kinds = tuple(kind.strip() for kind in value.split(",") if kind.strip())
    for kind in kinds:
        if kind not in _KINDS:
            raise click.BadParameter(f"{kind!r} is not one of {', '.join(_KINDS)}")
    return kinds


kinds_option: Final = click.option(
    "--types",
    "kinds",
    metavar="KIND,..",
    callback=_kinds,
    help=f"Only these kinds: {', '.join(_KINDS)}.  [all but replica and election]",
)


@click.command(short_help="Show events as they occur.")
@kinds_option
@click.option("--topic", metavar="T", help="Only events of this topic; * and ? are wildcards.")
@click.option(
    "--since", type=SINCE, metavar="SEQ|TIME|10m", help="Start after this event, or at this time; 0: at the oldest one."
)
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Exit after N events.")
@with_options(("table", "jsonl"))
def watch(
    settings: Settings,
    *,
    kinds: tuple[str, ...],
    topic: str | None,
    since: Since | None,
    limit: int | None,
) -> None:
    """Show events as they occur, until Ctrl-C.

    A broken connection is opened again, and continues after the last event read. If events are lost, a `reset` is
    shown: read the present state with `kactl get`, then continue.
    """
    form = settings.form()
    stream = EventStream(settings.api, after=None if since is None else since.after(settings.api), kinds=kinds)
    shown = 0
    settings.note("watching; stop with Ctrl-C")
    try:
        for event in stream.follow(on_break=settings.note):
            if topic is not None and not concerns(event, topic):
                continue
            if form == "jsonl":
                output.print_jsonl([event])
            else:
                output.print_lines([line(event)])
            shown += 1
            if shown == limit:
                return
    except KeyboardInterrupt:
        return


def concerns(event: AnyEvent, topic: str) -> bool:
    """Returns whether an event concerns the topic; a reset concerns all topics."""
    if isinstance(event, TopicEvent | PartitionEvent | ReplicaEvent | HandlerEvent):
        return fnmatch.fnmatchcase(event.topic, topic.replace("[", "[[]"))
    return isinstance(event, ResetEvent)


def line(event: AnyEvent) -> str:
    """Returns one event as a line of text."""
    subject, text, colour = _description(event)
    when = output.time_of_day(event.time_ms)
    return output.GAP.join((when, f"{f'#{event.seq}':<17}", f"{subject:<10}", click.style(text, **colour)))


def _description(event: AnyEvent) -> tuple[str, str, Mapping[str, Any]]:
    """Returns the subject of an event, its text and its colour."""
    match event:
        case ControllerEvent():
            cause = f": {event.cause}" if event.cause else ""
            text = f"{event.controller_id} {event.what} under epoch {event.controller_epoch}{cause}"
            return "controller", text, GOOD if event.what == "elected" else WARN
        case BrokerEvent():
            epoch = f" under epoch {event.broker_epoch}" if event.broker_epoch >= 0 else ""
            detail = f" ({event.detail})" if event.detail else ""
            return "broker", f"{event.broker} {event.what}{epoch}{detail}", BAD if "failed" in event.what else PLAIN
        case TopicEvent():
            cause = f": {event.cause}" if event.cause else ""
            return "topic", f"{event.topic} {event.what}{cause}", WARN if cause else PLAIN
        case PartitionEvent():
            return "partition", *_partition(event)
        case ReplicaEvent():
            text = f"{event.topic}-{event.partition} on {event.broker}  {event.from_state}"
            if event.refused:
                return "replica", f"{text}  refused: {event.refused}", BAD
            return "replica", f"{text} -> {event.to_state}", PLAIN
        case HandlerEvent():
            detail = f": {event.detail}" if event.detail else ""
            text = f"{event.topic}-{event.partition} on {event.broker} is {event.status.replace('_', ' ')}{detail}"
            return "handler", text, PLAIN if event.status in ("ready", "busy") else WARN
        case RequestEvent():
            detail = f" ({event.detail})" if event.detail else ""
            reason = f"  reason: {event.reason}" if event.reason else ""
            text = f"{event.action} {event.target}: {event.outcome}{detail}{reason}"
            return "request", text, PLAIN if event.outcome == "done" else WARN
        case ElectionEvent():
            return "election", election_text(event), WARN if event.failed or event.rejected else PLAIN
        case ResetEvent():
            return "reset", f"events up to {event.seq} are lost: read the present state with `kactl get`", WARN


def election_text(event: ElectionEvent) -> str:
    """Returns the course of an election in a line."""
    because = event.because
    text = f"{because.trigger} #{because.event}  {because.strategy or 'leaders lost'}: {event.moved} moved"
    if event.rejected:
        text += f", {event.rejected} rejected"
    if event.handled_us is not None:
        text += f", handled in {output.duration(event.handled_us / 1000)}"
    if not event.complete:
        return f"{text}, in progress"
    if event.last_ack_us is not None:
        text += f", acknowledged in {output.duration(event.last_ack_us / 1000)}"
    return text


def _partition(event: PartitionEvent) -> tuple[str, Mapping[str, Any]]:
    change = event.to_state if event.from_state == event.to_state else f"{event.from_state} -> {event.to_state}"
    owned = event.because is not None and event.because.strategy == "ownership"
    leads, follow, isr = "leader", "isr", event.isr
    if owned:
        leads, follow, isr = "owner", "standbys", tuple(broker for broker in isr if broker != event.leader)
    text = (
        f"{event.topic}-{event.partition}  {change}  {leads} {output.broker(event.leader)}"
        f"  epoch {output.broker(event.leader_epoch)}  {follow} {output.numbers(isr)}"
    )
    if event.recovering:
        text += "  recovering"
    if event.refused:
        return f"{text}  refused: {event.refused}", BAD
    return text, WARN if event.to_state == "offline" else PLAIN
