"""Handlers of participants over the admin API and on the command line: their failures, and the reset."""

import os
import sys
from collections.abc import AsyncIterator

import anyio
import pytest

import kactl
from kactl.admin.schema import HandlerStatus, PartitionExplanation, PartitionInfo, ReplicaResetInfo
from tests.support.clocks import settle

from .conftest import Served, served

pytestmark = pytest.mark.anyio

RESET = "/v1/topics/orders/partitions/0/replicas/1/reset"


class Scheduler(kactl.PartitionHandler):
    """Fails for as long as `fails` is set."""

    fails = True

    async def prepare(self, leader: kactl.Leader) -> None:
        if Scheduler.fails:
            raise OSError("no license\x1b[2J")


@pytest.fixture
async def failed() -> AsyncIterator[Served]:
    """Server with one participant, whose handler of orders-0 has failed three times in a row."""
    async with served(brokers=None) as opened:
        controller, clock = opened.controller, opened.clock
        Scheduler.fails = True
        async with kactl.Participant(1, store=controller.store, hub=controller.hub, clock=clock, handler=Scheduler):
            await settle()
            await controller.create_topic("orders", assignment={0: [1]}, timeout_ms=0)
            await settle()
            await clock.advance(2_600)
            yield opened


async def test_failure_is_shown_and_reset(failed: Served) -> None:
    info = (await failed.get("/v1/topics/orders/partitions/0")).read(PartitionInfo)
    explained = (await failed.get("/v1/topics/orders/partitions/0/explanation")).read(PartitionExplanation)
    Scheduler.fails = False
    done = await failed.post(RESET, {"reason": "the license is there"})
    await settle()
    after = (await failed.get("/v1/topics/orders/partitions/0")).read(PartitionInfo)

    assert (info.leader, after.leader) == (-1, 1)
    assert isinstance(info.replica_status[1], HandlerStatus)
    assert (info.replica_status[1].status, after.replica_status) == ("failed", {})
    assert info.replica_status[1].failures == 3
    assert 0 < (info.replica_status[1].next_ms or 0) <= 1_250
    # An exception of the application is shown as text, with any characters.
    assert info.replica_status[1].detail == "prepare: no license\\u001b[2J"
    assert explained.remedies[-1].endswith("kactl replica reset orders-0 --broker 1")
    assert done.read(ReplicaResetInfo).failure.status == "failed"
    events = (await failed.get("/v1/events?kinds=handler,request")).json()["items"]
    assert [event["status"] for event in events if event["kind"] == "handler"][-1] == "ready"
    (request,) = [event for event in events if event["kind"] == "request"]
    assert (request["action"], request["target"]) == ("reset replica", "orders-0 on 1")
    assert request["reason"] == "the license is there"


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v1/topics/orders/partitions/1/replicas/1/reset", 404, "no partition orders-1"),
        ("/v1/topics/orders/partitions/0/replicas/2/reset", 404, "no replica of orders-0 on broker 2"),
        ("/v1/topics/nothing/partitions/0/replicas/2/reset", 404, "nothing"),
    ],
)
async def test_replica_that_does_not_exist_is_not_reset(failed: Served, path: str, status: int, text: str) -> None:
    refused = await failed.post(path)

    assert refused.status == status
    assert text in (refused.json()["detail"])


async def test_replica_without_a_failure_is_not_reset(failed: Served) -> None:
    Scheduler.fails = False
    assert (await failed.post(RESET)).status == 200
    await settle()

    refused = await failed.post(RESET)

    assert refused.status == 409
    assert "its handler has not failed" in (refused.json()["detail"])


@pytest.mark.slow  # a process
async def test_command_resets_a_replica(failed: Served) -> None:
    Scheduler.fails = False
    environment = os.environ | {"KACTL_SERVER": failed.url}

    done = await anyio.run_process(
        [sys.executable, "-m", "kactl.cli", "replica", "reset", "orders-0", "--broker", "1"], env=environment
    )
    await settle()

    assert done.stderr.decode() == ("Reset orders-0 on broker 1, which was failed (prepare: no license\\u001b[2J).\n")
    assert failed.controller.partition("orders-0").leader == 1  # type: ignore[union-attr]
