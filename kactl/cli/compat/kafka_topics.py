"""`kactl compat topics`: replacement for kafka-topics.sh."""

from typing import Any, Final

import click
import msgspec

from kactl.admin.schema import (
    TIMEOUT_MS_MAX,
    PartitionInfo,
    TopicChange,
    TopicChanged,
    TopicCreated,
    TopicCreation,
    TopicDeleted,
    TopicDetail,
    TopicInfo,
)
from kactl.cli import output
from kactl.cli.api_client import Api, Query, quoted
from kactl.cli.common_options import own_reason
from kactl.cli.describe_lines import describe_lines, partition_line
from kactl.cli.exits import Failure

from .common import KafkaTool, api, chosen, fail, kafka_options, message_of
from .topic_options import REPORTS, action_of, assignment, check_counts, check_id, overrides

_COLLIDES: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)
_ERROR: Final = "Error while executing topic command : "
# Added to the client's timeout, so that the server's timeout for a deletion expires first.
_MARGIN_S: Final = 10.0


@click.command(cls=KafkaTool, short_help="Replacement for kafka-topics.sh.")
@kafka_options
@click.option("--list", is_flag=True, help="List all topics.")
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--delete", is_flag=True, help="Delete topics.")
@click.option("--describe", is_flag=True, help="Show topics.")
@click.option("--alter", is_flag=True, help="Add partitions.")
@click.option("--topic", metavar="T", help="The topic; a regular expression, except with --create.")
@click.option("--topic-id", metavar="ID", help="Id of the topic; with --describe.")
@click.option("--partitions", type=int, metavar="N", help="Number of partitions.")
@click.option("--replication-factor", type=int, metavar="N", help="Number of replicas per partition.")
@click.option("--replica-assignment", metavar="1:2,2:3", help="Replicas of each partition.")
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="Configuration override; with --create.")
@click.option("--delete-config", multiple=True, metavar="KEY", help="Rejected, as by Kafka's tool.")
@click.option("--under-replicated-partitions", is_flag=True, help="Only partitions with a replica out of sync.")
@click.option("--unavailable-partitions", is_flag=True, help="Only partitions without a live leader.")
@click.option("--under-min-isr-partitions", is_flag=True, help="Only partitions below min.insync.replicas.")
@click.option("--at-min-isr-partitions", is_flag=True, help="Only partitions at min.insync.replicas.")
@click.option("--topics-with-overrides", is_flag=True, help="Only topics with overrides.")
@click.option("--if-exists", is_flag=True, help="Succeed if the topic does not exist.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already.")
@click.option("--exclude-internal", is_flag=True, help="Omit internal topics.")
def topics(*, bootstrap_server: str | None, command_config: str | None, zookeeper: str | None, **given: Any) -> None:
    """Manage topics, with the options and the output of kafka-topics.sh."""
    action = action_of(given)
    server = api(bootstrap_server, zookeeper, command_config)
    try:
        {"list": _list, "create": _create, "delete": _delete, "describe": _describe, "alter": _alter}[action](
            server, given
        )
    except Failure as failure:
        fail(_ERROR + message_of(failure))


def _list(server: Api, given: dict[str, Any]) -> None:
    output.echo("\n".join(_named(server, given)))  # an empty line if there are none


def _create(server: Api, given: dict[str, Any]) -> None:
    name = given["topic"]
    request = TopicCreation(
        name=name,
        partitions=given["partitions"],
        replication_factor=given["replication_factor"],
        assignment=None if given["replica_assignment"] is None else assignment(given["replica_assignment"]),
        config=overrides(given["config"]),
    )
    if "." in name or "_" in name:
        output.echo(_COLLIDES)
    check_counts(request.partitions, request.replication_factor)
    try:
        server.post("/v1/topics", request, TopicCreated)
    except Failure as failure:
        if failure.problem is None or failure.problem.error_name != "TOPIC_ALREADY_EXISTS":
            raise
        if not given["if_not_exists"]:
            raise Failure(f"Topic '{name}' already exists.") from None
        return
    output.echo(f"Created topic {name}.")


