"""Commands that change something take the same options; the list of commands is that of the parser."""

import contextlib
import functools
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kactl.admin.identity.token_file import read_tokens
from kactl.admin.schema import ControllerInfo
from kactl.cli.root import kactl as root
from kactl.runtime.clock import SystemClock
from kactl.stores.sqlite.database import Database
from tests.environment.places import require_places
from tests.support import tree

from .server import KACTL, START_S, STOP_S, CommandResult, Up, kactl

ALIKE = {"--yes", "--reason", "--dry-run"}
# Groups whose commands only run servers, read or simulate. A command that is neither here nor below counts as changing.
READING_GROUPS = ("up", "get", "describe", "forensics", "config")
# Their options are those of Kafka's tools.
KAFKAS = "compat"
READING = {
    "status", "explain", "whatif", "watch", "dashboard", "doctor", "completion", "audit verify", "controller",
    "controller history", "controller queue", "topic list", "topic describe", "reassign list", "reassign plan",
    "reassign verify", "broker stoppable", "context current", "context list", "token list", "kafka-user list",
    "store backup", "monitoring export",  # they write the new files that their arguments name
}  # fmt: skip


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yields each command with its name, as the parser finds them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join((*path, name)), command


CHANGING = {
    name: command
    for name, command in commands(root)
    if name not in READING and name.split()[0] not in (*READING_GROUPS, KAFKAS)
}


def options_of(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


def test_commands_that_change_something_are_found() -> None:
    assert {"broker kill", "broker restart", "topic set", "topic grow", "elect", "reassign apply", "replica reset",
            "controller resign", "token revoke", "kafka-user add", "store restore", "zk-secure", "context use",
            "pki issue"} <= CHANGING.keys()  # fmt: skip


def test_every_command_that_is_named_exists() -> None:
    names = {name for name, _ in commands(root)}

    assert names >= READING
    assert {*READING_GROUPS, KAFKAS} <= {name.split()[0] for name in names}


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
    "controller release": ("0",),
}


# Commands that use no server. KEEP is a folder with what they change; zk-secure is tried with a real server where the
# permissions are tested.
HOST_CALLS = {
    "token create": ("ci", "--role", "viewer", "--tokens", "KEEP/tokens.toml", "--output", "KEEP/new.token"),
    "token rotate": ("old", "--tokens", "KEEP/tokens.toml", "--output", "KEEP/new.token"),
    "token revoke": ("ID", "--tokens", "KEEP/tokens.toml"),
    "kafka-user add": ("ci", "--password-file", "KEEP/password", "--users", "KEEP/users.json"),
    "kafka-user remove": ("old", "--users", "KEEP/users.json"),
    "store restore": ("KEEP/backup.db", "--store", "KEEP/kactl.db"),
    "context add": ("new", "--server", "http://127.0.0.1:9", "--use"),
    "context use": ("old",),
    "context remove": ("old",),
    "pki init": ("KEEP/pki/other",),
    "pki issue": ("KEEP/pki", "participant/3"),
}
# Beside the folder is nothing else that they could make.
REFUSED_CALLS = {
    "token revoke": ("unknown", "--tokens", "KEEP/tokens.toml"),
    "token create": ("old", "--role", "viewer", "--tokens", "KEEP/tokens.toml", "--output", "KEEP/new.token"),
    "kafka-user remove": ("unknown", "--users", "KEEP/users.json"),
    "kafka-user add": ("old", "--password-file", "KEEP/password", "--users", "KEEP/users.json"),
    "store restore": ("KEEP/password", "--store", "KEEP/kactl.db"),
    "context use": ("unknown",),
    "pki init": ("KEEP/pki",),
    "pki issue": ("KEEP", "participant/3"),
}


def test_every_changing_command_has_a_call_here() -> None:
    assert {*CALLS, *HOST_CALLS, "zk-secure"} == CHANGING.keys()


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


@pytest.fixture(scope="module")
def keep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the commands of a host change."""
    keep = tmp_path_factory.mktemp("host") / "keep"
    keep.mkdir()
    password = keep / "password"
    password.write_text("correct horse\n")
    password.chmod(0o600)
    with contextlib.closing(Database(keep / "kactl.db", SystemClock())):
        pass
    for line in (
        f"token create old --role viewer --tokens {keep}/tokens.toml --output {keep}/old.token",
        f"kafka-user add old --password-file {password} --users {keep}/users.json",
        f"store backup {keep}/backup.db --store {keep}/kactl.db",
        "context add old --server http://127.0.0.1:9",
        f"pki init {keep}/pki",
    ):
        done = _on_host(keep, *line.split())
        assert done.code == 0, done.err
    return keep


def _on_host(keep: Path, *arguments: str) -> CommandResult:
    ids = [record.id for record in read_tokens(keep / "tokens.toml")] if (keep / "tokens.toml").exists() else [""]
    named = [argument.replace("KEEP", str(keep)).replace("ID", ids[0]) for argument in arguments]
    return kactl(*named, env={"XDG_CONFIG_HOME": str(keep / "config")})


def _files(folder: Path) -> dict[Path, bytes]:
    files = {path: b"" if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}
    # SQLite removes its own files, which are empty here, when a database is closed.
    return {path: content for path, content in files.items() if not path.name.endswith((".lock", "-wal", "-shm"))}


@pytest.mark.parametrize("name", HOST_CALLS)
def test_dry_run_changes_no_file(keep: Path, name: str) -> None:
    before = _files(keep.parent)

    result = _on_host(keep, *name.split(), *HOST_CALLS[name], "--dry-run", "--yes", "--reason", "a test")

    assert result.code == 0, result.err
    assert result.err.startswith("Would ")
    assert "Nothing was changed." in result.err
    assert _files(keep.parent) == before


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_dry_run_is_refused_as_the_change_is(keep: Path, name: str) -> None:
    before = _files(keep.parent)

    dry, real = (_on_host(keep, *name.split(), *REFUSED_CALLS[name], *more) for more in (("--dry-run",), ()))

    assert (dry.code, dry.err) == (real.code, real.err)
    assert real.code != 0
    assert _files(keep.parent) == before


def test_change_of_files_is_in_the_log_of_the_system(keep: Path, tmp_path: Path) -> None:
    require_places()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.settimeout(STOP_S)
        log.bind(str(tmp_path / "log"))
        # Temporary files may be below /dev.
        moved = "mount --rbind /dev/shm /mnt && mount -t tmpfs none /dev && mkdir /dev/shm"
        moved += " && mount --move /mnt /dev/shm"
        shell = f'{moved} && mknod /dev/null c 1 3 && ln -s {tmp_path}/log /dev/log && exec "$@"'
        command = ("unshare", "--mount", "sh", "-c", shell, "sh", *KACTL, "kafka-user", "add")
        arguments = ("--password-file", keep / "password", "--users", tmp_path / "users.json", "--reason", "new\nadmin")
        environment = {**os.environ, "PYTHONPATH": str(tree.ROOT)}
        run = functools.partial(subprocess.run, check=True, capture_output=True, timeout=START_S, env=environment)

        run([*command, "dry", "--dry-run", *arguments])
        run([*command, "ops", *arguments])

        line = log.recv(4096).decode()
        log.setblocking(False)
        with pytest.raises(BlockingIOError):
            log.recv(4096)
    assert re.search(r"kactl\[[0-9]+\]: user 0: add User:ops with SCRAM-SHA-512 to \S+: new\ufffdadmin", line), line


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
