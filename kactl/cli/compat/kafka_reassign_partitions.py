"""`kactl compat reassign-partitions`: replacement for kafka-reassign-partitions.sh."""

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
from kactl.cli import output
from kactl.cli.api_client import Api
from kactl.cli.common_options import TIMEOUT_S_MAX
from kactl.cli.exits import Failure
from kactl.cli.partition_files import Targeted
from kactl.cli.reassignment_state import Standing, standings

from .common import KafkaTool, api, fail, kafka_options, message_of
from .reassign_options import action_of, check_targets, file_content, name, targets, topics_and_brokers

_UNKNOWN = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "


@click.command("reassign-partitions", cls=KafkaTool, short_help="Replacement for kafka-reassign-partitions.sh.")
@kafka_options
@click.option("--generate", is_flag=True, help="Plan a reassignment.")
@click.option("--execute", is_flag=True, help="Start a reassignment.")
@click.option("--verify", is_flag=True, help="Check whether a reassignment is complete.")
@click.option("--cancel", is_flag=True, help="Cancel a reassignment.")
@click.option("--list", is_flag=True, help="List reassignments in progress.")
@click.option("--topics-to-move-json-file", metavar="FILE", help="File of topics; with --generate.")
@click.option("--broker-list", metavar="1,2,3", help="Target brokers; with --generate.")
@click.option("--disable-rack-aware", is_flag=True, help="Ignored: plans are always rack-aware.")
@click.option("--reassignment-json-file", metavar="FILE", help="File of target replicas.")
@click.option("--throttle", type=int, metavar="BYTES", help="Rejected: kactl does not throttle replication.")
@click.option("--replica-alter-log-dirs-throttle", type=int, metavar="BYTES", help="Rejected.")
@click.option("--timeout", type=int, metavar="MS", help="Maximum time until a response.")
@click.option("--additional", is_flag=True, help="Start although others are in progress.")
@click.option("--preserve-throttles", is_flag=True, help="Ignored: kactl sets no throttles.")
def reassign_partitions(
    *, bootstrap_server: str | None, command_config: str | None, zookeeper: str | None, **given: Any
) -> None:
    """Move replicas, with the options and the output of kafka-reassign-partitions.sh."""
    action = action_of(given)
    server = api(bootstrap_server, zookeeper, command_config)
    if given["timeout"] is not None and given["timeout"] > 0:
        server.timeout_s = min(given["timeout"], TIMEOUT_S_MAX * 1000) / 1000
    try:
        {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}[action](
            server, given
        )
    except Failure as failure:
        fail(f"Error: {message_of(failure)}")


def _generate(server: Api, given: dict[str, Any]) -> None:
    topics, candidates = topics_and_brokers(given)
    partitions = [partition for topic in sorted(topics) for partition in _partitions(server, topic)]
    # Brokers that are not alive are ignored.
    brokers = [broker for broker in candidates if broker in _live(server)]
    for partition in partitions:
        factor = len(partition.replicas) - len(partition.adding)
        if factor > len(brokers):
            raise Failure(f"Replication factor: {factor} larger than available brokers: {len(brokers)}.")
    request = PlanRequest(topics=topics, brokers=brokers, balance=True)
    plan = server.post("/v1/reassignment-plans", request, PlanAnswer).items
    planned = {(item.topic, item.partition): list(item.replicas) for item in plan}
    current = [_target(partition) for partition in partitions]
    proposed = [
        Targeted(item.topic, item.partition, planned.get((item.topic, item.partition), item.replicas))
        for item in current
    ]
    output.echo(f"Current partition replica assignment\n{file_content(current)}\n")
    output.echo(f"Proposed partition reassignment configuration\n{file_content(proposed)}")


def _execute(server: Api, given: dict[str, Any]) -> None:
    wanted = targets(given)
    check_targets(wanted)
    if not given["additional"] and server.get("/v1/reassignments", ReassignmentList).items:
        fail(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional flag can also be "
            "used to change the throttle by resubmitting the current reassignment."
        )
    if unknown := sorted({broker for item in wanted for broker in item.replicas} - _live(server)):
        raise Failure(f"Unknown broker id {unknown[0]}")
    output.echo(f"Current partition replica assignment\n\n{file_content(_current(server, wanted))}\n")
    output.echo("Save this to use as the --reassignment-json-file option during rollback")
    request = _targets(wanted)
    answer = server.post("/v1/reassignments", ReassignmentRequest(partitions=request), ReassignmentAnswer)
    _fail_for("Error reassigning partition(s):", answer.results)
    output.echo(f"Successfully started partition reassignment{_s(request)} for {_names(request)}")


