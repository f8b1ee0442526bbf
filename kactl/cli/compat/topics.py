"""`kactl compat topics`: in place of kafka-topics.sh."""

from typing import Any, Final

import click

from kactl.admin.schema import (
    PartitionInfo,
    TopicChange,
    TopicChanged,
    TopicCreated,
    TopicCreation,
    TopicDeleted,
    TopicDetail,
    TopicInfo,
)
from kactl.cli.client import Api, quoted
from kactl.cli.exits import Failure
from kactl.cli.kafka_text import described, partition_line

from .common import KafkaUsage, Stand, api, chosen, fail, kafka_options, problem_of

_ACTIONS: Final = ("list", "create", "delete", "describe", "alter")
_COLLIDES: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)
_ERROR: Final = "Error while executing topic command : "


@click.command(cls=Stand, short_help="In place of kafka-topics.sh.")
@kafka_options
@click.option("--list", "list_", is_flag=True, help="List all topics.")
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--delete", is_flag=True, help="Delete topics.")
@click.option("--describe", is_flag=True, help="Show topics.")
@click.option("--alter", is_flag=True, help="Add partitions.")
@click.option("--topic", metavar="T", help="The topic; a regular expression, except to create.")
@click.option("--topic-id", metavar="ID", help="The topic, by its id; for --describe.")
@click.option("--partitions", type=int, metavar="N", help="How many partitions.")
@click.option("--replication-factor", type=int, metavar="N", help="How many replicas of each partition.")
@click.option("--replica-assignment", metavar="1:2,2:3", help="Replicas of each partition.")
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="An override; for --create.")
@click.option("--delete-config", "deleted", multiple=True, metavar="KEY", help="Not taken any more by Kafka's tool.")
@click.option("--under-replicated-partitions", "under_replicated", is_flag=True, help="Show these only.")
@click.option("--unavailable-partitions", "unavailable", is_flag=True, help="Show these only.")
@click.option("--under-min-isr-partitions", "under_min_isr", is_flag=True, help="Show these only.")
@click.option("--at-min-isr-partitions", "at_min_isr", is_flag=True, help="Show these only.")
@click.option("--topics-with-overrides", "with_overrides", is_flag=True, help="Show topics that have overrides only.")
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no error.")
@click.option("--if-not-exists", is_flag=True, help="A topic that is there is no error.")
@click.option("--exclude-internal", is_flag=True, help="Without topics that brokers make for themselves.")
def topics(
    *, bootstrap_server: str | None, command_config: str | None, zookeeper: str | None, list_: bool, **given: Any
) -> None:
    """Take the flags of kafka-topics.sh and print its lines."""
    actions = [name for name in _ACTIONS if (list_ if name == "list" else given[name])]
    if len(actions) != 1:
        raise KafkaUsage("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    if given["deleted"] or (given["configs"] and not given["create"]):
        raise KafkaUsage("overrides are changed with kafka-configs, or with `kactl topic set`")
    server = api(bootstrap_server, zookeeper, command_config)
    action = {"list": _list, "create": _create, "delete": _delete, "describe": _describe, "alter": _alter}[actions[0]]
    try:
        action(server, given)
    except Failure as failure:
        fail(_ERROR + problem_of(failure).detail)


def _list(server: Api, given: dict[str, Any]) -> None:
    for name in _named(server, given):
        click.echo(name)


def _create(server: Api, given: dict[str, Any]) -> None:
    name = given["topic"]
    if name is None:
        raise KafkaUsage('Missing required argument "[topic]"')
    if "." in name or "_" in name:
        click.echo(_COLLIDES)
    assigned = given["replica_assignment"]
    if assigned is not None and (given["partitions"] is not None or given["replication_factor"] is not None):
        raise KafkaUsage(
            'Option "[replica-assignment]" can\'t be used with option "[partitions]" or "[replication-factor]"'
        )
    asked = TopicCreation(
        name=name,
        partitions=given["partitions"],
        replication_factor=given["replication_factor"],
        assignment=None if assigned is None else _assignment(assigned),
        config=dict(map(_override, given["configs"])),
    )
    try:
        server.post("/v1/topics", asked, TopicCreated)
    except Failure as failure:
        problem = problem_of(failure)
        if problem.error_name != "TOPIC_ALREADY_EXISTS":
            raise
        if not given["if_not_exists"]:
            fail(f"{_ERROR}Topic '{name}' already exists.")
        return
    click.echo(f"Created topic {name}.")


def _delete(server: Api, given: dict[str, Any]) -> None:
    if given["topic"] is None:
        raise KafkaUsage('Missing required argument "[topic]"')
    for name in _named(server, given, must_exist=not given["if_exists"]):
        server.delete(f"/v1/topics/{quoted(name)}", TopicDeleted)


def _alter(server: Api, given: dict[str, Any]) -> None:
    if given["topic"] is None or given["partitions"] is None:
        raise KafkaUsage('Missing required argument "[topic]" or "[partitions]"')
    counts = {each.name: each.partitions for each in server.topics()}
    for name in _named(server, given, must_exist=not given["if_exists"]):
        assigned = given["replica_assignment"]
        # The assignment is given from partition 0 on, and that of the partitions that are there is passed over.
        new = None if assigned is None else _assignment(assigned)[counts[name] :]
        asked = TopicChange(partitions=given["partitions"], assignment=new)
        server.patch(f"/v1/topics/{quoted(name)}", asked, TopicChanged)


def _describe(server: Api, given: dict[str, Any]) -> None:
    shown = _described_topics(server, given)
    filters = [given[name] for name in ("under_replicated", "unavailable", "under_min_isr", "at_min_isr")]
    for info in shown:
        detail = server.get(f"/v1/topics/{quoted(info.name)}", TopicDetail)
        config = detail.config or {}
        if given["with_overrides"]:
            if config:
                click.echo(next(described(info, config, [])))
            continue
        partitions, _ = server.partitions({"topic": info.name})
        if not any(filters):
            for line in described(info, config, partitions):
                click.echo(line)
            continue
        min_isr = int(config.get("min.insync.replicas", "1"))
        for partition in partitions:
            if _is_wanted(partition, given, min_isr):
                click.echo(partition_line(partition, deleting=info.deleting))


def _is_wanted(partition: PartitionInfo, given: dict[str, Any], min_isr: int) -> bool:
    return (
        (given["under_replicated"] and partition.under_replicated)
        or (given["unavailable"] and partition.offline)
        or (given["under_min_isr"] and (len(partition.isr) < min_isr or partition.leader < 0))
        or (given["at_min_isr"] and len(partition.isr) == min_isr)
    )


def _described_topics(server: Api, given: dict[str, Any]) -> list[TopicInfo]:
    known = {each.name: each for each in server.topics()}
    if given["topic_id"] is not None and given["topic"] is None:
        found = [each for each in known.values() if each.id == given["topic_id"]]
        if not found and not given["if_exists"]:
            fail(f"{_ERROR}TopicId '{given['topic_id']}' does not exist as expected")
        return found
    return [known[name] for name in _named(server, given, must_exist=not given["if_exists"])]


def _named(server: Api, given: dict[str, Any], *, must_exist: bool = False) -> list[str]:
    names = chosen([each.name for each in server.topics()], given["topic"], exclude_internal=given["exclude_internal"])
    if must_exist and given["topic"] is not None and not names:
        fail(f"{_ERROR}Topic '{given['topic']}' does not exist as expected")
    return names


def _assignment(text: str) -> list[list[int]]:
    """`1:2,2:3`: replicas parted by colons, partitions by commas."""
    try:
        return [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise KafkaUsage(f"{text!r} is no assignment: write 1:2,2:3") from None


def _override(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise KafkaUsage(f"{text!r} is no override: write key=value")
    return key.strip(), value.strip()
