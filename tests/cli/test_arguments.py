"""Arguments of all commands: output formats, and files that are pipes."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
import yaml

from kactl.admin.schema import ONE_LINE
from kactl.cli import output
from kactl.cli.common_options import own_reason
from kactl.cli.root import kactl as root

from .server import KACTL, Up, kactl, kactl_process, pipe_of


def commands_below(group: click.Group, *names: str) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands below a group, with their names."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands_below(command, *names, name)
        yield " ".join((*names, name)), command


def formats_of(command: click.Command) -> tuple[str, ...]:
    for option in command.params:
        if option.name == "output":
            assert isinstance(option.type, click.Choice)
            return tuple(option.type.choices)
    return ()


def test_csv_and_kafka_formats_are_limited_to_one_command_each() -> None:
    formats = {name: formats_of(command) for name, command in commands_below(root)}

    assert [name for name, supported in formats.items() if "csv" in supported] == ["forensics sql"]
    assert [name for name, supported in formats.items() if "kafka" in supported] == ["topic describe"]
    # These print no data.
    assert formats["up"] == formats["config validate"] == ()
    assert formats["watch"] == ("table", "jsonl")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["get", "partitions", "-o", "csv"],
            "this command does not support the output format 'csv': choose one of table, json, jsonl, yaml",
        ),
        (
            ["-o", "csv", "get", "partitions"],
            "this command does not support the output format 'csv': choose one of table, json, jsonl, yaml",
        ),
        (["watch", "-o", "json"], "this command does not support the output format 'json': choose one of table, jsonl"),
        (["-o", "xml", "get", "topics"], "the output format 'xml'"),
    ],
)
def test_unsupported_output_format_is_rejected(arguments: list[str], message: str) -> None:
    done = kactl(*arguments)

    assert done.code == 2
    assert message in done.err


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
        ["topic", "add-partitions", "forms", "--partitions", "3", "--dry-run"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("form", ["json", "jsonl", "yaml"])
def test_supported_output_formats_are_valid_json(up: Up, arguments: list[str], form: str) -> None:
    up("topic", "create", "forms", "--assignment", "0:1")

    run = kactl_process if form == "json" else kactl
    done = run("--server", up.url, *arguments, "-o", form)

    assert done.code == 0, done.err
    if form == "yaml":
        assert done.out.startswith("---\n")
        assert isinstance(yaml.safe_load(done.out), dict | list)
        return
    for line in [done.out] if form == "json" else done.out.splitlines():
        msgspec.json.decode(line)


def test_yaml_escapes_what_could_control_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": "a\x1b[2Jb\nno: yes", "moment": "2026-11-23", "number": "17", 3: [True, None, 1.5]}

    output.print_yaml(value)

    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert yaml.safe_load(shown) == {**{str(key): item for key, item in value.items()}}


def test_root_prints_errors_as_json_for_every_format_of_data() -> None:
    for form in ("json", "jsonl", "yaml"):
        done = kactl("--server", "http://127.0.0.1:1", "get", "brokers", "-o", form)

        assert done.code == 3
        assert "cannot be reached" in msgspec.json.decode(done.err)["detail"]


# -- files that are pipes ----------------------------------------------------------------------------------------------

TARGET = json.dumps({"version": 1, "partitions": [{"topic": "pipes", "partition": 0, "replicas": [1]}]})
NAMES = json.dumps({"partitions": [{"topic": "pipes", "partition": 0}]})
TOPICS = json.dumps({"version": 1, "topics": [{"topic": "pipes"}]})


FILE_ARGUMENTS = {
    "execute": ("compat reassign-partitions --execute --reassignment-json-file", TARGET, "Successfully started"),
    "verify": ("compat reassign-partitions --verify --reassignment-json-file", TARGET, "pipes-0 is completed"),
    "generate": (
        "compat reassign-partitions --generate --broker-list 1,2 --topics-to-move-json-file", TOPICS, "Proposed",
    ),
    "election": ("compat leader-election --election-type preferred --path-to-json-file", NAMES, "already elected"),
    "apply": ("reassign apply --dry-run -f", TARGET, "pipes-0"),
    "own verify": ("reassign verify -f", TARGET, "pipes-0"),
    "elect": ("elect preferred --dry-run -f", NAMES, "pipes-0"),
}  # fmt: skip
SOURCES = ("/dev/stdin", "-", "/dev/fd")
# Kafka's tools read "-" as the name of a file.
PIPES = [
    pytest.param(*argument, source, id=f"{source}-{name}")
    for source in SOURCES
    for name, argument in FILE_ARGUMENTS.items()
    if source != "-" or not argument[0].startswith("compat")
]


@pytest.mark.parametrize(("command", "content", "expected", "source"), PIPES)
def test_file_argument_accepts_pipes(up: Up, command: str, content: str, expected: str, source: str) -> None:
    up("topic", "create", "pipes", "--assignment", "0:1")

    with pipe_of(content) as pipe:
        file = f"/dev/fd/{pipe}" if source == "/dev/fd" else source
        done = kactl("--server", up.url, *command.split(), file, *bootstrap_server(up, command), stdin=pipe)

    assert done.code == 0, done.err
    assert expected in done.out


@pytest.mark.parametrize("source", ["/dev/stdin", "-", "<(cat {file})"])
def test_shell_passes_pipes_to_a_process(up: Up, tmp_path: Path, source: str) -> None:
    up("topic", "create", "pipes", "--assignment", "0:1")
    command, content, expected = FILE_ARGUMENTS["own verify"]
    file = tmp_path / "file.json"
    file.write_text(content)
    script = f"cat {file} | {' '.join(KACTL)} --server {up.url} {command} {source.format(file=file)}"

    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def bootstrap_server(up: Up, command: str) -> list[str]:
    """Returns the option that Kafka's tools require."""
    return ["--bootstrap-server", up.url.removeprefix("http://")] if command.startswith("compat") else []


@pytest.mark.parametrize(
    "command", ["reassign verify -f", "compat reassign-partitions --verify --reassignment-json-file"]
)
def test_endless_file_is_rejected(up: Up, command: str) -> None:
    done = up(*command.split(), "/dev/zero", *bootstrap_server(up, command))

    assert done.code in (1, 2)
    assert "/dev/zero: larger than 67108864 bytes; split it" in done.err + done.out


def test_command_without_a_reason_says_who_runs_it_where() -> None:
    reason = own_reason()

    assert reason.startswith("no reason given: ")
    assert reason.endswith(f" on {socket.gethostname()}")
    assert re.match(ONE_LINE, reason)
