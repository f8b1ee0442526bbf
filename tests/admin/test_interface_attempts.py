"""Attempts over other interfaces of a controller in the audit trail of the admin API."""

import pytest

import kactl
from kactl import admin
from kactl.admin.audit_trail import AuditTrail
from kactl.admin.interface_attempts import add_attempt
from kactl.security.access import Principal, stranger
from kactl.telemetry.attempts import Attempt, Recorded
from tests.admin.test_mounted import host_with, opened, running

pytestmark = pytest.mark.anyio
SECRET = b"sixteen bytes or more"


async def test_trail_has_the_network_also_of_earlier_attempts_and_of_a_later_controller() -> None:
    """A program mounts the API before its controllers run, one after the other."""
    current: list[kactl.Controller] = []
    mounted = admin.application(lambda: current[-1] if current else None, access=admin.Open(), prefix="/kactl")
    found: list[tuple[int, str, str]] = []
    async with running(host_with(mounted)) as client:
        for node_id in (100, 101):
            network = kactl.TcpNetwork(listen="127.0.0.1:0", secret=SECRET)
            async with kactl.Controller(node_id, network=network) as controller:
                await controller.wait_active()
                async with kactl.Participant(
                    1, network=kactl.TcpNetwork(secret=SECRET), controllers=[str(network.address)]
                ) as one:
                    await one.ensure_topic("orders", partitions=1, replication_factor=1)
                    current.append(controller)
                    await client.ask("GET", "/kactl/v1/controller")
                records = (await client.ask("GET", "/kactl/v1/audit?limit=1000")).json()["items"]
                found = [(each["node_id"], each["principal"], each["operation"]) for each in records]
                current.clear()

    assert found == [
        (node_id, "participant:1", operation)
        for node_id in (100, 101)
        for operation in ("network Register", "network EnsureTopic", "network Goodbye")
    ]


async def test_application_that_ended_takes_no_attempts() -> None:
    async with kactl.Controller(100) as controller:
        async with running(host_with(opened(controller))) as client:
            await client.ask("GET", "/kactl/v1/controller")
        attempt = Attempt(stranger("192.0.2.1"), "network Handshake", "denied")
        controller.attempted(attempt)

        found: list[Recorded] = []
        controller.attempts.attach(found.append)

    assert [each.attempt for each in found] == [attempt]


def test_denials_of_one_kind_are_counted_and_texts_of_peers_are_escaped() -> None:
    trail = AuditTrail(lambda: 0.0)
    one = Principal("1", "participant", peer="192.0.2.1", method="secret")
    for _ in range(3):
        denied = Attempt(one, "network Register", "denied", "broker 2", "a\nb")
        add_attempt(trail, Recorded(denied, 5, 7), node_id=100)
    done = Attempt(one, "network EnsureTopic", "done", "a\nb")
    add_attempt(trail, Recorded(done, 6, 7), node_id=100)

    first, last = trail.read(0, 10)

    assert (first.principal, first.kind, first.method, first.peer) == (
        "participant:1",
        "participant",
        "secret",
        "192.0.2.1",
    )
    assert (first.result, first.detail, first.action, first.time_ms) == ("denied", "a\\u000ab", "", 5)
    assert (last.result, last.target, last.action, last.controller_epoch) == (
        "done",
        "a\\u000ab",
        "network EnsureTopic",
        7,
    )