def _verify(server: Api, given: dict[str, Any]) -> None:
    progress = standings(server, _targets(targets(given)))
    output.echo("Status of partition reassignment:")
    for item in sorted(progress, key=lambda standing: (standing.topic, standing.partition)):
        output.echo(_status(item))
    click.echo()  # Kafka's tool reports throttles after this line; kactl has none


def _status(item: Standing) -> str:
    partition = f"{item.topic}-{item.partition}"
    if item.state == "complete":
        return f"Reassignment of partition {partition} is completed."
    if item.state == "moving":
        return f"Reassignment of partition {partition} is still in progress."
    return (
        f"There is no active reassignment of partition {partition}, but replica set is "
        f"{_joined(item.replicas)} rather than {_joined(item.wanted)}."
    )


def _cancel(server: Api, given: dict[str, Any]) -> None:
    wanted = {(item.topic, item.partition) for item in targets(given)}
    running = [
        ReassignmentTarget(topic=item.topic, partition=item.partition)
        for item in server.get("/v1/reassignments", ReassignmentList).items
        if (item.topic, item.partition) in wanted
    ]
    if running:
        answer = server.post("/v1/reassignments", ReassignmentRequest(partitions=running), ReassignmentAnswer)
        failed = [item for item in answer.results if item.outcome == "failed"]
        _fail_for(f"Error cancelling partition reassignment{_s(failed)} for:", failed)
        output.echo(f"Successfully cancelled partition reassignment{_s(running)} for: {_names(running)}")
    else:
        output.echo("None of the specified partition reassignments are active.")
    # kactl moves no replicas between log directories. Kafka's tool prints this line without a newline, too.
    output.echo("None of the specified partition moves are active.", nl=False)


def _list(server: Api, given: dict[str, Any]) -> None:
    running = server.get("/v1/reassignments", ReassignmentList).items
    if not running:
        output.echo("No partition reassignments found.")
        return
    output.echo("Current partition reassignments:")
    for item in running:
        line = f"{item.topic}-{item.partition}: replicas: {_joined(item.replicas)}."
        line += f" adding: {_joined(item.adding)}." if item.adding else ""
        line += f" removing: {_joined(item.removing)}." if item.removing else ""
        output.echo(line)


def _partitions(server: Api, topic: str) -> list[PartitionInfo]:
    partitions, _ = server.partitions({"topic": topic})
    if not partitions:
        raise Failure(f"{_UNKNOWN}Topic {topic} not found.")
    return partitions


def _current(server: Api, wanted: Sequence[Targeted]) -> list[Targeted]:
    """Returns the present replicas, including those that are being added or removed."""
    topics = sorted({item.topic for item in wanted})
    present = [_target(partition) for topic in topics for partition in _partitions(server, topic)]
    by_name = {name(item): item for item in present}
    for item in wanted:
        if name(item) not in by_name:
            raise Failure(f"{_UNKNOWN}Unable to find partition: {name(item)}")
    return [by_name[name(item)] for item in wanted]


def _target(partition: PartitionInfo) -> Targeted:
    return Targeted(partition.topic, partition.partition, list(partition.replicas))


def _live(server: Api) -> set[int]:
    return {broker.id for broker in server.get("/v1/brokers", BrokerList).items if broker.state != "dead"}


def _targets(wanted: Iterable[Targeted]) -> list[ReassignmentTarget]:
    return [ReassignmentTarget(topic=item.topic, partition=item.partition, replicas=item.replicas) for item in wanted]


def _fail_for(headline: str, results: Iterable[ReassignmentResult]) -> None:
    """Exit with the errors of failed partitions, if there are any."""
    failed = [item for item in results if item.outcome == "failed"]
    if failed:
        lines = sorted((item.topic, item.partition, item.message) for item in failed)
        fail("\n".join([headline, *(f"{topic}-{partition}: {message}" for topic, partition, message in lines)]))


def _names(items: Iterable[ReassignmentTarget]) -> str:
    return ",".join(f"{topic}-{number}" for topic, number in sorted((item.topic, item.partition) for item in items))


def _joined(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _s(items: Sequence[object]) -> str:
    return "" if len(items) == 1 else "s"
