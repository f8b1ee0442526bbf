"""`kactl explain`: why a partition or topic is in its state, and how to change that."""

from typing import Final

import click

from kactl.admin.schema import CandidateInfo, PartitionExplanation, TopicExplanation
from kactl.model import TopicPartition

from . import output
from .api_client import quoted
from .common_options import Settings, options
from .exits import Exit, Failure
from .output import BAD, GOOD, PLAIN, WARN, Cell
from .shards import named

_HEADER: Final = ("REPLICA", "BROKER", "IN SYNC", "VERDICT")
_SHARD_HEADER: Final = ("PARTICIPANT", "STATE", "ROLE", "VERDICT")
_BROKER_COLOUR: Final = {"live": GOOD, "fenced": WARN, "drained": WARN, "shutting_down": WARN, "dead": BAD}


@click.command(short_help="Explain the state of a partition or topic.")
@click.argument("name", metavar="TOPIC[-P]")
@options
def explain(settings: Settings, *, name: str) -> None:
    """Explain why a partition (`orders-0`) has its present leader, or none, and how to change that.

    For a shard, explain its owner. For a topic (`orders`), show the progress of its deletion.
    """
    form = settings.form()
    explanation = _found(settings, name)
    if form in output.DATA:
        output.print_data(form, explanation)
    elif isinstance(explanation, PartitionExplanation):
        output.print_lines(candidate_lines(explanation))
    else:
        _show_topic(explanation)


def _found(settings: Settings, name: str) -> PartitionExplanation | TopicExplanation:
    """Returns the explanation of the partition or topic; a topic's name may look like a partition's."""
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
    try:
        return settings.api.get(f"/v1/topics/{quoted(name)}/explanation", TopicExplanation)
    except Failure as no_topic:
        if _is_not_found(no_topic) and name.isdecimal():
            message = f"{no_topic.message}; for a broker: kactl describe broker {name}"
            raise Failure(message, no_topic.code, problem=no_topic.problem) from None
        raise


def _is_not_found(failure: Failure) -> bool:
    return failure.code is Exit.FAILED and failure.problem is not None and failure.problem.status == 404


def candidate_lines(explanation: PartitionExplanation) -> list[str]:
    """Returns the verdict on a partition, the remedies, and the verdict on each replica."""
    lines = [f"{explanation.topic}-{explanation.partition}: {explanation.verdict}."]
    lines += [f"  {remedy}" for remedy in explanation.remedies]
    if explanation.since_ms is not None:
        trigger = f", because of {explanation.trigger}" if explanation.trigger else ""
        lines.append(f"  so since {output.moment(explanation.since_ms)}{trigger}")
    if explanation.reassignment is not None:
        lines.append(f"It is being reassigned: {explanation.reassignment}.")
    if explanation.candidates:
        rows = [_row(candidate, explanation) for candidate in explanation.candidates]
        lines += ["", *output.table(_HEADER if explanation.shard is None else _SHARD_HEADER, rows)]
    return lines


def _row(candidate: CandidateInfo, explanation: PartitionExplanation) -> tuple[Cell, ...]:
    in_sync: Cell = ("yes", GOOD) if candidate.in_sync else ("no", WARN)
    if explanation.shard is not None:
        role = "owner" if candidate.broker == explanation.leader else "standby"
        in_sync = (role, GOOD) if candidate.in_sync else output.NONE
    broker = (candidate.broker_state.replace("_", " "), _BROKER_COLOUR[candidate.broker_state])
    return (
        named(candidate.broker, candidate.name),
        broker,
        in_sync,
        (candidate.verdict, PLAIN if candidate.may_lead else WARN),
    )


def _show_topic(explanation: TopicExplanation) -> None:
    headings = {
        "none": f"its deletion is not requested; `kactl explain {explanation.topic}-0` explains a partition",
        "halted": "its deletion is halted, and continues automatically after this:",
        "running": "it is being deleted:",
    }
    output.print_lines(
        [f"{explanation.topic}: {headings[explanation.deletion]}", *(f"  {wait}" for wait in explanation.waits_for)]
    )
