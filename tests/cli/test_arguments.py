"""What every command takes: forms of output that it has, and files that are pipes."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from kactl.cli.root import kactl as root

from .server import KACTL, Up, kactl


def commands(group: click.Group, *names: str) -> Iterator[tuple[str, click.Command]]:
    """All commands below a group, with their names."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)
        yield " ".join((*names, name)), command


def forms(command: click.Command) -> tuple[str, ...]:
    for option in command.params:
        if option.name == "output":
            assert isinstance(option.type, click.Choice)
            return tuple(option.type.choices)
    return ()


def test_only_commands_that_have_csv_or_kafka_offer_it() -> None:
    offered = {name: forms(command) for name, command in commands(root)}

    assert [name for name, have in offered.items() if "csv" in have] == ["forensics sql"]
    assert [name for name, have in offered.items() if "kafka" in have] == ["topic describe"]
    # These print no data.
    assert offered["up"] == offered["config validate"] == ()
    assert offered["watch"] == ("table", "jsonl")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["get", "partitions", "-o", "csv"], "this command has no output 'csv'; it has table, json, jsonl"),
        (["-o", "csv", "get", "partitions"], "this command has no output 'csv'; it has table, json, jsonl"),
        (["watch", "-o", "json"], "this command has no output 'json'; it has table, jsonl"),
        (["-o", "yaml", "get", "topics"], "no output 'yaml'"),
    ],
)
def test_a_form_that_a_command_does_not_have_is_refused_with_those_it_has(arguments: list[str], said: str) -> None:
    done = kactl(*arguments)

    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["controller", "queue"],
        ["controller", "history"],
        ["explain", "forms"],
        ["explain", "forms-0"],
        ["get", "brokers"],
        ["get", "controller"],
        ["get", "partitions"],
        ["topic", "describe", "forms"],
        ["reassign", "list"],
        ["reassign", "plan"],
        ["reassign", "verify", "-p", "forms-0:1"],
        ["elect", "preferred", "--all", "--dry-run"],
        ["broker", "drain", "1", "--dry-run"],
        ["topic", "grow", "forms", "--partitions", "3", "--dry-run"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_every_form_that_is_offered_prints_what_it_names(up: Up, arguments: list[str], form: str) -> None:
    up("topic", "create", "forms", "--assignment", "0:1")

    done = up(*arguments, "-o", form)

    assert done.code == 0, done.err
    for line in [done.out] if form == "json" else done.out.splitlines():
        msgspec.json.decode(line)


# -- files that are pipes ----------------------------------------------------------------------------------------------

TARGET = json.dumps({"version": 1, "partitions": [{"topic": "pipes", "partition": 0, "replicas": [1]}]})
NAMES = json.dumps({"partitions": [{"topic": "pipes", "partition": 0}]})
TOPICS = json.dumps({"version": 1, "topics": [{"topic": "pipes"}]})


@pytest.mark.parametrize(
    ("command", "content", "said"),
    [
        ("compat reassign-partitions --execute --reassignment-json-file", TARGET, "Successfully started"),
        ("compat reassign-partitions --verify --reassignment-json-file", TARGET, "pipes-0 is completed"),
        ("compat reassign-partitions --generate --broker-list 1,2 --topics-to-move-json-file", TOPICS, "Proposed"),
        ("compat leader-election --election-type preferred --path-to-json-file", NAMES, "already elected"),
        ("reassign apply --dry-run -f", TARGET, "pipes-0"),
        ("reassign verify -f", TARGET, "pipes-0"),
        ("elect preferred --dry-run -f", NAMES, "pipes-0"),
    ],
    ids=["execute", "verify", "generate", "election", "apply", "own verify", "elect"],
)
@pytest.mark.parametrize("source", ["/dev/stdin", "-", "<(cat {file})"], ids=["stdin", "dash", "substitution"])
def test_a_file_may_be_a_pipe(up: Up, tmp_path: Path, command: str, content: str, said: str, source: str) -> None:
    up("topic", "create", "pipes", "--assignment", "0:1")
    file = tmp_path / "file.json"
    file.write_text(content)
    server = f"--bootstrap-server {up.url.removeprefix('http://')}" if command.startswith("compat") else ""
    if source == "-" and command.startswith("compat"):
        pytest.skip("Kafka's tools take it for the name of a file")
    script = f"cat {file} | {' '.join(KACTL)} --server {up.url} {command} {source.format(file=file)} {server}"

    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
    assert said in done.stdout


@pytest.mark.parametrize(
    "command", ["reassign verify -f", "compat reassign-partitions --verify --reassignment-json-file"]
)
def test_a_file_without_an_end_is_refused(up: Up, command: str) -> None:
    server = ["--bootstrap-server", up.url.removeprefix("http://")] if command.startswith("compat") else []

    done = up(*command.split(), "/dev/zero", *server)

    assert done.code in (1, 2)
    assert "/dev/zero: it has more than 67108864 bytes; split it" in done.err + done.out
