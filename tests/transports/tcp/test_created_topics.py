"""Topics that participants create: who may create which, at what rate, and how many partitions the cluster has."""

from typing import Any

import pytest

import kactl
from kactl.model.errors import BadConfig, InvalidPartitions, NotAuthorized
from kactl.runtime.budget import Rate, Unit

pytestmark = pytest.mark.anyio


async def test_participant_creates_only_topics_of_the_patterns_that_name_it() -> None:
    network = kactl.TcpNetwork(listen="127.0.0.1:0", ensure_topics={"orders-*": [1], "all": [1, 2]})
    options: dict[str, Any] = {"network": network}
    async with (
        kactl.Controller(100, network=network) as controller,
        kactl.Participant(1, **options) as one,
        kactl.Participant(2, **options) as two,
    ):
        assert await one.ensure_topic("orders-eu", replication_factor=1)
        assert await two.ensure_topic("all", replication_factor=1)
        with pytest.raises(NotAuthorized, match=r"participant 2 must not create topic orders-us: .*ensure-topics"):
            await two.ensure_topic("orders-us", replication_factor=1)

        assert [topic.name for topic in controller.topics()] == ["all", "orders-eu"]


async def test_participant_with_a_name_creates_only_topics_of_the_patterns_that_name_it() -> None:
    allowed: dict[str, list[int | str]] = {"orders-*": [1, "worker-?"], "all": ["*"]}
    network = kactl.TcpNetwork(listen="127.0.0.1:0", ensure_topics=allowed)
    async with (
        kactl.Controller(100, network=network) as controller,
        kactl.Participant(name="worker-a", network=network) as worker,
        kactl.Participant(name="reader", network=network) as reader,
        kactl.Participant(network=network) as unnamed,
    ):
        assert await worker.ensure_topic("orders-eu", replication_factor=1)
        assert await unnamed.ensure_topic("all", replication_factor=1)
        with pytest.raises(NotAuthorized, match=r"participant reader must not create topic orders-us: .*ensure-topics"):
            await reader.ensure_topic("orders-us", replication_factor=1)
        with pytest.raises(NotAuthorized, match=rf"participant {unnamed.id} must not create topic orders-us"):
            await unnamed.ensure_topic("orders-us", replication_factor=1)

        assert [topic.name for topic in controller.topics()] == ["all", "orders-eu"]


@pytest.mark.parametrize(
    ("participants", "reason"),
    [("worker-a", "is one text"), (["7"], "is an id in quotes"), ([""], "is neither"), ([True], "is neither")],
)
def test_entry_that_is_no_participant_is_refused(participants: Any, reason: str) -> None:
    with pytest.raises(BadConfig, match=reason):
        kactl.TcpNetwork(listen="127.0.0.1:0", ensure_topics={"orders-*": participants})


async def test_creations_of_a_participant_are_charged_and_topics_that_exist_are_not() -> None:
    network = kactl.TcpNetwork(listen="127.0.0.1:0")
    async with (
        kactl.Controller(100, network=network) as controller,
        kactl.Participant(1, network=network) as one,
    ):
        controller.budget.limit(Unit.PARTITIONS, Rate(0.001, 10))
        await one.ensure_topic("orders", partitions=20, replication_factor=1)
        overdraft_s = controller.budget.overdraft_s("participant:1", Unit.PARTITIONS)

        assert overdraft_s > 9_000
        with pytest.raises(kactl.KactlError):
            await one.ensure_topic("more", partitions=1, replication_factor=1, timeout_ms=300)
        assert [topic.name for topic in controller.topics()] == ["orders"]


async def test_cluster_has_a_limit_of_partitions() -> None:
    network = kactl.TcpNetwork(listen="127.0.0.1:0")
    async with (
        kactl.Controller(100, network=network, partitions_max=10) as controller,
        kactl.Participant(1, network=network) as one,
    ):
        await one.ensure_topic("orders", partitions=8, replication_factor=1)

        with pytest.raises(InvalidPartitions, match=r"has 8, and at most 10 are created: .*partitions-max"):
            await one.ensure_topic("more", partitions=3, replication_factor=1)
        with pytest.raises(InvalidPartitions, match="at most 10"):
            await controller.grow_topic("orders", 11)
        await controller.grow_topic("orders", 10)
