"""Partitions as of an earlier time: parameters, filters, and times that the log does not cover."""

import dataclasses

import msgspec
import pytest

from kactl.admin.past import read_time
from kactl.admin.schema import PartitionPage, Problem
from kactl.decide.state.cluster import Cluster
from kactl.telemetry.past_states import NotCovered, Period
from tests.admin.conftest import Served, served
from tests.support.clocks import settle

pytestmark = pytest.mark.anyio

COVERED = (Period(1_600_000_000_000, 1_600_000_100_000), Period(1_650_000_000_000, 1_700_000_000_000))


@dataclasses.dataclass
class Past:
    """Earlier states: those of a running cluster at any time from the second period on."""

    cluster: Cluster = dataclasses.field(default_factory=lambda: Cluster(0))
    asked: list[int] = dataclasses.field(default_factory=list)

    async def at(self, time_ms: int) -> Cluster | NotCovered:
        self.asked.append(time_ms)
        if time_ms < COVERED[1].begin_ms:
            return NotCovered("the log has no state of that time", COVERED)
        return self.cluster


async def refusal(server: Served, query: str) -> Problem:
    answered = await server.get(f"/v1/partitions?{query}")
    problem = msgspec.json.decode(answered.body, type=Problem)
    assert answered.status == problem.status == 400
    return problem


async def test_page_of_an_earlier_time_is_filtered_and_continued() -> None:
    past = Past()
    async with served(past=past) as server:
        await server.controller.create_topic("orders", partitions=4, replication_factor=3)
        await server.controller.create_topic("bills", partitions=2, replication_factor=1)
        await settle()
        past.cluster = server.controller.cluster

        first = (await server.get("/v1/partitions?at=1650000000000&topic=orders&limit=3")).read(PartitionPage)
        path = f"/v1/partitions?at=1650000000000&topic=orders&limit=3&cursor={first.next_cursor}"
        second = (await server.get(path)).read(PartitionPage)

        assert [item.partition for item in (*first.items, *second.items)] == [0, 1, 2, 3]
        assert (first.matched, first.at_ms) == (4, 1_650_000_000_000)
        assert first.items[0].isr
        assert first.items[0].replica_states == {}
        assert first.items[0].min_insync_replicas is None
        present = (await server.get("/v1/partitions?topic=orders")).read(PartitionPage)
        assert present.at_ms is None
        assert present.items[0].replica_states


async def test_time_that_is_not_covered_is_rejected_with_the_covered_periods() -> None:
    async with served(past=Past()) as server:
        problem = await refusal(server, "at=2020-09-13T12:20:00Z")

        assert problem.detail == (
            "at: 2020-09-13T12:20:00.000Z: the log has no state of that time; it covers "
            "2020-09-13T12:26:40.000Z to 2020-09-13T12:28:20.000Z, 2022-04-15T05:20:00.000Z to 2023-11-14T22:13:20.000Z"
        )
        assert problem.errors is not None
        assert [error.parameter for error in problem.errors] == ["at"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("at=yesterday", "at: 'yesterday' is not a time"),
        ("at=2023-01-01T00:00:00", "is not a time: write it as"),
        ("at=", "is not a time"),
        ("at=2999-01-01T00:00:00Z", "is in the future"),
        ("at=999999999999999", "is in the future"),
        ("at=1650000000000&under_min_isr=true", "under_min_isr: cannot be combined with at"),
        ("at=1650000000000&at_min_isr=false", "at_min_isr: cannot be combined with at"),
    ],
)
async def test_invalid_time_is_rejected_by_name(query: str, reason: str) -> None:
    past = Past()
    async with served(past=past) as server:
        assert reason in (await refusal(server, query)).detail
        assert past.asked == []


async def test_server_without_a_log_says_so(server: Served) -> None:
    assert "keeps no state-change log" in (await refusal(server, "at=1650000000000")).detail


@pytest.mark.parametrize("text", ["2022-04-15T05:20:00Z", "2022-04-15T07:20:00+02:00", "1650000000000"])
def test_time_is_read_in_each_form(text: str) -> None:
    assert read_time(text) == 1_650_000_000_000
