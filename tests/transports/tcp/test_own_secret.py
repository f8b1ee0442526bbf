"""The secret that programs of one user share without configuration, so that no other user of the host takes part."""

import logging
import os
import socket
import stat
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import pytest

import kactl
from kactl.model.errors import BadConfig, NotAuthorized
from kactl.runtime import reloading
from kactl.runtime.secret import Secret
from kactl.runtime.user_state import own_secret, secret_path
from kactl.testing.contracts.link_support import ContractOffice, ContractPort, opened, until
from kactl.transports.tcp.framing import Kind, Message, frames_of
from kactl.transports.tcp.handshake import Proof
from kactl.transports.tcp.network import TcpNetwork

from .support import PART, hello_of, raw_client

pytestmark = pytest.mark.anyio

LOOPBACK: Final = "127.0.0.1:0"
PATIENCE_S: Final = 60
SECRET: Final = b"0123456789abcdef"
# A user without rights.
OTHER: Final = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
# No file can be made there, not even by root.
NOWHERE: Final = "/proc/none"

# As another user, with the environment of the first one: reads the secret, then opens a link without one.
STRANGER: Final = """
import os, socket, sys
"a".encode("idna")  # files of the interpreter are not readable any more afterwards
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    open(sys.argv[1], "rb").read()
except PermissionError:
    print("not readable")
connection = socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=60)
for frame in sys.argv[3:]:
    connection.sendall(bytes.fromhex(frame))
received = b""
while part := connection.recv(4096):
    received += part
print(received)
"""


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@asynccontextmanager
async def controller(**options: Any) -> AsyncIterator[TcpNetwork]:
    network = TcpNetwork(listen=LOOPBACK, **options)
    with anyio.fail_after(PATIENCE_S):
        async with network.controller_side(ContractOffice()):
            yield network


def network_to(controller: TcpNetwork, **options: Any) -> TcpNetwork:
    return TcpNetwork(controllers=[str(controller.address)], **options)


async def test_participant_of_the_same_user_needs_no_configuration(state_home: Path) -> None:
    async with controller() as network, network_to(network).participant_side(ContractPort(1)) as link:
        await opened(link)

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (state_home / "kactl" / "network", secret_path())]
    assert modes == [0o700, 0o600]


async def test_state_folder_of_an_earlier_version_may_be_read_by_others(state_home: Path) -> None:
    (state_home / "kactl").mkdir(parents=True)
    (state_home / "kactl").chmod(0o755)

    async with controller() as network, network_to(network).participant_side(ContractPort(1)) as link:
        await opened(link)


async def test_participant_that_starts_before_its_controller_makes_the_secret() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    async with TcpNetwork(controllers=[address]).participant_side(ContractPort(1)) as link:
        assert secret_path().exists()
        later = TcpNetwork(listen=address)
        with anyio.fail_after(PATIENCE_S):
            async with later.controller_side(ContractOffice()):
                await opened(link)


