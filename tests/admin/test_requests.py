"""Requests for topics, elections and participants, and their rejections. A rejected request changes nothing."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kactl.admin.route import BODY_BYTES_MAX
from kactl.admin.schema import ElectionAnswer, TopicCreated
from kactl.admin.server import serve
from kactl.config.file import load
from kactl.model.errors import BadConfig
from kactl.participant import Life
from tests.admin.conftest import JSON, Answered, Served, served, with_orders
from tests.support.clocks import settle

pytestmark = pytest.mark.anyio


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_topic_is_created_with_leaders(server: Served) -> None:
    answer = await server.post("/v1/topics", {"name": "new.one", "partitions": 2, "replication_factor": 2})

    assert answer.status == 201
    created = answer.read(TopicCreated)
    assert (created.name, created.dry_run) == ("new.one", False)
    assert answer.headers["Location"] == "/v1/topics/new.one"
    assert (await server.get(answer.headers["Location"])).json()["topic"]["id"] == created.id
    assert all(view.leader > 0 for view in server.controller.partitions_of("new.one"))


async def test_topic_is_created_with_an_assignment_and_overrides(server: Served) -> None:
    body = {"name": "by-hand", "assignment": [[3, 1], [1, 2]], "config": {"retention.ms": "5"}}

    assert (await server.post("/v1/topics", body)).status == 201

    assert [view.replicas for view in server.controller.partitions_of("by-hand")] == [(3, 1), (1, 2)]
    assert (await server.get("/v1/topics/by-hand")).json()["config"] == {"retention.ms": "5"}


async def test_dry_run_creates_no_topic(server: Served) -> None:
    before = await server.state()

    answer = await server.post("/v1/topics", {"name": "new", "dry_run": True})

    assert answer.status == 200
    assert answer.read(TopicCreated) == TopicCreated(name="new", id=None, dry_run=True)
    assert await server.state() == before


async def test_creation_timeout_states_that_the_topic_exists(server: Served) -> None:
    assert server.participants is not None
    server.participants.pause(3)  # its session has not ended yet

    answer = await server.post("/v1/topics", {"name": "slow", "assignment": [[1, 2]], "timeout_ms": 500})

    assert answer.status == 504
    assert "broker 3 has not acknowledged the metadata" in answer.json()["detail"]
    assert answer.json()["error_name"] == "REQUEST_TIMED_OUT"
    assert not answer.json()["retriable"]
    assert "slow" in await server.controller.store.topics()


REFUSED_TOPICS: dict[str, tuple[Any, int, str, str | None]] = {
    "exists": ({"name": "orders"}, 409, "TOPIC_ALREADY_EXISTS", None),
    "no name": ({}, 400, "INVALID_REQUEST", "/name"),
    "an empty name": ({"name": ""}, 400, "INVALID_TOPIC_EXCEPTION", "/name"),
    "a bad name": ({"name": "a b"}, 400, "INVALID_TOPIC_EXCEPTION", "/name"),
    "too long a name": ({"name": "a" * 250}, 400, "INVALID_TOPIC_EXCEPTION", "/name"),
    "a number for a name": ({"name": 1}, 400, "INVALID_REQUEST", "/name"),
    "no partitions": ({"name": "x", "partitions": 0}, 400, "INVALID_PARTITIONS", "/partitions"),
    "too many": ({"name": "x", "partitions": 10**30}, 400, "INVALID_PARTITIONS", "/partitions"),
    "no replicas": ({"name": "x", "replication_factor": 0}, 400, "INVALID_REPLICATION_FACTOR", "/replication_factor"),
    "too many replicas": (
        {"name": "x", "replication_factor": 4},
        400,
        "INVALID_REPLICATION_FACTOR",
        "/replication_factor",
    ),
    "both": ({"name": "x", "partitions": 1, "assignment": [[1]]}, 400, "INVALID_REPLICA_ASSIGNMENT", "/assignment"),
    "an unknown broker": ({"name": "x", "assignment": [[1], [9]]}, 400, "INVALID_REPLICA_ASSIGNMENT", "/assignment/1"),
    "twice": ({"name": "x", "assignment": [[1, 1]]}, 400, "INVALID_REPLICA_ASSIGNMENT", "/assignment/0"),
    "no assignment": ({"name": "x", "assignment": []}, 400, "INVALID_REPLICA_ASSIGNMENT", "/assignment"),
    "a text in it": ({"name": "x", "assignment": [[1], ["2"]]}, 400, "INVALID_REQUEST", "/assignment/1/0"),
    "an unknown field": ({"name": "x", "partition": 3}, 400, "INVALID_REQUEST", "/partition"),
    "an override that is no text": ({"name": "x", "config": {"a": 1}}, 400, "INVALID_REQUEST", "/config"),
    "an override that brokers would fail over": (
        {"name": "x", "config": {"min.insync.replicas": "0"}},
        400,
        "INVALID_CONFIG",
        "/config",
    ),
    "an override without a name": ({"name": "x", "config": {"": "1"}}, 400, "INVALID_REQUEST", "/config"),
    "a negative timeout": ({"name": "x", "timeout_ms": -1}, 400, "INVALID_REQUEST", "/timeout_ms"),
    "too long a reason": ({"name": "x", "reason": "x" * 1001}, 400, "INVALID_REQUEST", "/reason"),
    "a list": ([], 400, "INVALID_REQUEST", ""),
    "nothing": ("null", 400, "INVALID_REQUEST", ""),
}


@pytest.mark.parametrize(("body", "status", "name", "pointer"), REFUSED_TOPICS.values(), ids=REFUSED_TOPICS.keys())
async def test_invalid_topic_is_rejected_by_field(
    shared: Served, body: Any, status: int, name: str, pointer: str | None
) -> None:
    before = await shared.state()

    answer = await shared.post("/v1/topics", body)

    assert answer.status == status, answer.body
    problem = answer.json()
    assert problem["status"] == status
    assert problem["error_name"] == name
    assert [error["pointer"] for error in problem["errors"]] == ([] if pointer is None else [pointer])
    assert await shared.state() == before


# -- elections ---------------------------------------------------------------------------------------------------------


async def with_leaders_moved(server: Served) -> None:
    """Broker 1 has failed and returned: it leads no partition and is in sync."""
    assert server.participants is not None
    await server.participants[1].stop()
    await settle()
    await server.participants[1].start()
    await server.clock.advance(5_000)
    assert server.controller.snapshot().preferred_imbalance == 2


async def test_preferred_election_returns_leadership(server: Served) -> None:
    await with_leaders_moved(server)

    answer = (await server.post("/v1/elections", {"type": "preferred", "all": True})).read(ElectionAnswer)

    assert [(result.topic, result.partition, result.outcome, result.leader) for result in answer.results] == [
        ("orders", 0, "ok", 1),
        ("orders", 3, "ok", 1),
    ]
    assert all(result.previous != 1 and result.error_name == "NONE" for result in answer.results)
    assert server.controller.snapshot().preferred_imbalance == 0


async def test_dry_run_of_an_election_changes_nothing(server: Served) -> None:
    await with_leaders_moved(server)
    before = await server.state()

    body = {"type": "preferred", "all": True, "dry_run": True, "reason": "to see"}
    answer = (await server.post("/v1/elections", body)).read(ElectionAnswer)

    assert answer.dry_run
    assert [result.outcome for result in answer.results] == ["ok", "ok"]
    assert await server.state() == before


async def test_election_returns_a_result_for_every_partition(shared: Served) -> None:
    names = [("orders", 0), ("orders", 9), ("nix", 0)]
    body = {"type": "preferred", "partitions": [{"topic": topic, "partition": at} for topic, at in names]}

    answer = (await shared.post("/v1/elections", body)).read(ElectionAnswer)

    assert [(result.topic, result.partition) for result in answer.results] == names
    assert [result.outcome for result in answer.results] == ["not_needed", "failed", "failed"]
    assert [result.error_name for result in answer.results] == [
        "ELECTION_NOT_NEEDED",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]


async def test_dead_preferred_replica_is_reported(server: Served) -> None:
    assert server.participants is not None
    await server.participants[1].stop()
    await settle()

    body = {"type": "preferred", "all": True, "dry_run": True}
    answer = (await server.post("/v1/elections", body)).read(ElectionAnswer)

    assert {(result.outcome, result.message) for result in answer.results} == {
        ("failed", "its preferred replica is dead or not in sync")
    }
    assert all(result.leader == result.previous != 1 for result in answer.results)


@pytest.fixture(scope="module")
async def uneven() -> AsyncIterator[Served]:
    """Server with leaders that an election would move, of all tests that change nothing."""
    async with with_orders() as opened:
        await with_leaders_moved(opened)
        yield opened


REFUSED_ELECTIONS: dict[str, tuple[Any, str]] = {
    "no type": ({"all": True}, "/type"),
    "an unknown type": ({"type": "lucky", "all": True}, "/type"),
    "neither": ({"type": "preferred"}, "/partitions"),
    "both": ({"type": "preferred", "all": True, "partitions": [{"topic": "orders", "partition": 0}]}, "/partitions"),
    "none": ({"type": "preferred", "partitions": []}, "/partitions"),
    "a text": ({"type": "preferred", "partitions": ["orders-0"]}, "/partitions/0"),
    "no number": ({"type": "preferred", "partitions": [{"topic": "orders"}]}, "/partitions/0/partition"),
    "a negative number": (
        {"type": "preferred", "partitions": [{"topic": "a", "partition": -1}]},
        "/partitions/0/partition",
    ),
    "an unknown field": ({"type": "preferred", "all": True, "dryrun": True}, "/dryrun"),
    "a text for a switch": ({"type": "preferred", "all": "true"}, "/all"),
}


@pytest.mark.parametrize(("body", "pointer"), REFUSED_ELECTIONS.values(), ids=REFUSED_ELECTIONS.keys())
async def test_invalid_election_is_rejected_by_field(uneven: Served, body: Any, pointer: str) -> None:
    before = await uneven.state()

    answer = await uneven.post("/v1/elections", body)

    assert answer.status == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert await uneven.state() == before


# -- participants ------------------------------------------------------------------------------------------------------


async def test_participant_is_killed_and_restarted(server: Served) -> None:
    assert server.participants is not None
    before = server.participants[2].epoch

    killed = await server.post("/v1/brokers/2/kill", {"reason": "to see"})
    assert (killed.status, killed.json()) == (200, {"broker": 2, "action": "kill", "dry_run": False})
    assert server.participants[2].life is Life.ENDED
    assert (await server.post("/v1/brokers/2/kill", {"reason": "a"})).status == 200  # it has failed already
    await server.clock.advance(30_000)  # its registration expires

    restarted = await server.post("/v1/brokers/2/restart")
    assert (restarted.status, restarted.json()) == (200, {"broker": 2, "action": "restart", "dry_run": False})
    assert server.participants[2].epoch > before


async def test_broker_action_accepts_an_empty_body(server: Served) -> None:
    assert (await server.ask("POST", "/v1/brokers/2/drain", headers=JSON)).status == 200


async def test_restart_in_progress_is_not_repeated(server: Served) -> None:
    await server.post("/v1/brokers/2/kill", {"reason": "a"})
    restarting = asyncio.create_task(server.post("/v1/brokers/2/restart"))
    while server.participants is not None and server.participants[2].life is Life.ENDED:
        await settle()

    again = await server.post("/v1/brokers/2/restart")
    assert (again.status, again.json()["title"]) == (409, "Restarting already")
    await server.clock.advance(40_000)
    assert (await restarting).status == 200


@pytest.mark.parametrize("action", ["kill", "restart"])
async def test_only_participants_of_this_process_can_be_killed(server: Served, action: str) -> None:
    answer = await server.post(f"/v1/brokers/9/{action}", {"reason": "a"})
    assert answer.status == 404

    async with served(brokers=None) as alone:
        answer = await alone.post(f"/v1/brokers/1/{action}", {"reason": "a"})
        assert answer.status == 501
        assert "its own process" in answer.json()["detail"]


async def test_broker_of_another_process_is_not_killed(server: Served) -> None:
    assert server.participants is not None
    del server.participants._members[3]

    answer = await server.post("/v1/brokers/3/kill", {"reason": "a"})

    assert answer.status == 409
    assert answer.json()["detail"] == "broker 3 does not run in the process of this server: stop its own process"


# -- invalid requests --------------------------------------------------------------------------------------------------

WRITES = ["/v1/topics", "/v1/elections", "/v1/brokers/1/kill"]
Ask = Callable[[Served, str], Any]

NO_REQUESTS: dict[str, tuple[Ask, int, str]] = {
    "no JSON": (lambda s, p: s.ask("POST", p, data=b"{", headers=JSON), 400, "Bad request"),
    "no UTF-8": (lambda s, p: s.ask("POST", p, data=b'{"reason":"\xff"}', headers=JSON), 400, "Bad request"),
    "two values": (lambda s, p: s.ask("POST", p, data=b"{} {}", headers=JSON), 400, "Bad request"),
    "much too deep": (lambda s, p: s.ask("POST", p, data=b"[" * 100_000, headers=JSON), 400, "Bad request"),
    "deep in a field": (
        lambda s, p: s.ask("POST", p, data=b'{"reason":' + b"[" * 100_000, headers=JSON),
        400,
        "Bad request",
    ),
    "no content type": (
        lambda s, p: s.ask("POST", p, data=b"{}", skip_auto_headers=["Content-Type"]),
        415,
        "Unsupported media type",
    ),
    "a compressed body": (
        lambda s, p: s.ask("POST", p, data=b"{}", headers={**JSON, "Content-Encoding": "gzip"}),
        415,
        "Unsupported media type",
    ),
    "a form": (lambda s, p: s.ask("POST", p, data={"type": "preferred"}), 415, "Unsupported media type"),
    "text": (
        lambda s, p: s.ask("POST", p, data=b"{}", headers={"Content-Type": "text/plain"}),
        415,
        "Unsupported media type",
    ),
    "too much": (
        lambda s, p: s.ask("POST", p, data=io.BytesIO(b" " * (BODY_BYTES_MAX + 1)), headers=JSON),
        413,
        "Body too large",
    ),
    "a parameter": (lambda s, p: s.post(f"{p}?dry_run=true"), 400, "Bad request"),
    "a foreign page": (lambda s, p: s.post(p, headers={"Origin": "https://evil.example"}), 403, "Foreign origin"),
    "a page from nowhere": (lambda s, p: s.post(p, headers={"Origin": "null"}), 403, "Foreign origin"),
    "no origin at all": (lambda s, p: s.post(p, headers={"Origin": "http://[x"}), 403, "Foreign origin"),
    "a name that was made ours": (
        lambda s, p: s.post(p, headers={"Origin": "http://evil.example", "Host": "evil.example"}),
        421,
        "Misdirected request",
    ),
}


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize(("ask", "status", "title"), NO_REQUESTS.values(), ids=NO_REQUESTS.keys())
async def test_invalid_request_is_rejected_before_its_handler(
    shared: Served, path: str, ask: Ask, status: int, title: str
) -> None:
    assert shared.participants is not None
    before = await shared.state()

    answer: Answered = await ask(shared, path)

    assert (answer.status, answer.json()["title"]) == (status, title), answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["errors"]
    assert await shared.state() == before
    assert shared.participants[1].life is Life.RUNNING


@pytest.mark.parametrize("path", ["/v1/topics", "/v1/elections"])
async def test_empty_body_is_rejected_as_empty(shared: Served, path: str) -> None:
    answer = await shared.ask("POST", path, data=b"", headers=JSON)

    assert answer.status == 400
    assert "is empty" in answer.json()["detail"]


async def test_page_of_the_same_server_is_accepted(shared: Served) -> None:
    answer = await shared.post("/v1/elections", {"type": "preferred", "all": True}, headers={"Origin": shared.url})

    assert answer.status == 200


async def test_address_in_use_is_named(server: Served) -> None:
    taken = server.url.removeprefix("http://")
    config = load(None, {}, {"node-id": 0, "api.listen": taken})

    with pytest.raises(BadConfig, match=rf"api.listen: {taken} cannot be listened on \(.*\): choose another"):
        async with serve(server.controller, config):
            pass
