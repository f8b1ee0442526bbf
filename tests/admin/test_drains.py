"""Drains over the API: who, why, since and until when; what cannot be drained."""

import pytest

from kactl.admin.schema import BrokerDrained, BrokerInfo, ClusterInfo, EventPage, RequestEvent
from tests.admin.conftest import Served

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000


async def _info(server: Served, broker: int) -> BrokerInfo:
    info: BrokerInfo = (await server.get(f"/v1/brokers/{broker}")).read(BrokerInfo)
    return info


async def test_drain_is_shown_with_its_user_reason_and_limit(server: Served) -> None:
    until_ms = server.controller.clock.now_ms() + DAY_MS
    body = {"reason": "a new disk", "until_ms": until_ms, "until_restart": True}

    drained = (await server.post("/v1/brokers/1/drain", body)).read(BrokerDrained)

    info = await _info(server, 1)
    assert info.state == "drained"
    assert info.drain is not None
    assert info.drain == drained.drain
    assert (info.drain.by, info.drain.reason) == ("token:local", "a new disk")
    assert (info.drain.until_ms, info.drain.until_restart) == (until_ms, True)
    checks = {check.name: check for check in (await server.get("/v1/cluster")).read(ClusterInfo).checks}
    assert checks["drained-brokers"].result == "warn"
    assert "broker 1 is drained by token:local, since " in checks["drained-brokers"].detail
    assert checks["drained-brokers"].detail.endswith("a new disk")
    (request,) = (await server.get("/v1/events?after=0&kinds=request")).read(EventPage).items
    assert isinstance(request, RequestEvent)
    assert request.reason == "a new disk"
    assert "a new disk" not in request.detail
    assert "until it registers anew" in request.detail


async def test_undo_of_what_is_not_drained_says_so(server: Served) -> None:
    undone = (await server.post("/v1/brokers/1/drain", {"undo": True})).read(BrokerDrained)

    assert (undone.changed, undone.drain) == (False, None)


async def test_dry_run_stores_no_drain(server: Served) -> None:
    await server.post("/v1/brokers/1/drain", {"dry_run": True, "until_restart": True})

    assert (await _info(server, 1)).drain is None


@pytest.mark.parametrize(
    "body",
    [
        {"until_ms": 1},
        {"until_ms": 0},
        {"until_ms": -1},
        {"until_ms": 2**62},
        {"until_ms": "tomorrow"},
        {"until_ms": 1.5},
        {"until_restart": "yes"},
        {"undo": True, "until_restart": True},
        {"undo": True, "until_ms": 253_402_300_799_999},
        {"reason": "two\nlines"},
    ],
)
async def test_invalid_drain_changes_nothing(server: Served, body: dict[str, object]) -> None:
    answer = await server.post("/v1/brokers/1/drain", body)

    assert answer.status in (400, 422), answer.body
    assert (await _info(server, 1)).drain is None


async def test_explanation_of_a_partition_names_the_drain(server: Served) -> None:
    await server.controller.create_topic("alone", assignment={0: [1]})
    await server.post("/v1/brokers/1/drain", {"reason": "a new disk"})

    answer = await server.get("/v1/topics/alone/partitions/0/explanation")

    assert "its broker is drained (by token:local, since " in answer.body.decode()


async def test_new_topics_and_plans_use_no_drained_broker(server: Served) -> None:
    await server.post("/v1/brokers/1/drain", {})

    await server.controller.create_topic("placed", partitions=6, replication_factor=2)

    table = server.controller.cluster.table
    replicas = {
        broker for view in map(table.view, table.all().tolist()) if view.topic == "placed" for broker in view.replicas
    }
    assert replicas == {2, 3}
