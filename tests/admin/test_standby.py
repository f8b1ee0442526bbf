"""A standby serves reads from its copy, marks the responses, and rejects changes."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread
import pytest

from kactl.actors.handlers import standby as standby_module
from kactl.actors.system import Controller
from kactl.admin.schema import BrokerList, ClusterInfo, PartitionInfo, PartitionPage, TopicDetail, TopicPage
from kactl.cli.api_client import Api
from kactl.model.errors import StoreUnavailable
from kactl.stores.memory import MemoryStore
from tests.admin.conftest import Served, served
from tests.support.clocks import ManualClock, settle

pytestmark = pytest.mark.anyio
INTERVAL_MS = 1000


class Pair:
    """Controller 5 with three participants, and standby 6, both with an API."""

    def __init__(self, active: Served, other: Served) -> None:
        self.active = active
        self.other = other

    async def follow(self) -> None:
        """Wait until the copy has read the changes of the store."""
        for _ in range(4):
            await self.other.clock.advance(INTERVAL_MS)
            await settle()


@contextlib.asynccontextmanager
async def open_pair() -> AsyncIterator[Pair]:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with contextlib.AsyncExitStack() as stack:
        active = await stack.enter_async_context(served(store=store, node_id=5, clock=clock))
        other = await stack.enter_async_context(served(brokers=None, store=store.another(), node_id=6, clock=clock))
        await active.controller.create_topic("orders", partitions=4, replication_factor=3)
        await active.controller.create_topic("bills", partitions=1, replication_factor=1, config={"a": "b"})
        await settle()
        both = Pair(active, other)
        await both.follow()
        assert not other.controller.is_active
        yield both


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with open_pair() as opened:
        yield opened


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Pair]:
    """Pair of all tests that change nothing."""
    async with open_pair() as opened:
        yield opened


def without_moment(value: Any) -> Any:
    """Returns a response without the fields that differ between instances in the same state."""
    if isinstance(value, dict):
        left_out = ("as_of", "participant", "next_cursor", "linked", "linked_since_ms")
        return {name: without_moment(item) for name, item in value.items() if name not in left_out}
    return [without_moment(item) for item in value] if isinstance(value, list) else value


PATHS = [
    "/v1/brokers",
    "/v1/brokers/1",
    "/v1/topics",
    "/v1/topics/orders",
    "/v1/topics/bills",
    "/v1/topics/orders/partitions/0",
    "/v1/partitions",
    "/v1/partitions?state=online&leader=1",
    "/v1/reassignments",
]


@pytest.mark.parametrize("path", PATHS)
async def test_copy_returns_the_same_as_the_controller(shared: Pair, path: str) -> None:
    truth, copied = await shared.active.get(path), await shared.other.get(path)

    assert (truth.status, copied.status) == (200, 200), copied.body
    assert without_moment(copied.json()) == without_moment(truth.json())
    assert truth.headers.get("ETag") == copied.headers.get("ETag")


@pytest.mark.parametrize("path", PATHS)
async def test_response_from_a_copy_has_its_age(pair: Pair, path: str) -> None:
    await pair.other.clock.advance(300)

    truth, copied = await pair.active.get(path), await pair.other.get(path)

    assert "Kactl-As-Of" not in truth.headers
    assert copied.headers["Kactl-As-Of"].startswith("1/")
    assert 300 <= int(copied.headers["Kactl-Standby-Age-Ms"]) <= INTERVAL_MS + 300
    as_of = copied.json().get("as_of")
    if as_of is not None:
        assert (as_of["epoch"], as_of["standby"]) == (1, True)
        assert as_of["age_ms"] == int(copied.headers["Kactl-Standby-Age-Ms"])
        assert truth.json()["as_of"]["standby"] is False


async def test_copy_follows_changes(pair: Pair) -> None:
    assert pair.active.participants is not None
    await pair.active.participants.kill(1)
    await pair.active.clock.advance(60_000)
    await settle()
    await pair.active.controller.create_topic("more", partitions=2, replication_factor=1)
    await pair.follow()

    cluster = (await pair.other.get("/v1/cluster")).read(ClusterInfo)
    page = (await pair.other.get("/v1/partitions")).read(PartitionPage)
    (dead, *_) = (await pair.other.get("/v1/brokers")).read(BrokerList).items

    assert (cluster.brokers, cluster.topics, cluster.partitions) == (2, 3, 7)
    assert page.items == (await pair.active.get("/v1/partitions")).read(PartitionPage).items
    assert (dead.id, dead.state) == (1, "dead")
    assert 1 not in {item.leader for item in page.items if item.topic == "orders"}


async def test_partition_without_a_live_leader_is_offline_in_the_copy(pair: Pair) -> None:
    bills = (await pair.other.get("/v1/topics/bills/partitions/0")).read(PartitionInfo)
    assert pair.active.participants is not None
    await pair.active.participants.kill(bills.leader)
    await pair.active.clock.advance(60_000)
    await settle()
    await pair.follow()

    gone = (await pair.other.get("/v1/topics/bills/partitions/0")).read(PartitionInfo)

    assert (bills.state, bills.offline, gone.state, gone.offline) == ("online", False, "offline", True)
    assert (await pair.other.get("/v1/cluster")).read(ClusterInfo).offline_partitions == 1


async def test_deleting_topic_is_marked_in_the_copy(pair: Pair) -> None:
    assert pair.active.participants is not None
    await pair.active.participants.kill(3)
    await pair.active.clock.advance(60_000)
    await settle()
    await pair.active.ask("DELETE", "/v1/topics/orders", params={"timeout_ms": "0", "reason": "a"})
    await pair.follow()

    page = (await pair.other.get("/v1/topics")).read(TopicPage)

    assert {item.name: item.deleting for item in page.items} == {"bills": False, "orders": True}
    assert (await pair.other.get("/v1/topics/orders")).read(TopicDetail).topic.deleting


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/topics", {"name": "x", "replication_factor": 1}),
        ("PATCH", "/v1/topics/orders", {"partitions": 9}),
        ("DELETE", "/v1/topics/orders?reason=a", None),
        ("POST", "/v1/elections", {"type": "preferred", "all": True}),
        ("POST", "/v1/reassignments", {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]}),
        ("POST", "/v1/brokers/1/drain", {}),
        ("POST", "/v1/controller/resign", {"expected_epoch": 1, "reason": "a"}),
        ("POST", "/v1/reassignment-plans", {}),
        ("GET", "/v1/topics/orders/partitions/0/explanation", None),
    ],
)
async def test_requests_for_the_controller_name_it(shared: Pair, method: str, path: str, body: Any) -> None:
    before = await shared.active.state()

    answer = await shared.other.ask(method, path, **({} if body is None else {"json": body}))

    assert answer.status == 503
    assert answer.json()["error_name"] in ("NOT_CONTROLLER", "STALE_CONTROLLER_EPOCH")
    assert "the controller is 5" in answer.json()["detail"]
    assert answer.json()["controller"]["id"] == 5
    assert await shared.active.state() == before


async def test_incomplete_copy_is_not_returned() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with (
        Controller(5, store=store, clock=clock) as other,
        served(brokers=None, store=store.another(), node_id=6) as opened,
    ):
        await other.wait_active()
        await settle()

        answer = await opened.get("/v1/topics")

        assert answer.status == 503
        assert answer.json()["error_name"] == "NOT_CONTROLLER"


async def test_unreadable_brokers_are_a_problem_document(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails() -> Any:
        raise StoreUnavailable("the store does not answer")

    monkeypatch.setattr(pair.other.controller.store, "membership", fails)
    await pair.other.clock.advance(2 * standby_module.SURROUNDINGS_AGE_MS)

    answer = await pair.other.get("/v1/brokers")

    assert answer.status == 503
    assert "the store does not answer" in answer.json()["detail"]


async def test_reading_the_copy_does_not_affect_a_takeover(pair: Pair) -> None:
    await pair.other.get("/v1/partitions")
    truth = pair.active.controller.partitions_of("orders")
    counts = pair.active.controller.snapshot()

    pair.active.controller.loop.controllership.stopping = True
    await pair.active.controller.resign()
    await pair.follow()

    assert pair.other.controller.is_active
    now = pair.other.controller.partitions_of("orders")
    assert [view.leader for view in now] == [view.leader for view in truth]
    after = pair.other.controller.snapshot()
    assert (after.offline_partitions, after.preferred_imbalance, after.brokers) == (
        counts.offline_partitions, counts.preferred_imbalance, counts.brokers,
    )  # fmt: skip
    cluster = pair.other.controller.cluster
    assert (cluster.offline_count, cluster.imbalance_count) == cluster.count_again()
    assert "Kactl-As-Of" not in (await pair.other.get("/v1/partitions")).headers


async def test_command_line_states_that_it_read_a_copy(pair: Pair) -> None:
    notes: list[str] = []
    api = Api(pair.other.url, timeout_s=10, on_standby=notes.append)

    def read() -> list[str]:
        return [item.name for item in (*api.topics(), *api.topics())]

    names = await anyio.to_thread.run_sync(read)

    assert names == ["bills", "orders"] * 2
    (note,) = notes
    assert "is a standby: it shows its copy of the cluster, up to" in note


URL = "https://kactl5.example:8443"


@pytest.fixture
async def referring() -> AsyncIterator[Pair]:
    """Controller 5, and standby 6, which knows its address."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with (
        served(store=store, node_id=5, clock=clock) as active,
        served(
            brokers=None, store=store.another(), node_id=6, clock=clock, settings={"api.instances": {"5": URL}}
        ) as other,
    ):
        both = Pair(active, other)
        await both.follow()
        yield both


