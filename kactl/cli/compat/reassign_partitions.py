"""`kactl compat reassign-partitions`: in place of kafka-reassign-partitions.sh."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from kactl.admin.schema import (
    BrokerList,
    PartitionInfo,
    PlanAnswer,
    PlanRequest,
    ReassignmentAnswer,
    ReassignmentList,
    ReassignmentRequest,
    ReassignmentResult,
    ReassignmentTarget,
)
from kactl.cli.client import Api
from kactl.cli.exits import Failure
from kactl.cli.partition_files import Targeted
from kactl.cli.reassigned import Standing, standings
from kactl.cli.settings import TIMEOUT_S_MAX

from .common import Stand, api, fail, kafka_options, said
from .reassign_words import action_of, check_targets, name, targets, topics_and_brokers, written

_UNKNOWN = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "


@click.command("reassign-partitions", cls=Stand, short_help="In place of kafka-reassign-partitions.sh.")
@kafka_options
@click.option("--generate", is_flag=True, help="Say where replicas should go.")
@click.option("--execute", is_flag=True, help="Begin to move replicas.")
@click.option("--verify", is_flag=True, help="Say whether they have moved.")
@click.option("--cancel", is_flag=True, help="Stop moving them.")
@click.option("--list", is_flag=True, help="List what moves.")
@click.option("--topics-to-move-json-file", metavar="FILE", help="A file of topics; to generate.")
@click.option("--broker-list", metavar="1,2,3", help="Onto these brokers; to generate.")
@click.option("--disable-rack-aware", is_flag=True, help="Passed over: no rack is lost where there is a choice.")
@click.option("--reassignment-json-file", metavar="FILE", help="What goes where.")
@click.option("--throttle", type=int, metavar="BYTES", help="Refused: kactl does not limit replication.")
@click.option("--replica-alter-log-dirs-throttle", type=int, metavar="BYTES", help="Refused.")
@click.option("--timeout", type=int, metavar="MS", help="How long an answer may take.")
@click.option("--additional", is_flag=True, help="Move these although others move already.")
@click.option("--preserve-throttles", is_flag=True, help="There are none.")
def reassign_partitions(
    *, bootstrap_server: str | None, command_config: str | None, zookeeper: str | None, **given: Any
) -> None:
    """Take the flags of kafka-reassign-partitions.sh and print its lines."""
    action = action_of(given)
    server = api(bootstrap_server, zookeeper, command_config)
    if given["timeout"] is not None and given["timeout"] > 0:
        server.timeout_s = min(given["timeout"], TIMEOUT_S_MAX * 1000) / 1000
    try:
        {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}[action](
            server, given
        )
    except Failure as failure:
        fail(f"Error: {said(failure)}")


def _generate(server: Api, given: dict[str, Any]) -> None:
    topics, asked = topics_and_brokers(given)
    found = [each for topic in sorted(topics) for each in _partitions(server, topic)]
    # Brokers that are not there are passed over.
    brokers = [broker for broker in asked if broker in _live(server)]
    for each in found:
        factor = len(each.replicas) - len(each.adding)
        if factor > len(brokers):
            raise Failure(f"Replication factor: {factor} larger than available brokers: {len(brokers)}.")
    request = PlanRequest(topics=topics, brokers=brokers, balance=True)
    plan = server.post("/v1/reassignment-plans", request, PlanAnswer).items
    planned = {(each.topic, each.partition): list(each.replicas) for each in plan}
    current = [Targeted(each.topic, each.partition, list(each.replicas)) for each in found]
    proposed = [
        Targeted(each.topic, each.partition, planned.get((each.topic, each.partition), each.replicas))
        for each in current
    ]
    click.echo(f"Current partition replica assignment\n{written(current)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{written(proposed)}")


def _execute(server: Api, given: dict[str, Any]) -> None:
    wanted = targets(given)
    check_targets(wanted)
    if not given["additional"] and server.get("/v1/reassignments", ReassignmentList).items:
        fail(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional flag can also be "
            "used to change the throttle by resubmitting the current reassignment."
        )
    if strange := sorted({broker for each in wanted for broker in each.replicas} - _live(server)):
        raise Failure(f"Unknown broker id {strange[0]}")
    click.echo(f"Current partition replica assignment\n\n{written(_current(server, wanted))}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    asked = _asked(wanted)
    answer = server.post("/v1/reassignments", ReassignmentRequest(partitions=asked), ReassignmentAnswer)
    _fail_for("Error reassigning partition(s):", answer.results)
    click.echo(f"Successfully started partition reassignment{_s(asked)} for {_names(asked)}")


def _verify(server: Api, given: dict[str, Any]) -> None:
    found = standings(server, _asked(targets(given)))
    click.echo("Status of partition reassignment:")
    for each in sorted(found, key=lambda one: (one.topic, one.partition)):
        click.echo(_status(each))
    click.echo()  # behind it stands what becomes of throttles, of which there are none


def _status(each: Standing) -> str:
    partition = f"{each.topic}-{each.partition}"
    if each.state == "complete":
        return f"Reassignment of partition {partition} is completed."
    if each.state == "moving":
        return f"Reassignment of partition {partition} is still in progress."
    return (
        f"There is no active reassignment of partition {partition}, but replica set is "
        f"{_joined(each.replicas)} rather than {_joined(each.wanted)}."
    )


def _cancel(server: Api, given: dict[str, Any]) -> None:
    wanted = {(each.topic, each.partition) for each in targets(given)}
    running = [
        ReassignmentTarget(topic=each.topic, partition=each.partition)
        for each in server.get("/v1/reassignments", ReassignmentList).items
        if (each.topic, each.partition) in wanted
    ]
    if running:
        answer = server.post("/v1/reassignments", ReassignmentRequest(partitions=running), ReassignmentAnswer)
        failed = [each for each in answer.results if each.outcome == "failed"]
        _fail_for(f"Error cancelling partition reassignment{_s(failed)} for:", failed)
        click.echo(f"Successfully cancelled partition reassignment{_s(running)} for: {_names(running)}")
    else:
        click.echo("None of the specified partition reassignments are active.")
    # No replica is moved between the directories of a broker. Kafka's tool does not end this line, either.
    click.echo("None of the specified partition moves are active.", nl=False)


def _list(server: Api, given: dict[str, Any]) -> None:
    running = server.get("/v1/reassignments", ReassignmentList).items
    if not running:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for each in running:
        line = f"{each.topic}-{each.partition}: replicas: {_joined(each.replicas)}."
        line += f" adding: {_joined(each.adding)}." if each.adding else ""
        line += f" removing: {_joined(each.removing)}." if each.removing else ""
        click.echo(line)


def _partitions(server: Api, topic: str) -> list[PartitionInfo]:
    found, _ = server.partitions({"topic": topic})
    if not found:
        raise Failure(f"{_UNKNOWN}Topic {topic} not found.")
    return found


def _current(server: Api, wanted: Sequence[Targeted]) -> list[Targeted]:
    """The replicas that partitions have now, those that are being added and removed included."""
    topics = sorted({each.topic for each in wanted})
    now = {name(_target(each)): _target(each) for topic in topics for each in _partitions(server, topic)}
    for each in wanted:
        if name(each) not in now:
            raise Failure(f"{_UNKNOWN}Unable to find partition: {name(each)}")
    return [now[name(each)] for each in wanted]


def _target(each: PartitionInfo) -> Targeted:
    return Targeted(each.topic, each.partition, list(each.replicas))


def _live(server: Api) -> set[int]:
    return {each.id for each in server.get("/v1/brokers", BrokerList).items if each.state != "dead"}


def _asked(wanted: Iterable[Targeted]) -> list[ReassignmentTarget]:
    return [ReassignmentTarget(topic=each.topic, partition=each.partition, replicas=each.replicas) for each in wanted]


def _fail_for(headline: str, results: Iterable[ReassignmentResult]) -> None:
    """End with what became of those that failed; come back if none did."""
    failed = [each for each in results if each.outcome == "failed"]
    if failed:
        lines = sorted((each.topic, each.partition, each.message) for each in failed)
        fail("\n".join([headline, *(f"{topic}-{partition}: {message}" for topic, partition, message in lines)]))


def _names(asked: Iterable[ReassignmentTarget]) -> str:
    return ",".join(f"{topic}-{partition}" for topic, partition in sorted((t.topic, t.partition) for t in asked))


def _joined(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _s(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"
