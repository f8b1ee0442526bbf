"""Commands that change the cluster take the same options; the list of commands is that of the parser."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kactl.admin.schema import ControllerInfo
from kactl.cli.root import kactl as root

from .server import Up

ALIKE = {"--yes", "--reason", "--dry-run"}
# Commands that change nothing of a cluster: they read, simulate, or write files of this host that other programs read.
OTHERS = {
    "up", "status", "get", "describe", "explain", "whatif", "watch", "forensics", "dashboard", "context", "token",
    "kafka-user", "store", "audit", "pki", "monitoring", "doctor", "zk-secure", "completion", "config", "sim", "compat",
    "controller", "controller history", "controller queue", "topic list", "topic describe", "reassign list",
    "reassign plan", "reassign verify", "broker stoppable",
}  # fmt: skip


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yields each command with its name, as the parser finds them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group) and " ".join((*path, name)) not in OTHERS - {"controller"}:
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


CHANGING = {name: command for name, command in commands(root) if name not in OTHERS}


def options_of(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


def test_commands_that_change_the_cluster_are_found() -> None:
    assert {"broker kill", "broker restart", "topic set", "topic grow", "elect", "reassign apply", "replica reset",
            "controller resign"} <= CHANGING.keys()  # fmt: skip


@pytest.mark.parametrize("name", CHANGING)
def test_command_takes_the_options_of_changes(name: str) -> None:
    assert options_of(CHANGING[name]) >= ALIKE


@pytest.mark.parametrize("name", [name for name, command in commands(root) if "--file" in options_of(command)])
def test_command_takes_its_file_as_an_argument(name: str) -> None:
    command = dict(commands(root))[name]

    assert "argument" in {parameter.name for parameter in command.params if isinstance(parameter, click.Argument)}


CALLS = {
    "topic create": ("dry-created",),
    "topic set": ("alike", "retention.ms=60000"),
    "topic add-partitions": ("alike", "--partitions", "9"),
    "topic grow": ("alike", "--partitions", "9"),
    "topic delete": ("alike",),
    "elect": ("preferred", "--topic", "alike"),
    "reassign apply": ("PLAN",),
    "reassign cancel": ("PLAN",),
    "replica reset": ("alike-0", "--broker", "1"),
    "broker drain": ("1",),
    "broker kill": ("1",),
    "broker restart": ("1",),
    "controller resign": (),
}


def test_every_changing_command_has_a_call_here() -> None:
    assert CALLS.keys() == CHANGING.keys()


@pytest.mark.parametrize("name", CALLS)
def test_dry_run_changes_nothing(up: Up, tmp_path: Path, name: str) -> None:
    if not up.partitions("--topic", "alike"):
        up("topic", "create", "alike", "--assignment", "0:1,2", "--yes", "--reason", "a test")
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "alike", "partition": 0, "replicas": [2, 3]}]}')
    arguments = [plan if argument == "PLAN" else argument for argument in CALLS[name]]
    before = _state(up)

    result = up(*name.split(), *arguments, "--dry-run", "--yes", "--reason", "a test")

    assert result.code in (0, 1), result.err
    if result.code:
        assert name in ("replica reset", "reassign cancel"), result.err  # nothing to reset, or to cancel
    else:
        assert "othing was changed" in result.err
    assert _state(up) == before


def _state(up: Up) -> object:
    controller = up("get", "controller", "-o", "json").json(ControllerInfo)
    brokers = up("get", "brokers", "-o", "json").out
    partitions = [(info.topic, info.partition, info.leader, info.replicas, info.adding) for info in up.partitions()]
    states = [line for line in brokers.splitlines() if '"state"' in line or '"epoch"' in line]
    return controller.epoch, states, partitions


def test_file_is_given_once(up: Up, tmp_path: Path) -> None:
    result = up("reassign", "apply", tmp_path / "a", "-f", tmp_path / "b")

    assert result.code == 2
    assert "specify the file once" in result.err
