"""`kactl explain`: why things are as they are, and what would change that."""

from typing import Final

import click

from kactl.admin.schema import CandidateInfo, PartitionExplanation, TopicExplanation
from kactl.model import TopicPartition

from . import output
from .client import quoted
from .exits import Exit, Failure
from .output import BAD, GOOD, PLAIN, WARN, Cell
from .settings import Settings, options

_HEADER: Final = ("REPLICA", "BROKER", "IN SYNC", "VERDICT")
_BROKER_COLOUR: Final = {"live": GOOD, "shutting_down": WARN, "dead": BAD}


@click.command(short_help="Say why a partition or topic is as it is.")
@click.argument("name", metavar="TOPIC[-P]")
@options
def explain(settings: Settings, *, name: str) -> None:
    """Say why a partition is led by whom it is led, or by nobody, and what would change that; `orders-0`.

    Of a topic it says how its deletion stands; `orders`.
    """
    form = settings.form()
    found = _found(settings, name)
    if form == "json":
        output.print_json(found)
    elif form == "jsonl":
        output.print_jsonl([found])
    elif isinstance(found, PartitionExplanation):
        _show_partition(found)
    else:
        _show_topic(found)


def _found(settings: Settings, name: str) -> PartitionExplanation | TopicExplanation:
    """The partition of that name, or the topic; a topic may be called like a partition."""
    try:
        parsed = TopicPartition.parse(name)
    except ValueError:
        return _topic(settings, name)
    path = f"/v1/topics/{quoted(parsed.topic)}/partitions/{parsed.partition}/explanation"
    try:
        return settings.api.get(path, PartitionExplanation)
    except Failure as no_partition:
        if not _is_not_found(no_partition):
            raise
        try:
            return _topic(settings, name)
        except Failure as no_topic:
            if not _is_not_found(no_topic):
                raise
        raise


def _topic(settings: Settings, name: str) -> TopicExplanation:
    return settings.api.get(f"/v1/topics/{quoted(name)}/explanation", TopicExplanation)


def _is_not_found(failure: Failure) -> bool:
    return failure.code is Exit.FAILED and failure.problem is not None and failure.problem.status == 404


def _show_partition(found: PartitionExplanation) -> None:
    output.print_lines([f"{found.topic}-{found.partition}: {found.verdict}."])
    output.print_lines(f"  {remedy}" for remedy in found.remedies)
    if found.reassignment is not None:
        output.print_lines([f"It is being reassigned: {found.reassignment}."])
    if found.candidates:
        output.print_lines(["", *output.table(_HEADER, [_row(each) for each in found.candidates])])


def _row(each: CandidateInfo) -> tuple[Cell, ...]:
    in_sync = ("yes", GOOD) if each.in_sync else ("no", WARN)
    broker = (each.broker_state.replace("_", " "), _BROKER_COLOUR[each.broker_state])
    return str(each.broker), broker, in_sync, (each.verdict, PLAIN if each.may_lead else WARN)


def _show_topic(found: TopicExplanation) -> None:
    said = {
        "none": "nobody has asked for its deletion",
        "halted": "its deletion is halted, and goes on by itself when this is over:",
        "running": "it is being deleted:",
    }
    output.print_lines([f"{found.topic}: {said[found.deletion]}", *(f"  {wait}" for wait in found.waits_for)])
