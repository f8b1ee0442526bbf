"""Bugs of a controller while it handles a request: participants keep their registrations and leases, and repeat it."""

import re

import anyio
import pytest

import kactl
from kactl.actors.handlers.partition_reports import PartitionReports
from kactl.actors.remote_sessions import RemoteSessions
from kactl.actors.spectators import Spectators
from kactl.model import TopicPartition
from kactl.testing.contracts.link_support import until
from kactl.transports.base import Network
from tests.actors.failing_steps import fail_once

pytestmark = pytest.mark.anyio

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


@pytest.fixture(params=["memory", "tcp"])
def network(request: pytest.FixtureRequest) -> Network:
    return kactl.MemoryHub() if request.param == "memory" else kactl.TcpNetwork(listen="127.0.0.1:0")


class Handler(kactl.PartitionHandler):
    """Fails to lead t-0 on broker 1."""

    def __init__(self, broker: int, name: TopicPartition) -> None:
        self._fails = (broker, name) == (1, T0)

    async def prepare(self, leader: kactl.Leader) -> None:
        if self._fails:
            raise OSError("disk full")


def participant(broker: int, network: Network) -> kactl.Participant:
    return kactl.Participant(
        broker,
        network=network,
        handler=lambda name: Handler(broker, name),
        session_timeout_ms=6_000,
        shutdown_attempts=0,
    )


def logged_ids(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns the ids of the errors that a controller has logged."""
    return re.findall(r"\[error ([0-9a-f]+)\]: a bug", caplog.text)


async def test_report_is_repeated(
    network: Network, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    left = fail_once(monkeypatch, PartitionReports, "on_report_partitions")
    with anyio.fail_after(60):
        async with (
            kactl.Controller(100, network=network) as controller,
            participant(1, network) as one,
            participant(2, network) as two,
        ):
            epoch = await one.wait_linked()
            await two.wait_linked()
            await controller.create_topic("u", assignment={0: [1, 2]})
            await until(lambda: one.leadership(U0) is not None)
            leader = one.leadership(U0)
            assert leader is not None

            await controller.create_topic("t", assignment={0: [1, 2]}, timeout_ms=0)
            await until(lambda: not left)
            await until(lambda: 1 in controller.replica_status(T0))

            assert one.epoch == epoch
            leader.check()
    (error_id,) = logged_ids(caplog)
    assert f"and retries: internal error in the controller: its log has the details under {error_id}" in caplog.text
    assert "has failed, and registers again" not in caplog.text


async def test_session_goes_on(
    network: Network, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The errors end its registration, its first heartbeat after that, and its goodbye."""
    with anyio.fail_after(60):
        async with kactl.Controller(100, network=network) as controller:
            await controller.wait_active()
            left = fail_once(monkeypatch, RemoteSessions, "_carry_out")
            async with participant(2, network) as two:
                epoch = await two.wait_linked()
                assert not left
                await controller.create_topic("u", assignment={0: [2]})
                await until(lambda: two.leadership(U0) is not None)
                leader = two.leadership(U0)
                assert leader is not None
                left = fail_once(monkeypatch, RemoteSessions, "answer")

                await until(lambda: not left)
                ends_ms = leader.remaining_ms()
                await until(lambda: leader.remaining_ms() > ends_ms)

                leader.check()
                assert two.epoch == epoch
                left = fail_once(monkeypatch, RemoteSessions, "_goodbye")
            assert not left
    assert len(logged_ids(caplog)) == 3


async def test_routes_are_requested_again(
    network: Network, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(60):
        async with (
            kactl.Controller(100, network=network) as controller,
            participant(2, network) as two,
            kactl.Spectator(network=network) as spectator,
        ):
            await two.wait_linked()
            left = fail_once(monkeypatch, Spectators, "watch")

            await controller.create_topic("u", assignment={0: [2]})
            await until(lambda: not left)

            await until(lambda: spectator.leader("u", 0) is not None)
    assert len(logged_ids(caplog)) == 1
