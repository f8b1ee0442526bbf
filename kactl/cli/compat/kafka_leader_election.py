"""`kactl compat leader-election`: replacement for kafka-leader-election.sh."""

from collections import defaultdict
from typing import Final, Literal

import click
import msgspec

from kactl.admin.schema import ElectionAnswer, ElectionRequest, ElectionResult, PartitionName
from kactl.cli import output
from kactl.cli.common_options import own_reason
from kactl.cli.exits import Failure
from kactl.cli.partition_files import NamesFile, content_of, decoded, names_of

from .common import FAILED, KafkaTool, KafkaUsage, api, kafka_options, message_of, repeated

# Names of errors in the output of Kafka's tool.
_EXCEPTIONS: Final = {
    "PREFERRED_LEADER_NOT_AVAILABLE": "org.apache.kafka.common.errors.PreferredLeaderNotAvailableException",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": "org.apache.kafka.common.errors.EligibleLeadersNotAvailableException",
    "UNKNOWN_TOPIC_OR_PARTITION": "org.apache.kafka.common.errors.UnknownTopicOrPartitionException",
    "INVALID_TOPIC_EXCEPTION": "org.apache.kafka.common.errors.InvalidTopicException",
}


@click.command("leader-election", cls=KafkaTool, short_help="Replacement for kafka-leader-election.sh.")
@kafka_options
@click.option(
    "--election-type",
    "kind",
    type=click.Choice(["preferred", "unclean"], case_sensitive=False),
    help="Type of election.",
)
@click.option("--all-topic-partitions", "everything", is_flag=True, help="All partitions.")
@click.option("--topic", metavar="T", help="The topic; with --partition.")
@click.option("--partition", type=click.IntRange(min=0), metavar="P", help="The partition; with --topic.")
@click.option("--path-to-json-file", "file", metavar="FILE", help="A file of partitions.")
def leader_election(
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    zookeeper: str | None,
    kind: Literal["preferred", "unclean"] | None,
    everything: bool,
    topic: str | None,
    partition: int | None,
    file: str | None,
) -> None:
    """Elect leaders, with the options and the output of kafka-leader-election.sh."""
    if kind is None:
        raise KafkaUsage("Missing required option(s): election-type")
    if sum((everything, topic is not None, file is not None)) != 1:
        raise KafkaUsage(
            "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"
        )
    if topic is not None and partition is None:
        raise KafkaUsage("Missing required option(s): partition")
    if topic is None and partition is not None:
        raise KafkaUsage("Option partition is only allowed if topic is used")
    names = None
    if file is not None:
        names = _read(file)
        if not names:
            return
    elif topic is not None and partition is not None:
        names = [PartitionName(topic=topic, partition=partition)]
    server = api(bootstrap_server, zookeeper, command_config)
    request = ElectionRequest(type=kind, partitions=names, all=everything, reason=own_reason())
    try:
        answer = server.post("/v1/elections", request, ElectionAnswer)
    except Failure as failure:
        raise Failure(f"Failed to elect leaders: {message_of(failure)}") from None
    _print(kind, answer.results)


def _read(file: str) -> list[PartitionName]:
    try:
        text = content_of(file)
        content = msgspec.json.decode(text)
    except OSError:
        raise Failure(f"java.io.IOException: Unable to read file {file}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Failure("Replica election data is empty") from None
    if isinstance(content, dict) and "partitions" not in content:
        raise Failure('Replica election data is missing "partitions" field')
    names = names_of(decoded(file, text, NamesFile))
    if duplicates := repeated(f"{item.topic}-{item.partition}" for item in names):
        raise Failure(f"Replica election data contains duplicate partitions: [{', '.join(duplicates)}]")
    return names


def _print(kind: str, results: tuple[ElectionResult, ...]) -> None:
    by_outcome = defaultdict(list)
    for result in results:
        by_outcome[result.outcome].append(result)
    if by_outcome["ok"]:
        named = ", ".join(map(_name, by_outcome["ok"]))
        output.echo(f"Successfully completed leader election ({kind.upper()}) for partitions {named}")
    if by_outcome["not_needed"]:
        named = ", ".join(map(_name, by_outcome["not_needed"]))
        output.echo(f"Valid replica already elected for partitions {named}")
    for result in by_outcome["failed"]:
        exception = _EXCEPTIONS.get(result.error_name, result.error_name)
        output.echo(
            f"Error completing leader election ({kind.upper()}) for partition: {_name(result)}: "
            f"{exception}: {result.message}"
        )
    if by_outcome["failed"]:
        output.echo(f"{len(by_outcome['failed'])} replica(s) could not be elected", err=True)
        click.get_current_context().exit(FAILED)


def _name(result: ElectionResult) -> str:
    return f"{result.topic}-{result.partition}"