async def test_programs_that_start_at_the_same_time_make_one_secret() -> None:
    barrier, found = threading.Barrier(16), list[Secret | None]()

    def start() -> None:
        barrier.wait()
        found.append(own_secret())

    threads = [threading.Thread(target=start) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({None if secret is None else secret.reveal() for secret in found}) == 1
    assert found[0] is not None


@pytest.mark.parametrize("secret", [b"", SECRET])
async def test_program_without_the_secret_is_refused_with_the_remedy(secret: bytes) -> None:
    async with controller() as network, raw_client(network.address) as client:
        with pytest.raises(NotAuthorized, match=r"give the same secret=.*one user on one host share network/secret"):
            await client.greet(hello_of(), secret)


async def test_participant_of_another_user_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with controller() as network:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
        with pytest.raises(NotAuthorized, match="give the same secret="):
            async with kactl.Participant(1, network=network_to(network)):
                pytest.fail("it has started")


@needs_root
async def test_process_of_another_user_is_refused() -> None:
    messages = msgspec.msgpack.encode(hello_of(9)), msgspec.msgpack.encode(Proof(b""))
    frames = [b"".join(frames_of(Message(Kind.HANDSHAKE, 1, head), PART)).hex() for head in messages]
    async with controller() as network:
        port = str(network.address).rpartition(":")[2]
        command = [sys.executable, "-I", "-S", "-c", STRANGER, str(secret_path()), port, *frames]
        done = await anyio.run_process(command, check=False)

    assert b"not readable" in done.stdout, done.stderr
    assert b"does not know the shared secret" in done.stdout


async def test_removed_secret_ends_links_and_programs_of_the_user_return() -> None:
    async with (
        controller() as network,
        raw_client(network.address) as stranger,
        network_to(network).participant_side(ContractPort(1)) as link,
    ):
        await opened(link)
        earlier = own_secret()
        await stranger.greet(hello_of(2))
        secret_path().unlink()

        reloading.request()

        await stranger.ended()
        await until(lambda: own_secret() != earlier)
        async with raw_client(network.address) as late:
            assert earlier is not None
            with pytest.raises(NotAuthorized):
                await late.greet(hello_of(2), earlier.reveal())
        await opened(link)


async def test_replaced_secret_ends_links_by_the_earlier_one() -> None:
    async with controller(secret=SECRET) as network, raw_client(network.address) as client:
        await client.greet(hello_of(), SECRET)

        network.reload(secret=SECRET)
        async with raw_client(network.address) as unaffected:
            await unaffected.greet(hello_of(2), SECRET)
            network.reload(secret=b"another secret...")

            await client.ended()
            await unaffected.ended()


async def test_secret_of_the_user_cannot_be_replaced_by_a_program() -> None:
    async with controller() as network:
        with pytest.raises(BadConfig, match="start it with one"):
            network.reload(secret=SECRET)


def _others_can_read(path: Path) -> None:
    path.chmod(0o644)


def _is_empty(path: Path) -> None:
    path.write_text("\n")


def _folder_is_open(path: Path) -> None:
    path.parent.chmod(0o777)


def _folder_is_a_link(path: Path) -> None:
    path.parent.rename(path.parent.with_name("real"))
    path.parent.symlink_to(path.parent.with_name("real"))


def _belongs_to_another(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can change an owner")
    os.chown(path, OTHER, OTHER)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (_others_can_read, "others can use"),
        (_is_empty, "holds no secret: remove it"),
        (_folder_is_open, "others can use"),
        (_folder_is_a_link, "is not a folder"),
        (_belongs_to_another, f"belongs to user {OTHER}"),
    ],
)
async def test_secret_that_others_may_have_made_or_read_is_not_used(spoil: Any, text: str) -> None:
    assert own_secret() is not None
    spoil(secret_path())

    with pytest.raises(BadConfig, match=text):
        async with controller():
            pytest.fail("it listens")
    with pytest.raises(BadConfig, match=text):
        async with kactl.Participant(1, network=TcpNetwork(controllers=["127.0.0.1:7373"])):
            pytest.fail("it has started")


async def test_secret_that_cannot_be_used_any_more_leaves_the_earlier_one(caplog: pytest.LogCaptureFixture) -> None:
    async with controller() as network, raw_client(network.address) as client:
        secret = own_secret()
        assert secret is not None
        secret_path().chmod(0o644)

        reloading.request()
        await until(lambda: "the earlier one stays in use" in caplog.text)

        await client.greet(hello_of(), secret.reveal())


async def test_network_of_a_user_without_a_place_for_files_is_insecure_and_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", NOWHERE)
    with caplog.at_level(logging.WARNING):
        async with controller() as network, network_to(network).participant_side(ContractPort(1)) as link:
            await opened(link)
            assert "asks for no secret" in network.insecure

    assert "the network is insecure: " in caplog.text
    assert "give secret= (secret-file of [network])" in caplog.text


async def test_network_with_a_secret_is_secure() -> None:
    async with controller() as own, controller(secret=SECRET) as given:
        assert (own.insecure, given.insecure) == ("", "")
