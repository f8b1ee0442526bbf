"""`kactl compat leader-election`: in place of kafka-leader-election.sh."""

from collections import defaultdict
from typing import Final, Literal

import click

from kactl.admin.schema import ElectionAnswer, ElectionRequest, ElectionResult, PartitionName
from kactl.cli.exits import Failure
from kactl.cli.partition_files import NamesFile, names_of, read

from .common import FAILED, KafkaUsage, Stand, api, kafka_options, problem_of

# What Kafka's tool calls the refusals that it is told.
_EXCEPTIONS: Final = {
    "PREFERRED_LEADER_NOT_AVAILABLE": "org.apache.kafka.common.errors.PreferredLeaderNotAvailableException",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": "org.apache.kafka.common.errors.EligibleLeadersNotAvailableException",
    "UNKNOWN_TOPIC_OR_PARTITION": "org.apache.kafka.common.errors.UnknownTopicOrPartitionException",
    "INVALID_TOPIC_EXCEPTION": "org.apache.kafka.common.errors.InvalidTopicException",
}


@click.command("leader-election", cls=Stand, short_help="In place of kafka-leader-election.sh.")
@kafka_options
@click.option(
    "--election-type", "kind", required=True, type=click.Choice(["preferred", "unclean"], case_sensitive=False)
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
    kind: Literal["preferred", "unclean"],
    everything: bool,
    topic: str | None,
    partition: int | None,
    file: str | None,
) -> None:
    """Take the flags of kafka-leader-election.sh and print its lines."""
    if sum((everything, topic is not None, file is not None)) != 1:
        raise KafkaUsage("One and only one is required of: topic, all-topic-partitions, path-to-json-file")
    if (topic is None) != (partition is None):
        raise KafkaUsage("Missing required option(s): topic and partition go together")
    names = None
    if file is not None:
        names = names_of(read(file, NamesFile))
    elif topic is not None and partition is not None:
        names = [PartitionName(topic=topic, partition=partition)]
    server = api(bootstrap_server, zookeeper, command_config)
    asked = ElectionRequest(type=kind, partitions=names, all=everything)
    try:
        answer = server.post("/v1/elections", asked, ElectionAnswer)
    except Failure as failure:
        raise Failure(f"Failed to elect leaders: {problem_of(failure).detail}") from None
    _print(kind, answer.results)


def _print(kind: str, results: tuple[ElectionResult, ...]) -> None:
    by_outcome = defaultdict(list)
    for result in results:
        by_outcome[result.outcome].append(result)
    if by_outcome["ok"]:
        named = ", ".join(map(_name, by_outcome["ok"]))
        click.echo(f"Successfully completed leader election ({kind.upper()}) for partitions {named}")
    if by_outcome["not_needed"]:
        named = ", ".join(map(_name, by_outcome["not_needed"]))
        click.echo(f"Valid replica already elected for partitions {named}")
    for result in by_outcome["failed"]:
        exception = _EXCEPTIONS.get(result.error_name, result.error_name)
        click.echo(
            f"Error completing leader election ({kind.upper()}) for partition: {_name(result)}: "
            f"{exception}: {result.message}"
        )
    if by_outcome["failed"]:
        click.echo(f"{len(by_outcome['failed'])} replica(s) could not be elected", err=True)
        click.get_current_context().exit(FAILED)


def _name(result: ElectionResult) -> str:
    return f"{result.topic}-{result.partition}"
