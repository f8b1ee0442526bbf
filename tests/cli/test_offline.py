"""Commands without a server: help, configurations, invalid controllers and missing packages."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import kactl as package
from kactl.cli.root import Commands
from kactl.cli.topic import topic
from kactl.cli.up import DATA_DIR, SECURITY_FOLDER
from tests.support import tree

from .server import kactl

GROUPS = [name for name, command in Commands().items() if isinstance(command, click.Group)]
EMBED = tree.ROOT / "tests" / "examples" / "embed.py"


def test_help_lists_all_commands() -> None:
    done = kactl("--help")

    for command in ("up", "controller", "topic", "get", "elect", "broker", "watch", "config"):
        assert f"  {command} " in done.out


@pytest.mark.parametrize("command", [["up"], ["controller"], ["config", "show"], ["config", "validate"]], ids=" ".join)
def test_local_commands_have_no_server_option(command: list[str]) -> None:
    done = kactl(*command, "--help")

    assert done.code == 0
    assert "--quiet" in done.out
    assert "--server" not in done.out
    assert "--timeout" not in done.out


@pytest.mark.parametrize("group", GROUPS)
def test_help_of_groups_is_not_truncated(group: str) -> None:
    _, _, commands = kactl(group, "--help").out.partition("Commands:")

    assert commands
    assert "..." not in commands


CONTROLLER = 'node-id = 7\n[store]\nkind = "zookeeper"\nconnect = "127.0.0.1:1"\n[api]\nlisten = "127.0.0.1:0"\n'


@pytest.mark.parametrize(
    ("name", "command", "extra", "extras"),
    [
        ("click", "up", "server", "server"),
        ("aiohttp", "up", "server", "server"),
        ("kazoo", "controller", "zookeeper", "server,zookeeper"),
    ],
)
def test_missing_package_is_named_in_one_line_with_its_extra(
    name: str, command: str, extra: str, extras: str, tmp_path: Path
) -> None:
    (tmp_path / "kactl.toml").write_text(CONTROLLER)
    code = (
        f"import sys\nsys.modules[{name!r}] = None\nsys.argv = ['kactl', {command!r}]\n"
        "from kactl.cli.main import main\nmain()"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
    )

    assert done.returncode == 126
    assert done.stderr == (
        f"kactl: this needs the package {name!r} of kactl's extra {extra!r}, which is not installed: "
        f"pip install -e '{tree.ROOT}[{extras}]'\n"
    )


def test_nested_sections_are_shown_as_they_are_read(tmp_path: Path) -> None:
    file = tmp_path / "kactl.toml"
    file.write_text(
        """
        node-id = 7
        [store]
        kind = "zookeeper"
        connect = "127.0.0.1:2181/kafka"
        [kafka]
        listeners = ["INTERNAL://127.0.0.1:9090"]
        [kafka.protocols]
        INTERNAL = "SASL_PLAINTEXT"
        [kafka.broker-principals.names]
        1 = "User:one"
        [kafka.client]
        ca = "ca.pem"
        """
    )

    shown = kactl("config", "show", file).out

    assert '[kafka.protocols]\nINTERNAL = "SASL_PLAINTEXT"\n' in shown
    assert '[kafka.broker-principals.names]\n1 = "User:one"\n' in shown
    (tmp_path / "shown.toml").write_text(shown)
    assert kactl("config", "show", tmp_path / "shown.toml").out == shown


def test_configuration_is_validated_and_shown(tmp_path: Path) -> None:
    file = tmp_path / "kactl.toml"
    file.write_text('node-id = 7\n[store]\nkind = "zookeeper"\nconnect = "127.0.0.1:2181/kafka"\n')

    checked = kactl("config", "validate", file)
    shown = kactl("config", "show", file, env={"KACTL_STORE__SESSION_TIMEOUT": "9s"})

    assert (checked.code, checked.err) == (0, f"{file}: the configuration is valid.\n")
    assert shown.code == 0
    assert 'session-timeout = "9000ms"' in shown.out
    (tmp_path / "shown.toml").write_text(shown.out)
    assert kactl("config", "show", tmp_path / "shown.toml").out == shown.out


def test_file_of_up_is_valid_without_node_id(tmp_path: Path) -> None:
    (tmp_path / "up.toml").write_text('[store]\nkind = "etcd"\nendpoints = ["http://127.0.0.1:1"]\n')
    (tmp_path / "brokers.toml").write_text('[store]\nkind = "zookeeper"\nconnect = "127.0.0.1:1"\n')

    for_up = kactl("config", "validate", tmp_path / "up.toml")
    for_brokers = kactl("config", "validate", tmp_path / "brokers.toml")
    examined = kactl("doctor", "--config", tmp_path / "up.toml", "-o", "jsonl")

    assert for_up.code == 0, for_up.err
    assert (for_brokers.code, "node-id: is missing" in for_brokers.err) == (2, True)
    assert f'"tokens {DATA_DIR}/{SECURITY_FOLDER}/tokens.toml"' in examined.out


def test_token_of_a_configuration_is_made_where_its_server_reads_it(tmp_path: Path) -> None:
    file, data = tmp_path / "kactl.toml", tmp_path / "data"
    file.write_text(f'node-id = 7\n[store]\npath = "{data}/kactl.db"\n')

    made = kactl("token", "create", "x", "--role", "viewer", "--config", file, "--output", tmp_path / "x.token")

    assert made.code == 0, made.err
    assert (data / SECURITY_FOLDER / "tokens.toml").exists()


def test_unknown_configuration_key_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "kactl.toml"
    file.write_text("node-id = 7\n[api]\nlistne = 1\n")

    refused = kactl("config", "validate", file)

    assert refused.code == 2
    assert "api.listne" in refused.err
    assert "did you mean listen?" in refused.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node-id = 1\n", "real brokers store their cluster in ZooKeeper, not in sqlite"),
        ('[store]\nkind = "zookeeper"\nconnect = "x"\n', "node-id: is missing"),
        ('node-id = 1\n[store]\nkind = "zookeeper"\n', "store.connect: is missing"),
        (
            'node-id = 1\n[kafka]\nibp = "1.0"\n[store]\nkind = "zookeeper"\nconnect = "127.0.0.1:1"\n',
            "from 2.6 to 3.9",
        ),
    ],
)
def test_invalid_controller_configuration_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "kactl.toml").write_text(text + '[api]\nlisten = "127.0.0.1:0"\n')

    refused = kactl("controller", cwd=tmp_path)

    assert refused.code in (1, 2)
    assert message in refused.err
    assert "Traceback" not in refused.err


def test_embedding_example_runs_unchanged(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EMBED)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)},
    )

    # Its warnings are about the participant that it kills, and about partitions without a leader at its end.
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert done.stdout.splitlines() == [
        "orders-0 is led by 2, in sync are (2, 3)",
        "orders-1 is led by 2, in sync are (2, 3)",
        "orders-2 is led by 3, in sync are (3, 2)",
        "orders-3 is led by 3, in sync are (3, 2)",
        "orders-4 is led by 2, in sync are (2, 3)",
        "orders-5 is led by 3, in sync are (3, 2)",
    ]
    assert not list(tmp_path.iterdir())


def test_public_names_are_importable() -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) == set(package._MODULE_OF)
    assert not hasattr(package, "Nonsense")


def test_topic_grow_is_a_hidden_alias_of_add_partitions() -> None:
    alias, command = topic.commands["grow"], topic.commands["add-partitions"]

    assert alias.hidden
    assert not command.hidden
    assert alias.callback is command.callback
    assert alias.params == command.params
