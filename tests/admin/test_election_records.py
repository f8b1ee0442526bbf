"""Records of elections over the admin API: the list, one of them, and the event stream."""

import msgspec
import pytest

from kactl.admin.event_stream import LIVE_MS
from kactl.admin.schema import ElectionEvent, ElectionList, Problem
from kactl.decide.messages.log import RequestEvent
from kactl.model.errors import ActionTimedOut, BrokerUnreachable
from tests.admin.conftest import Served
from tests.admin.test_event_stream import open_stream
from tests.support.clocks import settle

pytestmark = pytest.mark.anyio


async def newest(server: Served, query: str = "") -> tuple[ElectionEvent, ...]:
    answered: ElectionList = (await server.get(f"/v1/elections/recent{query}")).read(ElectionList)
    return answered.items


async def test_recent_elections_are_listed_newest_first(server: Served) -> None:
    await server.controller.create_topic("t", partitions=2, replication_factor=1)
    await settle()

    listed = await newest(server)

    assert [record.because.event for record in listed] == sorted(
        (record.because.event for record in listed), reverse=True
    )
    assert (listed[0].moved, listed[0].because.strategy, listed[0].complete) == (2, "first", True)
    assert await newest(server, "?limit=1") == listed[:1]


async def test_election_is_read_by_its_event_id(server: Served) -> None:
    record = (await newest(server))[0]

    found = await server.get(f"/v1/elections/{record.because.event}")

    assert found.read(ElectionEvent) == record


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/v1/elections/17", 404, "17"),
        ("/v1/elections/x", 400, "event"),
        ("/v1/elections/0", 400, "event"),
        ("/v1/elections/recent?limit=0", 400, "limit"),
        ("/v1/elections/recent?limit=many", 400, "limit"),
        ("/v1/elections/recent?since=1", 400, "since"),
    ],
)
async def test_invalid_request_is_rejected_by_name(server: Served, path: str, status: int, word: str) -> None:
    answered = await server.get(path)

    problem = msgspec.json.decode(answered.body, type=Problem)
    assert (answered.status, problem.status) == (status, status)
    assert word in problem.detail


async def test_time_without_a_leader_is_a_histogram_of_the_metrics(server: Served) -> None:
    count = 'kactl_partition_unavailable_duration_seconds_count{kactl_election_planned="%s"}'
    led = sum(view.leader == 1 for view in server.controller.partitions_of("orders"))
    assert led

    await server.post("/v1/brokers/1/drain")
    await settle()

    lines = (await server.get("/metrics")).body.decode().splitlines()
    assert f"{count % 'true'} {float(led)}" in lines
    assert not any(line.startswith(count % "false") for line in lines)
    assert "kactl_partition_unavailable_oldest_seconds 0.0" in lines
    assert any(line.startswith("kactl_election_duration_seconds_count{election_type=") for line in lines)


async def test_election_in_progress_is_streamed_until_it_is_complete(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = server.controller
    connection = controller.channels[2]._connection
    deliver = connection.deliver
    silent = True

    async def delivered(request: object) -> object:
        if silent:
            raise BrokerUnreachable(2, "it is silent")
        return await deliver(request)  # type: ignore[arg-type]

    monkeypatch.setattr(connection, "deliver", delivered)
    async with open_stream(server, "?kinds=election") as blocks:
        await blocks.next()
        with pytest.raises(ActionTimedOut):
            await controller.create_topic("t", assignment={0: (1, 2, 3)}, timeout_ms=1)
        block = await blocks.next()
        live = msgspec.json.decode(block["data"], type=ElectionEvent)
        assert (block["event"], "id" in block, live.seq, live.complete) == ("election", False, 0, False)
        assert live.moved == 1

        silent = False
        await server.clock.advance(LIVE_MS)

        while not live.complete:
            block = await blocks.next()
            live = msgspec.json.decode(block["data"], type=ElectionEvent)
        assert block["id"] == str(live.seq)
        assert all(broker.acked_us is not None for broker in live.brokers)
        assert (await newest(server))[0] == live


async def test_election_is_not_streamed_again_without_progress(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def delivered(request: object) -> object:
        raise BrokerUnreachable(2, "it is silent")

    monkeypatch.setattr(server.controller.channels[2]._connection, "deliver", delivered)
    history, marker = server.controller.history, RequestEvent(action="mark", target="", outcome="done")
    async with open_stream(server, "?kinds=election,request") as blocks:
        await blocks.next()
        with pytest.raises(ActionTimedOut):
            await server.controller.create_topic("t", assignment={0: (1, 2, 3)}, timeout_ms=1)
        await server.clock.advance(LIVE_MS)
        history.add(marker)
        before = [await blocks.next()]
        while before[-1]["event"] != "request":
            before.append(await blocks.next())
        assert before[0]["event"] == "election"

        for _ in range(5):
            await server.clock.advance(LIVE_MS)
        history.add(marker)

        assert (await blocks.next())["event"] == "request"
