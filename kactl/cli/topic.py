"""`kactl topic`: create, change, delete, list and describe topics."""

import copy
import re
from typing import get_args

import click

from kactl.admin.schema import (
    TIMEOUT_MS_MAX,
    TopicChange,
    TopicChanged,
    TopicCreated,
    TopicCreation,
    TopicDeleted,
    TopicDetail,
)
from kactl.decide.messages.topic_requests import WaitFor
from kactl.model import TopicKind

from . import output, shards
from .api_client import confirm, quoted
from .common_options import (
    FORMS,
    Settings,
    dry_run_option,
    never_asks,
    options,
    own_reason_option,
    reason_option,
    with_options,
    yes_option,
)
from .describe_lines import describe_lines
from .describe_text import topic_sizes
from .exits import Exit, Failure
from .get import list_topics, show_partitions
from .output import NONE
from .partition_files import ids

wait_option = click.option(
    "--wait",
    type=click.Choice(["stored", "led", "ready", "acknowledged"]),
    help="Wait until the controller knows the topic, for leaders that have acknowledged their orders and for brokers "
    "that know them (the earlier name is acknowledged), or for leaders whose handlers lead.  [led; of ownership topics "
    "stored]",
)


def _complete_override(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Returns the names of settings, and once a name is written, its values."""
    from kactl.config.topic import SETTINGS

    key, equals, _ = incomplete.partition("=")
    if not equals:
        return [name for name in SETTINGS if name.startswith(incomplete)]
    setting = SETTINGS.get(key)
    overrides = () if setting is None else (f"{key}={value}" for value in setting.examples)
    return [override for override in overrides if override.startswith(incomplete)]


@click.group()
def topic() -> None:
    """Create, change, delete, list and describe topics."""


@topic.command(short_help="Create a topic.")
@click.argument("name")
@click.option("--partitions", type=int, metavar="N", help="Number of partitions.  [num-partitions of the server, 1]")
@click.option(
    "--replication-factor", type=int, metavar="N", help="Replicas per partition.  [default-replication-factor, 1]"
)
@click.option(
    "--kind",
    type=click.Choice(get_args(TopicKind)),
    default="replicated",
    show_default=True,
    help="ownership: for programs that keep no records in kactl. Any participant may own any partition.",
)
@click.option(
    "--standby",
    type=click.IntRange(min=0),
    metavar="N",
    help="Of an ownership topic: participants that follow each partition.",
)
@click.option(
    "--assignment",
    "assigned",
    multiple=True,
    metavar="P:ID,ID",
    help="Alternative: replicas of one partition, preferred leader first; repeat for each partition.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=_complete_override,
    help="Configuration override; may be repeated.",
)
@dry_run_option
@never_asks
@wait_option
@reason_option
@options
def create(
    settings: Settings,
    *,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    kind: TopicKind,
    standby: int | None,
    assigned: tuple[str, ...],
    configs: tuple[str, ...],
    dry_run: bool,
    wait: WaitFor | None,
    reason: str,
) -> None:
    """Create a topic, and wait until its leaders and all brokers know it; an ownership topic until it is stored.

    The partitions of an ownership topic (shards) are owned by the participants that run, now and later.
    """
    form = settings.form()
    if assigned and (partitions is not None or replication_factor is not None):
        raise click.UsageError("specify either --assignment, or --partitions and --replication-factor, not both")
    if kind == "ownership" and (assigned or replication_factor is not None):
        option = "--assignment" if assigned else "--replication-factor"
        raise click.UsageError(
            f"{option} does not apply to --kind ownership, whose owners the controller chooses among all participants: "
            "leave it out, and give --standby for participants that are ready to take over"
        )
    if kind != "ownership" and standby is not None:
        raise click.UsageError(
            "--standby applies to --kind ownership: give that as well, or --replication-factor for a replicated topic"
        )
    request = TopicCreation(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        assignment=_assignment(assigned),
        config=dict(map(_override, configs)),
        kind=kind,
        standby=standby,
        dry_run=dry_run,
        wait=wait,
        timeout_ms=_wait_ms(settings.timeout_s),
        reason=reason,
    )
    created = settings.api.post("/v1/topics", request, TopicCreated)
    if form in output.DATA:
        output.print_data(form, created)
    elif dry_run:
        settings.note(f"Topic {created.name} could be created. Nothing was changed.")
    else:
        settings.note(f"Created topic {created.name}.")


@topic.command(short_help="Delete a topic and all its records.")
@click.argument("name")
@dry_run_option
@yes_option
@own_reason_option
@options
def delete(settings: Settings, *, name: str, dry_run: bool, yes: bool, reason: str) -> None:
    """Delete a topic and all its records, and wait until every broker has deleted its replicas."""
    form = settings.form()
    if not (dry_run or yes):
        confirm(f"Delete topic {name} and all records in it?")
    query: dict[str, str | int | bool | None] = {
        "dry_run": dry_run,
        "reason": reason,
        "timeout_ms": _wait_ms(settings.timeout_s),
    }
    answer = settings.api.delete(f"/v1/topics/{quoted(name)}", TopicDeleted, query)
    if form in output.DATA:
        output.print_data(form, answer)
    elif dry_run:
        settings.note(f"Topic {name} could be deleted. Nothing was changed.")
    elif answer.gone:
        settings.note(f"Deleted topic {name}.")
    else:
        settings.note(f"Topic {name} is marked for deletion; `kactl explain {name}` shows what it waits for.")


@topic.command("add-partitions", short_help="Add partitions to a topic.")
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), required=True, metavar="N", help="New number of partitions.")
@click.option(
    "--replicas",
    "assigned",
    multiple=True,
    metavar="ID,ID",
    help="Replicas of a new partition; repeat for each new partition, in order.",
)
@dry_run_option
@never_asks
@wait_option
@reason_option
@options
def add_partitions(
    settings: Settings,
    *,
    name: str,
    partitions: int,
    assigned: tuple[str, ...],
    dry_run: bool,
    wait: WaitFor | None,
    reason: str,
) -> None:
    """Add partitions to a topic, and wait until their leaders and all brokers know them.

    This changes the partition of new records with keys: producers derive it from the number of partitions.
    """
    assignment = [ids(text, "--replicas") for text in assigned] or None
    request = TopicChange(
        partitions=partitions,
        assignment=assignment,
        dry_run=dry_run,
        wait=wait,
        timeout_ms=_wait_ms(settings.timeout_s),
        reason=reason,
    )
    _change(settings, name, request, f"Topic {name} now has {output.count(partitions, 'partition')}.")


# The name in earlier versions still works, but is not listed.
_grow = copy.copy(add_partitions)
_grow.hidden = True
topic.add_command(_grow, "grow")


@topic.command("set", short_help="Change overrides of a topic.")
@click.argument("name")
@click.argument("overrides", nargs=-1, required=True, metavar="KEY=VALUE|KEY-...", shell_complete=_complete_override)
@dry_run_option
@never_asks
@reason_option
@options
def set_(settings: Settings, *, name: str, overrides: tuple[str, ...], dry_run: bool, reason: str) -> None:
    """Set configuration overrides of a topic (`retention.ms=60000`), or remove them (`retention.ms-`)."""
    changes: dict[str, str | None] = {}
    for text in overrides:
        removed = text.endswith("-") and "=" not in text
        key, value = (text[:-1], None) if removed else _override(text, "KEY=VALUE")
        changes[key] = value
    _change(settings, name, TopicChange(config=changes, dry_run=dry_run, reason=reason), f"Changed topic {name}.")


def _change(settings: Settings, name: str, request: TopicChange, done: str) -> None:
    answer = settings.api.patch(f"/v1/topics/{quoted(name)}", request, TopicChanged)
    if not settings.printed(answer):
        settings.note(f"Topic {name} could be changed. Nothing was changed." if request.dry_run else done)


@topic.command("list")
@options
def list_(settings: Settings) -> None:
    """List the topics."""
    list_topics(settings)


@topic.command(short_help="Show one topic with its partitions.")
@click.argument("name")
@with_options((*FORMS, "kafka"))
def describe(settings: Settings, *, name: str) -> None:
    """Show one topic with all of its partitions; `-o kafka` prints it as kafka-topics.sh does."""
    form = settings.form()
    api = settings.api
    detail = api.get(f"/v1/topics/{quoted(name)}", TopicDetail)
    if form in ("json", "yaml"):
        output.print_data(form, detail)
        return
    members, _ = api.partitions({"topic": name})
    if settings.printed(detail, members):
        return
    if detail.config is None:
        raise Failure(f"topic {name}: its overrides cannot be read; retry", Exit.FAILED)
    if form == "kafka":
        output.print_lines(describe_lines(detail.topic, detail.config, members))
        return
    overrides = ", ".join(f"{key}={value}" for key, value in sorted(detail.config.items()))
    output.print_lines(
        output.pairs(
            [
                ("topic", detail.topic.name + (" (being deleted)" if detail.topic.deleting else "")),
                ("id", detail.topic.id or NONE),
                *topic_sizes(detail.topic),
                *([] if detail.topic.kind == "replicated" else [("owners", shards.owners(members))]),
                ("overrides", overrides or NONE),
            ]
        )
    )
    output.print_lines([""])
    show_partitions(settings, members)


def _assignment(assigned: tuple[str, ...]) -> list[list[int]] | None:
    """Parse `0:1,2,3` of each partition; returns a list by partition."""
    if not assigned:
        return None
    by_partition: dict[int, list[int]] = {}
    for text in assigned:
        parts = re.fullmatch(r"(\d+):(\d+(?:,\d+)*)", text, re.ASCII)
        if parts is None:
            raise click.BadParameter(f"{text!r} is not an assignment: write 0:1,2,3", param_hint="--assignment")
        partition = int(parts[1])
        if partition in by_partition:
            raise click.BadParameter(f"partition {partition} is given twice", param_hint="--assignment")
        by_partition[partition] = [int(broker) for broker in parts[2].split(",")]
    if sorted(by_partition) != list(range(len(by_partition))):
        raise click.BadParameter("partitions are numbered from 0 without a gap", param_hint="--assignment")
    return [by_partition[partition] for partition in range(len(by_partition))]


def _override(text: str, option: str = "--config") -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{text!r} is not an override: write key=value", param_hint=option)
    return key, value


# The server's timeout is shorter than the client's, so that its error, which names the cause, arrives first.
_MARGIN = 0.9


def _wait_ms(timeout_s: float) -> int:
    return min(max(1, int(timeout_s * 1000 * _MARGIN)), TIMEOUT_MS_MAX)
