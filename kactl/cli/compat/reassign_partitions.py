"""`kactl compat reassign-partitions`: in place of kafka-reassign-partitions.sh."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
import msgspec

from kactl.admin.schema import (
    PlanAnswer,
    PlanRequest,
    ReassignmentAnswer,
    ReassignmentList,
    ReassignmentRequest,
    ReassignmentTarget,
)
from kactl.cli.client import Api
from kactl.cli.exits import Failure
from kactl.cli.partition_files import Targeted, Targets, TopicsFile, ids, read, targets_of
from kactl.cli.reassigned import Standing, standings

from .common import FAILED, KafkaUsage, Stand, api, kafka_options, problem_of

_ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list_")


@click.command("reassign-partitions", cls=Stand, short_help="In place of kafka-reassign-partitions.sh.")
@kafka_options
@click.option("--generate", is_flag=True, help="Say where replicas should go.")
@click.option("--execute", is_flag=True, help="Begin to move replicas.")
@click.option("--verify", is_flag=True, help="Say whether they have moved.")
@click.option("--cancel", is_flag=True, help="Stop moving them.")
@click.option("--list", "list_", is_flag=True, help="List what moves.")
@click.option("--topics-to-move-json-file", "topics_file", metavar="FILE", help="A file of topics; to generate.")
@click.option("--broker-list", metavar="1,2,3", help="Onto these brokers; to generate.")
@click.option("--disable-rack-aware", is_flag=True, help="Passed over: no rack is lost where there is a choice.")
@click.option("--reassignment-json-file", "file", metavar="FILE", help="What goes where.")
@click.option("--throttle", type=int, metavar="BYTES", help="Refused: kactl does not limit replication.")
@click.option("--replica-alter-log-dirs-throttle", "dirs_throttle", type=int, metavar="BYTES", help="Refused.")
@click.option("--timeout", type=int, metavar="MS", help="How long an answer may take.")
@click.option("--additional", is_flag=True, help="Move these although others move already.")
@click.option("--preserve-throttles", is_flag=True, help="There are none.")
def reassign_partitions(
    *, bootstrap_server: str | None, command_config: str | None, zookeeper: str | None, **given: Any
) -> None:
    """Take the flags of kafka-reassign-partitions.sh and print its lines."""
    actions = [name for name in _ACTIONS if given[name]]
    if len(actions) != 1:
        raise KafkaUsage("Command must include exactly one action: --generate, --execute, --verify, --cancel, --list")
    if given["throttle"] is not None or given["dirs_throttle"] is not None:
        raise KafkaUsage("kactl does not limit replication: leave the throttle out, or set it with kafka-configs")
    server = api(bootstrap_server, zookeeper, command_config)
    if given["timeout"] is not None and given["timeout"] > 0:
        server.timeout_s = given["timeout"] / 1000
    try:
        {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list_": _list}[actions[0]](
            server, given
        )
    except Failure as failure:
        raise Failure(f"Error: {problem_of(failure).detail}") from None


def _generate(server: Api, given: dict[str, Any]) -> None:
    if given["topics_file"] is None or given["broker_list"] is None:
        raise KafkaUsage('Missing required argument "[topics-to-move-json-file]" or "[broker-list]"')
    names = [each.topic for each in read(given["topics_file"], TopicsFile).topics]
    asked = PlanRequest(topics=names, brokers=ids(given["broker_list"], "--broker-list"), balance=True)
    planned = {
        (each.topic, each.partition): each for each in server.post("/v1/reassignment-plans", asked, PlanAnswer).items
    }
    now = [each for name in sorted(set(names)) for each in server.partitions({"topic": name})[0]]
    current = [Targeted(each.topic, each.partition, _going(each.replicas, each.removing)) for each in now]
    proposed = [
        Targeted(each.topic, each.partition, list(planned[each.topic, each.partition].replicas))
        if (each.topic, each.partition) in planned
        else each
        for each in current
    ]
    click.echo(f"Current partition replica assignment\n{_json(current)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{_json(proposed)}")


def _execute(server: Api, given: dict[str, Any]) -> None:
    targets = _targets(given)
    running = server.get("/v1/reassignments", ReassignmentList).items
    if running and not given["additional"]:
        raise KafkaUsage(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional option can also be "
            "used to change the throttle by resubmitting the current reassignment."
        )
    now = {(each.topic, each.partition): each for each in standings(server, targets)}
    current = [Targeted(each.topic, each.partition, list(now[each.topic, each.partition].replicas)) for each in targets]
    click.echo(f"Current partition replica assignment\n\n{_json(current)}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    answer = server.post("/v1/reassignments", ReassignmentRequest(partitions=targets), ReassignmentAnswer)
    failed = [each for each in answer.results if each.outcome == "failed"]
    if failed:
        click.echo("Error reassigning partition(s):")
        for each in sorted(failed, key=lambda one: (one.topic, one.partition)):
            click.echo(f"{each.topic}-{each.partition}: {each.message}")
        click.get_current_context().exit(FAILED)
    click.echo(f"Successfully started partition reassignment{_s(targets)} for {_names(targets)}")


def _verify(server: Api, given: dict[str, Any]) -> None:
    click.echo("Status of partition reassignment:")
    for each in sorted(standings(server, _targets(given)), key=lambda one: (one.topic, one.partition)):
        click.echo(_status(each))


def _status(each: Standing) -> str:
    name = f"{each.topic}-{each.partition}"
    if each.state == "complete":
        return f"Reassignment of partition {name} is completed."
    if each.state == "moving":
        return f"Reassignment of partition {name} is still in progress."
    return (
        f"There is no active reassignment of partition {name}, but replica set is "
        f"{_joined(each.replicas)} rather than {_joined(each.wanted)}."
    )


def _cancel(server: Api, given: dict[str, Any]) -> None:
    wanted = {(each.topic, each.partition) for each in _targets(given)}
    running = [
        ReassignmentTarget(topic=each.topic, partition=each.partition)
        for each in server.get("/v1/reassignments", ReassignmentList).items
        if (each.topic, each.partition) in wanted
    ]
    if not running:
        click.echo("None of the specified partition reassignments are active.")
        return
    answer = server.post("/v1/reassignments", ReassignmentRequest(partitions=running), ReassignmentAnswer)
    failed = [each for each in answer.results if each.outcome == "failed"]
    if failed:
        click.echo(f"Error cancelling partition reassignment{_s(failed)} for:")
        for each in sorted(failed, key=lambda one: (one.topic, one.partition)):
            click.echo(f"{each.topic}-{each.partition}: {each.message}")
        click.get_current_context().exit(FAILED)
    click.echo(f"Successfully cancelled partition reassignment{_s(running)} for: {_names(running)}")


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


def _targets(given: dict[str, Any]) -> list[ReassignmentTarget]:
    if given["file"] is None:
        raise KafkaUsage('Missing required argument "[reassignment-json-file]"')
    return targets_of(read(given["file"], Targets))


def _going(replicas: Iterable[int], removing: Iterable[int]) -> list[int]:
    gone = set(removing)
    return [broker for broker in replicas if broker not in gone]


def _json(partitions: Iterable[Targeted]) -> str:
    """As Kafka's tool writes it."""
    written = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "replicas": each.replicas,
            "log_dirs": ["any"] * len(each.replicas),
        }
        for each in sorted(partitions, key=lambda one: (one.topic, one.partition))
    ]
    return msgspec.json.encode({"version": 1, "partitions": written}).decode()


def _names(targets: Iterable[ReassignmentTarget]) -> str:
    return ",".join(f"{topic}-{partition}" for topic, partition in sorted((t.topic, t.partition) for t in targets))


def _joined(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _s(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"
