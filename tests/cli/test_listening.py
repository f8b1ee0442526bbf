"""Kafka listener of `kactl controller`: binding and advertised entry."""

import socket
from pathlib import Path

import anyio
import pytest

from kactl.actors.system import Controller
from kactl.cli.listening import listed_as, listener, listening
from kactl.config.kafka_settings import KafkaConfig
from kactl.config.settings import Config
from kactl.model import Endpoint
from kactl.model.errors import BadConfig
from kactl.runtime import reloading
from kactl.runtime.reloading import Reloads
from kactl.security.sasl import ScramClient, verifier
from kactl.transports.kafka.listener.user_file import User, write_users
from tests.transports.kafka.listener.client import connected, request_class

from .server import kactl_process

ANY = "INTERNAL://127.0.0.1:0"


def config(*listeners: str, visible_on: tuple[str, ...] | None = None) -> Config:
    return Config(node_id=9, kafka=KafkaConfig(listeners=listeners, visible_on=visible_on))


def test_port_in_use_fails_before_anything_is_started(tmp_path: Path) -> None:
    """The test has no ZooKeeper either."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = tmp_path / "kactl.toml"
        file.write_text(
            f'node-id = 9\n[store]\nkind = "zookeeper"\nconnect = "127.0.0.1:1"\n[api]\nlisten = "127.0.0.1:0"\n'
            f'[kafka]\nlisteners = ["INTERNAL://127.0.0.1:{port}"]\n'
        )
        ran = kactl_process("controller", "--config", file)

    assert ran.code != 0
    assert f"kafka.listeners: INTERNAL://127.0.0.1:{port} cannot be listened on (" in ran.err
    assert "stop the process that uses it, or configure another address" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("text", ["A://no.such.host.invalid:1", "A://192.0.2.1:1"])
def test_address_of_another_host_is_named(text: str) -> None:
    with pytest.raises(BadConfig, match=f"{text} cannot be listened on"), listening(config(text)):
        pass


def test_bound_addresses_are_released_if_another_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        pytest.raises(BadConfig),
        listening(config(f"A://127.0.0.1:{port}", f"B://127.0.0.1:{port}")),
    ):
        pass
    with listening(config(f"A://127.0.0.1:{port}")) as sockets:
        assert sockets["A"].port == port


def test_controller_entry_in_the_list_of_brokers() -> None:
    both = ("INTERNAL://10.0.0.1:1", "CLIENT://10.0.0.1:2")

    entry = listed_as(config(*both, visible_on=("INTERNAL",)))

    assert entry is not None
    assert (entry.id, entry.epoch, entry.endpoints) == (9, -1, (Endpoint("INTERNAL", "10.0.0.1", 1),))
    assert listed_as(config(*both, visible_on=())) is None
    assert listed_as(config()) is None


@pytest.mark.anyio
async def test_no_listener_is_started_without_addresses() -> None:
    controller = Controller(9)

    with listening(config()) as sockets:
        async with listener(controller, config(), sockets) as serving:
            assert serving is None


@pytest.mark.anyio
async def test_users_of_a_file_log_in(tmp_path: Path) -> None:
    path, client = tmp_path / "users.json", ScramClient("SCRAM-SHA-512", "ops", "secret")
    known = verifier("SCRAM-SHA-512", "secret", salt=b"salt", iterations=4096)
    write_users(path, [User("ops", {"SCRAM-SHA-512": known})])
    kafka = KafkaConfig(listeners=(ANY,), visible_on=(), protocols={"INTERNAL": "SASL_PLAINTEXT"}, users=str(path))
    settings = Config(node_id=9, kafka=kafka)

    with listening(settings) as sockets:
        async with listener(Controller(9), settings, sockets):
            port = sockets["INTERNAL"].port
            async with connected(port) as peer:
                await peer.ask(request_class(17, 1)(mechanism=client.name))
                message = client.first()
                while not client.is_complete:
                    answer = await peer.ask(request_class(36, 2)(auth_bytes=message))
                    message = client.respond(answer.auth_bytes)


@pytest.mark.anyio
async def test_changed_file_of_users_that_cannot_be_used_is_a_failed_reload(tmp_path: Path) -> None:
    path, reloads = tmp_path / "users.json", Reloads()
    write_users(path, [])
    kafka = KafkaConfig(listeners=(ANY,), visible_on=(), protocols={"INTERNAL": "SASL_PLAINTEXT"}, users=str(path))
    settings = Config(node_id=9, kafka=kafka)
    with listening(settings) as sockets:
        async with listener(Controller(9), settings, sockets, reloads=reloads):
            assert not reloads.has_failed

            path.write_bytes(b"{")
            await _reloaded(reloads, True)

            write_users(path, [])
            await _reloaded(reloads, False)


async def _reloaded(reloads: Reloads, failed: bool) -> None:
    """Request reloads until one has that result."""
    with anyio.fail_after(60):
        while reloads.has_failed is not failed:
            reloading.request()
            await anyio.lowlevel.checkpoint()


@pytest.mark.anyio
async def test_missing_file_of_users_is_an_error_at_the_start(tmp_path: Path) -> None:
    kafka = KafkaConfig(listeners=(ANY,), protocols={"INTERNAL": "SASL_PLAINTEXT"}, users=str(tmp_path / "none"))
    settings = Config(node_id=9, kafka=kafka)

    with listening(settings) as sockets, pytest.raises(BadConfig, match="kactl kafka-user add"):
        async with listener(Controller(9), settings, sockets):
            pass