def _delete(server: Api, given: dict[str, Any]) -> None:
    allowed_s = server.timeout_s
    server.timeout_s += _MARGIN_S
    for name in _named(server, given, must_exist=not given["if_exists"]):
        query: Query = {"timeout_ms": min(round(allowed_s * 1000), TIMEOUT_MS_MAX), "reason": own_reason()}
        if not server.delete(f"/v1/topics/{quoted(name)}", TopicDeleted, query).gone:
            raise Failure(f"deleting topic {name} has taken more than {allowed_s:g} s; it continues")


def _alter(server: Api, given: dict[str, Any]) -> None:
    counts = {topic.name: topic.partitions for topic in server.topics()}
    text = given["replica_assignment"]
    for name in _named(server, given, must_exist=not given["if_exists"]):
        # The assignment starts at partition 0; entries of existing partitions are ignored.
        new = None if text is None else assignment(text)[counts[name] :]
        request = TopicChange(partitions=given["partitions"], assignment=new)
        server.patch(f"/v1/topics/{quoted(name)}", request, TopicChanged)


def _describe(server: Api, given: dict[str, Any]) -> None:
    for known in _described_topics(server, given):
        detail = server.get(f"/v1/topics/{quoted(known.name)}", TopicDetail)
        config = detail.config or {}
        # The factor of the first partition, as in Kafka's tool; replicas that are being added do not count.
        factor = next((_replica_count(partition) for partition in detail.partitions.items), 0)
        info = msgspec.structs.replace(known, replication_factor=factor)
        if given["topics_with_overrides"]:
            if config:
                output.echo(next(describe_lines(info, config, [])))
            continue
        partitions, _ = server.partitions({"topic": info.name})
        if not any(given[report] for report in REPORTS):
            output.echo("\n".join(describe_lines(info, config, partitions)))
            continue
        min_isr = int(config.get("min.insync.replicas", "1"))
        for partition in partitions:
            if _is_reported(partition, given, min_isr):
                output.echo(partition_line(partition, deleting=info.deleting))


def _is_reported(partition: PartitionInfo, given: dict[str, Any], min_isr: int) -> bool:
    in_sync = len(partition.isr)
    return (
        (given["under_replicated_partitions"] and in_sync < _replica_count(partition))
        or (given["unavailable_partitions"] and partition.offline)
        or (given["under_min_isr_partitions"] and (in_sync < min_isr or partition.leader < 0))
        or (given["at_min_isr_partitions"] and in_sync == min_isr)
    )


def _replica_count(partition: PartitionInfo) -> int:
    """Returns the number of replicas without those that a reassignment is adding."""
    return len(partition.replicas) - len(partition.adding)


def _described_topics(server: Api, given: dict[str, Any]) -> list[TopicInfo]:
    known = {topic.name: topic for topic in server.topics()}
    if given["topic_id"] is None:
        return [known[name] for name in _named(server, given, must_exist=not given["if_exists"])]
    if given["topic"] is not None and given["if_exists"]:
        output.echo(
            "Only topic id will be used when both --topic and --topic-id are specified and topicId is not "
            "Uuid.ZERO_UUID"
        )
    check_id(given["topic_id"])
    matching = [topic for topic in known.values() if topic.id == given["topic_id"]]
    if not matching and not given["if_exists"]:
        raise Failure(f"TopicId '{given['topic_id']}' does not exist as expected")
    return matching


def _named(server: Api, given: dict[str, Any], *, must_exist: bool = False) -> list[str]:
    pattern = given["topic"]
    names = chosen([topic.name for topic in server.topics()], pattern, exclude_internal=given["exclude_internal"])
    if must_exist and pattern is not None and not names:
        raise Failure(
            f"Topic 'Optional[{pattern}]' does not exist as expected"
        )  # "Optional" is part of the message of Kafka's tool
    return names
