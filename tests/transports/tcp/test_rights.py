"""Rights of participants: each type of request has an entry, and each entry is enforced."""

from collections.abc import Callable
from typing import Any

import pytest

import kactl
from kactl.decide.messages import admin, broker, leases
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.leases import LeaderEpochs
from kactl.decide.messages.routes import LeaderColumns
from kactl.model import NO_EPOCH
from kactl.model.errors import NotAuthorized
from kactl.testing.contracts.link_support import until
from kactl.transports.tcp import wire
from kactl.transports.tcp.rights import RIGHTS, Right, check_request
from kactl.transports.tcp.wire.requests import every_request

# The requests in which a participant speaks for itself.
OWN: dict[type[ControllerRequest], dict[str, Any]] = {
    broker.ControlledShutdown: {},
    broker.AlterPartitionReceived: {"proposals": ()},
    broker.AllocateProducerIds: {},
    broker.ReportPartitions: {"reports": ()},
    broker.ReportLeaders: {"leaders": LeaderColumns((), b"", b"", b"", b"")},
    leases.ReportLeaderships: {"number": 1, "ended": LeaderEpochs(), "waiting": LeaderEpochs()},
}


def begun(request: ControllerRequest) -> wire.Begin:
    return wire.begin_of(wire.encode(request))


def test_every_request_has_an_entry() -> None:
    assert set(RIGHTS) == set(every_request())


@pytest.mark.parametrize("request_", OWN, ids=lambda request: request.__name__)
def test_participant_speaks_for_its_own_registration(request_: type[ControllerRequest]) -> None:
    make: Any = request_
    assert RIGHTS[request_] is Right.OWN

    check_request(begun(make(broker=1, broker_epoch=7, **OWN[request_])), 1)

    with pytest.raises(NotAuthorized, match="for broker 2"):
        check_request(begun(make(broker=2, broker_epoch=7, **OWN[request_])), 1)
    with pytest.raises(NotAuthorized, match="without its broker epoch"):
        check_request(begun(make(broker=1, broker_epoch=NO_EPOCH, **OWN[request_])), 1)


def test_requests_of_administrators_are_rejected() -> None:
    """Only `ensure_topic` is for every participant."""
    assert {request for request, right in RIGHTS.items() if right is Right.ANY} == {admin.EnsureTopic}
    assert {request for request, right in RIGHTS.items() if right is Right.OWN} == set(OWN)
    for request in (admin.ResignController(), admin.UndrainBroker(1), admin.DeleteTopic("orders")):
        with pytest.raises(NotAuthorized, match="admin API"):
            check_request(begun(request), 1)


@pytest.mark.anyio
@pytest.mark.parametrize("sessions", ["store", "controller"])
async def test_planned_moves_are_released_over_tcp(sessions: str) -> None:
    """Everything that participants send in a life: they ensure a topic, lead, give up, report, and shut down."""
    network = kactl.TcpNetwork(listen="127.0.0.1:0")
    begun: list[tuple[int, str]] = []

    def recorded(broker: int) -> Callable[[kactl.TopicPartition], kactl.PartitionHandler]:
        class Recorded(kactl.PartitionHandler):
            async def lead(self, leader: kactl.Leader) -> None:
                leader.check()
                begun.append((broker, str(self.partition)))

        return Recorded

    async with kactl.Controller(100, network=network) as controller:
        await controller.wait_active()
        options: dict[str, Any] = {"network": network}
        if sessions == "store":
            options["store"] = controller.store
        async with (
            kactl.Participant(1, handler=recorded(1), **options) as one,
            kactl.Participant(2, handler=recorded(2), **options) as two,
        ):
            assert await one.ensure_topic("orders", assignment={0: [1, 2], 1: [2, 1]})
            assert not await two.ensure_topic("orders", partitions=2)
            await until(lambda: set(begun) == {(1, "orders-0"), (2, "orders-1")})

            await controller.drain(1)
            await until(lambda: (2, "orders-0") in begun)
            assert one.leadership("orders-0") is None
            await controller.restore(1)
            view = controller.partition("orders-0")
            assert view is not None
            assert view.leader == 2
            await until(lambda: 1 in (controller.partition("orders-0") or view).isr)

            begun.clear()
            await controller.elect("preferred")
            await until(lambda: (1, "orders-0") in begun)
            assert two.leadership("orders-0") is None
