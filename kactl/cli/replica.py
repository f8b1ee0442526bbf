"""`kactl replica`: reset the handlers of replicas on participants."""

import click

from kactl.admin.schema import ReplicaResetInfo, ReplicaResetting
from kactl.model import TopicPartition

from .api_client import quoted
from .common_options import Settings, dry_run_option, never_asks, options, reason_option


@click.group()
def replica() -> None:
    """Reset the handlers of replicas on participants."""


@replica.command(short_help="Call a handler again now that has failed.")
@click.argument("name", metavar="TOPIC-P")
@click.option("--broker", "broker_id", type=int, required=True, metavar="ID", help="The participant of the replica.")
@dry_run_option
@never_asks
@reason_option
@options
def reset(settings: Settings, *, name: str, broker_id: int, dry_run: bool, reason: str) -> None:
    """Call a handler again now that has failed.

    It is called again by itself after 1 s to 60 s, which `kactl explain TOPIC-P` shows with the cause. A handler with a
    call that does not end cannot be reset; it is called again when that has ended, or restart its process.
    """
    try:
        partition = TopicPartition.parse(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="TOPIC-P") from None
    path = f"/v1/topics/{quoted(partition.topic)}/partitions/{partition.partition}/replicas/{quoted(broker_id)}/reset"
    answer = settings.api.post(path, ReplicaResetting(dry_run=dry_run, reason=reason), ReplicaResetInfo)
    if not settings.printed(answer):
        failure = answer.failure
        detail = f" ({failure.detail})" if failure.detail else ""
        was = f"{partition} on broker {broker_id}, which {{}} {failure.status.replace('_', ' ')}{detail}."
        settings.note(
            f"Would reset {was.format('is')} Nothing was changed." if dry_run else f"Reset {was.format('was')}"
        )