async def test_request_for_the_controller_is_answered_with_its_address(referring: Pair) -> None:
    answer = await referring.other.ask(
        "POST", "/v1/elections?expected_controller_epoch=1", json={"all": True, "type": "preferred"},
        allow_redirects=False,
    )  # fmt: skip

    assert answer.status == 307
    assert answer.headers["Location"] == f"{URL}/v1/elections?expected_controller_epoch=1"
    assert answer.json()["controller"] == {"id": 5, "epoch": 0, "api_url": URL}
    assert answer.json()["detail"] == f"this instance is not the controller; the controller is 5, at {URL}"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/elections", {"Authorization": ""}, 401),
        ("/v1/controller", {"Authorization": "Bearer kactl_aaaaaaaa_wrong"}, 401),
        ("/nothing", {"Authorization": ""}, 401),
        ("/leader", {"Authorization": "", "Host": "evil.example"}, 421),
        ("/leader", {"Authorization": "", "Origin": "http://evil.example"}, 403),
        ("/nothing", {}, 404),
    ],
)
async def test_errors_before_the_admission_name_no_controller(
    referring: Pair, path: str, headers: dict[str, str], status: int
) -> None:
    """The same connection has been admitted before, and is so afterwards."""
    for server, epoch, url in ((referring.active, 1, ""), (referring.other, 0, URL)):
        answers = [await server.get("/v1/topics/none"), await server.get(path, headers=headers)]
        answers.append(await server.get("/v1/topics/none"))

        before, refused, after = (answer.json()["controller"] for answer in answers)
        assert [answer.status for answer in answers] == [404, status, 404]
        assert before == after == {"id": 5, "epoch": epoch, "api_url": url}
        assert refused == {"id": None, "epoch": 0, "api_url": ""}
        assert URL.encode() not in answers[1].body
        assert "Location" not in answers[1].headers


async def test_page_is_not_sent_to_another_origin(referring: Pair) -> None:
    origin = referring.other.url
    answer = await referring.other.ask(
        "POST", "/v1/elections", json={"all": True, "type": "preferred"}, headers={"Origin": origin}
    )

    assert answer.status == 503
    assert "Location" not in answer.headers
    assert answer.json()["controller"]["api_url"] == URL


async def test_reads_of_the_copy_and_other_errors_are_not_redirected(referring: Pair) -> None:
    copy = await referring.other.get("/v1/brokers")
    unknown = await referring.other.get("/v1/topics/none")

    assert (copy.status, unknown.status) == (200, 404)
