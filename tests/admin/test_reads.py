"""Read requests: probes, controller, brokers, topics, partitions, events and metrics."""

from collections.abc import AsyncIterator

import pytest

from kactl.admin.schema import (
    BrokerInfo,
    BrokerList,
    ClusterInfo,
    ControllerInfo,
    EventPage,
    PartitionInfo,
    PartitionPage,
    Probe,
    TopicDetail,
    TopicPage,
)
from kactl.admin.views import find_partitions
from kactl.stores.memory import MemoryStore
from kactl.telemetry.metrics import COUNTERS, GAUGES
from tests.admin.conftest import Served, served, with_orders
from tests.support.clocks import settle

pytestmark = pytest.mark.anyio


# -- probes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_active_controller_is_live_and_ready(shared: Served, path: str) -> None:
    answer = await shared.get(path)

    assert answer.status == 200
    assert answer.read(Probe).status == "ok"


async def test_leader_probe_names_the_controller(shared: Served) -> None:
    answer = await shared.get("/leader")

    assert answer.status == 200
    assert answer.read(Probe) == Probe(status="leader", detail="controller 0")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/leader"])
async def test_probes_return_the_same_status_for_head(server: Served, standby: Served, path: str) -> None:
    for instance in (server, standby):
        head = await instance.ask("HEAD", path)

        assert head.status == (await instance.get(path)).status
        assert head.body == b""


async def test_standby_is_ready_and_not_the_leader(shared_standby: Served) -> None:
    assert (await shared_standby.get("/livez")).status == 200
    assert (await shared_standby.get("/readyz")).read(Probe) == Probe(
        status="ok", detail="standing by for controller 5"
    )
    leader = await shared_standby.get("/leader")
    assert leader.status == 503
    assert leader.read(Probe) == Probe(status="standby", detail="not the controller: 5 is")


async def test_instance_without_known_controller_is_not_ready(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.controller.loop.controllership, "active_id", None)

    answer = await server.get("/readyz")

    assert answer.status == 503
    assert answer.read(Probe) == Probe(status="starting", detail="no controller is known")


class FailedStore(MemoryStore):
    trouble = "kactl.db: database or disk is full: make room on its disk"


async def test_readiness_probe_names_the_store_error() -> None:
    async with served(store=FailedStore()) as server:
        assert server.controller.is_active

        answer = await server.get("/readyz")

    assert answer.status == 503
    assert answer.read(Probe) == Probe(status="failing", detail=f"the store cannot be used: {FailedStore.trouble}")


async def test_reads_are_rejected_during_a_takeover(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.controller.loop.preemption, "is_ready", False)

    assert (await server.get("/readyz")).status == 503
    refused = await server.get("/v1/partitions")
    assert refused.status == 503
    assert refused.json()["title"] == "Taking over"
    assert refused.headers["Retry-After"] == "1"


REFUSALS = ("kactl.event.unchanged", "kactl.isr.proposal.", "kactl.transitions.")
CLUSTER_PATHS = [
    "/v1/brokers",
    "/v1/brokers/1",
    "/v1/topics",
    "/v1/topics/orders",
    "/v1/topics/orders/partitions/0",
    "/v1/partitions",
]


@pytest.mark.parametrize("path", CLUSTER_PATHS)
async def test_standby_without_a_copy_rejects_reads(shared_standby: Served, path: str) -> None:
    answer = await shared_standby.get(path)

    assert answer.status == 503
    problem = answer.json()
    assert (problem["error_code"], problem["error_name"], problem["retriable"]) == (41, "NOT_CONTROLLER", True)
    assert problem["controller"] == {"id": 5, "epoch": 0, "api_url": ""}
    assert answer.headers["Retry-After"] == "1"


async def test_health_checks_of_a_standby_without_a_copy_are_unknown(shared_standby: Served) -> None:
    result = (await shared_standby.get("/v1/cluster")).read(ClusterInfo)

    checks = {item.name: item.result for item in result.checks}
    assert (result.status, checks["offline-partitions"], checks["under-min-isr"]) == ("degraded", "unknown", "unknown")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/topics", {"name": "x", "replication_factor": 1}),
        ("/v1/elections", {"type": "preferred", "all": True}),
    ],
)
async def test_standby_rejects_writes_and_names_the_controller(shared_standby: Served, path: str, body: object) -> None:
    answer = await shared_standby.post(path, body)

    assert answer.status == 503
    assert answer.json()["error_name"] == "NOT_CONTROLLER"
    assert "the controller is 5" in answer.json()["detail"]
    assert await shared_standby.controller.store.topics() == []


# -- the controller and the cluster ------------------------------------------------------------------------------------


async def test_controller_states_its_ids_epoch_and_election_time(shared: Served) -> None:
    info = (await shared.get("/v1/controller")).read(ControllerInfo)

    assert (info.node_id, info.active_id, info.epoch, info.cluster) == (0, 0, 1, "test")
    assert (info.is_active, info.ready) == (True, True)
    assert info.since_ms == shared.clock.now_ms()
    assert (info.state, info.state_number, info.changes) == ("Idle", 0, 1)
    assert info.participants == (1, 2, 3)


async def test_election_time_outlasts_its_event(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.controller.history, "_limit", 1)
    await server.controller.create_topic("more")

    (term,) = server.controller.controllerships()
    assert (await server.get("/v1/controller")).read(ControllerInfo).since_ms == term.began_ms


async def test_cluster_summary_has_the_counts(shared: Served) -> None:
    info = (await shared.get("/v1/cluster")).read(ClusterInfo)

    assert (info.brokers, info.brokers_dead, info.topics, info.partitions) == (3, 0, 1, 4)
    assert (info.offline_partitions, info.under_replicated_partitions, info.preferred_imbalance) == (0, 0, 0)
    assert info.as_of.seq == shared.controller.history.seq


# -- brokers -----------------------------------------------------------------------------------------------------------


async def test_brokers_have_leader_and_replica_counts(shared: Served) -> None:
    brokers = (await shared.get("/v1/brokers")).read(BrokerList).items

    assert [broker.id for broker in brokers] == [1, 2, 3]
    assert [broker.leaders for broker in brokers] == [2, 1, 1]
    assert [broker.leader_skew for broker in brokers] == [50.0, -25.0, -25.0]
    assert [(broker.replicas, broker.replica_skew) for broker in brokers] == [(4, 0.0)] * 3
    assert all(broker.state == "live" and broker.participant and broker.epoch is not None for broker in brokers)
    assert (await shared.get("/v1/brokers/2")).read(BrokerInfo) == brokers[1]


async def test_unknown_broker_is_not_found(shared: Served) -> None:
    answer = await shared.get("/v1/brokers/9")

    assert answer.status == 404
    assert answer.json()["error_name"] == "BROKER_ID_NOT_REGISTERED"
    assert answer.json()["detail"] == "there is no broker 9"


async def test_dead_broker_with_replicas_is_listed(server: Served) -> None:
    assert server.participants is not None
    await server.participants.kill(3)
    await server.clock.advance(30_000)

    broker = (await server.get("/v1/brokers/3")).read(BrokerInfo)
    cluster = (await server.get("/v1/cluster")).read(ClusterInfo)

    assert (broker.state, broker.epoch, broker.leaders, broker.replicas) == ("dead", None, 0, 4)
    assert broker.out_of_sync == 4
    assert (cluster.brokers, cluster.brokers_dead, cluster.under_replicated_partitions) == (2, 1, 4)


# -- topics and partitions ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def three_topics() -> AsyncIterator[Served]:
    async with with_orders() as opened:
        await opened.controller.create_topic("a", assignment={0: [3]})
        await opened.controller.create_topic("b1", partitions=4)
        yield opened


async def test_topics_are_sorted_and_paged(server: Served) -> None:
    for name in ("a", "z"):
        await server.controller.create_topic(name)

    first = (await server.get("/v1/topics?limit=2")).read(TopicPage)
    second = (await server.get(f"/v1/topics?limit=2&cursor={first.next_cursor}")).read(TopicPage)

    assert [topic.name for topic in (*first.items, *second.items)] == ["a", "orders", "z"]
    assert (first.matched, second.next_cursor) == (3, None)
    orders = first.items[1]
    assert (orders.partitions, orders.replication_factor, orders.deleting) == (4, 3, False)
    assert orders.id is not None
    assert len(orders.id) == 22


async def test_topic_has_overrides_and_partitions(server: Served) -> None:
    await server.controller.store.set_topic_config("orders", {"retention.ms": "1"})

    detail = (await server.get("/v1/topics/orders")).read(TopicDetail)

    assert detail.config == {"retention.ms": "1"}
    assert detail.topic.name == "orders"
    assert [info.partition for info in detail.partitions.items] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/v1/topics/nix", "there is no topic nix"),
        ("/v1/topics/*", "there is no topic *"),
        ("/v1/topics/nix/partitions/0", "there is no topic nix"),
        ("/v1/topics/orders/partitions/4", "topic orders has no partition 4: it has 4, numbered from 0"),
    ],
)
async def test_unknown_topic_or_partition_is_not_found(shared: Served, path: str, detail: str) -> None:
    answer = await shared.get(path)

    assert answer.status == 404
    assert answer.json()["error_name"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert answer.json()["detail"] == detail


async def test_partition_equals_that_of_the_controller(shared: Served) -> None:
    info = (await shared.get("/v1/topics/orders/partitions/1")).read(PartitionInfo)
    known = shared.controller.partition("orders-1")

    assert known is not None
    assert (info.leader, info.leader_epoch, info.isr, info.replicas) == (
        known.leader,
        known.leader_epoch,
        known.isr,
        known.replicas,
    )
    assert info.state == "online"
    assert info.preferred_leader == info.replicas[0]
    assert info.replica_states == dict.fromkeys(info.replicas, "online")
    assert not info.offline
    assert not info.under_replicated


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 9),
        ("topic=orders", 4),
        ("topic=orders&topic=a", 5),
        ("topic=o*,b?", 8),
        ("topic=[a]", 0),
        ("topic=nix", 0),
        ("leader=1&topic=orders", 2),
        ("leader=-1", 0),
        ("replica=9", 0),
        ("replica=3&topic=orders", 4),
        ("state=online", 9),
        ("state=offline", 0),
        ("state=offline,online", 9),
        ("offline=true", 0),
        ("offline=false", 9),
        ("urp=1", 0),
    ],
)
async def test_partition_filters_are_combined(three_topics: Served, query: str, count: int) -> None:
    page = (await three_topics.get(f"/v1/partitions?{query}")).read(PartitionPage)

    assert page.matched == len(page.items) == count
    names = [(info.topic, info.partition) for info in page.items]
    assert names == sorted(names)


async def test_partition_without_a_leader_is_offline(server: Served) -> None:
    await server.controller.create_topic("alone", assignment={0: [3]})
    assert server.participants is not None
    await server.participants.kill(3)
    await server.clock.advance(30_000)

    for query in ("offline=1", "state=offline", "leader=-1"):
        page = (await server.get(f"/v1/partitions?{query}")).read(PartitionPage)

        assert [(info.topic, info.offline, info.leader) for info in page.items] == [("alone", True, -1)]
    urp = (await server.get("/v1/partitions?urp=true")).read(PartitionPage)
    # The last in-sync replica stays in the ISR, so that it can become the leader again.
    assert [info.topic for info in urp.items] == ["orders"] * 4
    assert all(info.under_replicated for info in urp.items)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
async def test_pages_contain_every_partition_once(server: Served, limit: int) -> None:
    await server.controller.create_topic("a", partitions=2)
    await server.controller.create_topic("z", partitions=1)
    seen: list[tuple[str, int]] = []
    cursor = ""

    while True:
        page = (await server.get(f"/v1/partitions?limit={limit}{cursor}")).read(PartitionPage)
        seen += [(info.topic, info.partition) for info in page.items]
        assert page.matched == 7
        if page.next_cursor is None:
            break
        cursor = f"&cursor={page.next_cursor}"

    assert seen == [("a", 0), ("a", 1), *(("orders", partition) for partition in range(4)), ("z", 0)]


async def test_cursor_is_valid_after_its_topic_is_deleted(server: Served) -> None:
    await server.controller.create_topic("a", partitions=2)
    first = (await server.get("/v1/partitions?limit=1")).read(PartitionPage)

    server.controller.cluster.remove_topic("a")
    second = (await server.get(f"/v1/partitions?limit=1&cursor={first.next_cursor}")).read(PartitionPage)

    assert [(info.topic, info.partition) for info in second.items] == [("orders", 0)]


async def test_long_page_is_complete(server: Served) -> None:
    await server.controller.create_topic("long", partitions=1200, replication_factor=1)
    from kactl.admin.schema import PartitionQuery

    result = find_partitions(server.controller.cluster, PartitionQuery(topic=["long"], limit=10_000))
    infos = await result.infos()

    assert [info.partition for info in infos] == list(range(1200))


# -- events, metrics and unknown routes --------------------------------------------------------------------------------


async def test_events_are_paged_and_filtered(server: Served) -> None:
    everything = (await server.get("/v1/events")).read(EventPage)
    history = server.controller.history
    assert [event.seq for event in everything.items] == list(range(history.oldest, history.seq + 1))
    assert everything.next_after == everything.as_of.seq

    page = (await server.get(f"/v1/events?after={history.oldest + 1}&limit=3")).read(EventPage)
    assert page.items == everything.items[2:5]
    assert page.next_after == history.oldest + 4

    topics = (await server.get("/v1/events?kinds=topic,controller")).read(EventPage)
    assert [(event.__struct_config__.tag, event.what) for event in topics.items] == [
        ("controller", "elected"),
        ("topic", "created"),
    ]


async def test_discarded_events_are_replaced_by_a_reset(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.controller.history, "_limit", 3)
    await server.controller.create_topic("more")

    page = (await server.get("/v1/events?after=0")).read(EventPage)

    assert page.items[0].__struct_config__.tag == "reset"
    assert page.items[0].seq == server.controller.history.oldest - 1


async def test_metrics_have_the_documented_names(shared: Served) -> None:
    answer = await shared.get("/metrics")

    text = answer.body.decode()
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    # Metrics of the Kafka listener, the state-change log, certificates, failing handlers and refusals exist only where
    # there are these.
    absent = ("kactl.listener.", "kactl.event_log.", "kactl.certificate.", "kactl.replica.", *REFUSALS)
    present = [name for name, *_ in (*GAUGES, *COUNTERS) if not name.startswith(absent)]
    assert len(present) > 20
    for name, unit, _ in GAUGES:
        if name not in present:
            continue
        assert f"# TYPE {name.replace('.', '_').lower()}{'_seconds' if unit == 's' else ''} gauge" in text, name
    for name, unit, _ in COUNTERS:
        if name not in present:
            continue
        suffix = "_seconds_total" if unit == "s" else "_total"
        assert f"# TYPE {name.replace('.', '_').lower()}{suffix} counter" in text, name
    assert "\nkafka_controller_active_count 1.0" in text
    assert 'kafka_controller_event_process_duration_seconds_bucket{kafka_controller_state="TopicChange"' in text
    assert "kafka_controller_partition_count 4.0" in text


async def test_two_servers_have_separate_metrics(server: Served, standby: Served) -> None:
    assert b"\nkafka_controller_active_count 1.0" in (await server.get("/metrics")).body
    assert b"\nkafka_controller_active_count 0.0" in (await standby.get("/metrics")).body


@pytest.mark.parametrize(
    ("method", "path", "status", "title"),
    [
        ("GET", "/v2", 404, "No such route"),
        ("GET", "/v1", 404, "No such route"),
        ("GET", "/v1/topics/orders/", 404, "No such route"),
        ("POST", "/v1/topics/orders", 405, "Method not allowed"),
        ("PUT", "/v1/topics", 405, "Method not allowed"),
        ("HEAD", "/v1/elections", 405, None),
        ("GET", "/v1/elections", 405, "Method not allowed"),
    ],
)
async def test_unknown_route_or_method_is_rejected(
    shared: Served, method: str, path: str, status: int, title: str | None
) -> None:
    answer = await shared.ask(method, path)

    assert answer.status == status
    if title is not None:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["title"] == title
        assert answer.json()["instance"] == path
    if status == 405:
        assert answer.headers["Allow"]


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/v1/partitions?limit=0", "limit"),
        ("/v1/partitions?limit=10001", "limit"),
        ("/v1/partitions?limit=many", "limit"),
        ("/v1/partitions?limit=1&limit=2", "limit"),
        ("/v1/partitions?state=asleep", "state"),
        ("/v1/partitions?leader=-2", "leader"),
        ("/v1/partitions?leader=99999999999", "leader"),
        ("/v1/partitions?offline=maybe", "offline"),
        ("/v1/partitions?sort=downtime", "sort"),
        ("/v1/partitions?cursor=%00", "cursor"),
        ("/v1/partitions?cursor=WzFd", "cursor"),
        ("/v1/partitions?cursor=WyJhIiwtMV0", "cursor"),
        ("/v1/partitions?cursor=%C3%A4", "cursor"),
        ("/v1/partitions?cursor=WyJv5TEiLDBd", "cursor"),  # a name that is not UTF-8
        ("/v1/topics?cursor=x", "cursor"),
        ("/v1/topics?topic=x", "topic"),
        ("/v1/events?after=-1", "after"),
        ("/v1/events?kinds=weather", "kinds"),
        ("/v1/events/stream?after=x", "after"),
        ("/v1/brokers/one", "id"),
        ("/v1/brokers/-1", "id"),
        ("/v1/topics/orders/partitions/99999999999", "partition"),
        ("/livez?verbose=1", "verbose"),
    ],
)
async def test_invalid_parameter_is_named(shared: Served, path: str, parameter: str) -> None:
    answer = await shared.get(path)

    assert answer.status == 400
    problem = answer.json()
    assert problem["errors"][0]["parameter"] == parameter
    assert problem["detail"].startswith(f"{parameter}: ")
    assert problem["error_name"] == "INVALID_REQUEST"


async def test_internal_error_is_a_problem_document(
    server: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(server.controller, "controllerships", broken)

    answer = await server.get("/v1/controller/history")

    assert answer.status == 500
    assert answer.json()["error_name"] == "UNKNOWN_SERVER_ERROR"
    assert b"a bug" not in answer.body
    assert "a bug" in caplog.text
    await settle()


async def test_partitions_are_filtered_by_min_insync_replicas(server: Served) -> None:
    await server.controller.create_topic("strict", assignment={0: (2, 3)}, config={"min.insync.replicas": "2"})
    await server.controller.create_topic("single", assignment={0: (2,)}, config={"min.insync.replicas": "2"})
    await server.controller.store.set_default_config({"min.insync.replicas": "3"})
    await server.controller.drain(1)
    await settle()

    async def names(query: str) -> list[str]:
        page = (await server.get(f"/v1/partitions?{query}")).read(PartitionPage)
        return [f"{item.topic}-{item.partition}" for item in page.items]

    items = (await server.get("/v1/partitions")).read(PartitionPage).items
    assert {item.topic: item.min_insync_replicas for item in items} == {"orders": 3, "single": 2, "strict": 2}
    assert {item.topic: item.under_min_isr for item in items} == {"orders": True, "single": False, "strict": False}
    assert await names("under_min_isr=true") == [f"orders-{number}" for number in range(4)]
    # Brokers never require more in-sync replicas than there are replicas.
    assert await names("at_min_isr=true") == await names("under_min_isr=false") == ["single-0", "strict-0"]
    strict = (await server.get("/v1/topics/strict/partitions/0")).read(PartitionInfo)
    assert strict.min_insync_replicas == 2
    led_by_others = [f"{item.topic}-{item.partition}" for item in items if item.leader != item.replicas[0]]
    assert await names("not_preferred=true") == led_by_others != []


async def test_unreadable_configuration_leaves_min_insync_replicas_null(server: Served) -> None:
    async def unreadable(topics: list[str]) -> dict[str, None]:
        return dict.fromkeys(topics)

    server.controller.store.topic_configs = unreadable  # type: ignore[method-assign,assignment]

    items = (await server.get("/v1/partitions")).read(PartitionPage).items

    assert {item.min_insync_replicas for item in items} == {None}
    assert not any(item.under_min_isr for item in items)


@pytest.mark.parametrize("size", [1, 3, 4, 7])
async def test_pages_by_offset_are_those_by_cursor(shared: Served, size: int) -> None:
    by_cursor, cursor = [], None
    while True:
        query = f"limit={size}" + (f"&cursor={cursor}" if cursor else "")
        page = (await shared.get(f"/v1/partitions?{query}")).read(PartitionPage)
        by_cursor.append(page.items)
        cursor = page.next_cursor
        if cursor is None:
            break
    by_offset = [
        (await shared.get(f"/v1/partitions?limit={size}&offset={number * size}")).read(PartitionPage)
        for number in range(len(by_cursor))
    ]

    assert [page.items for page in by_offset] == by_cursor
    assert {page.matched for page in by_offset} == {4}
    beyond = (await shared.get("/v1/partitions?offset=1000000")).read(PartitionPage)
    assert (beyond.items, beyond.matched, beyond.next_cursor) == ((), 4, None)


async def test_offset_with_a_cursor_is_refused(shared: Served) -> None:
    cursor = (await shared.get("/v1/partitions?limit=1")).read(PartitionPage).next_cursor
    answer = await shared.get(f"/v1/partitions?offset=1&cursor={cursor}")

    assert answer.status == 400
    assert answer.json()["errors"][0]["parameter"] == "offset"


async def test_events_since_a_time_are_returned(server: Served) -> None:
    before = (await server.get("/v1/events")).read(EventPage)
    await server.clock.advance(60_000)
    since_ms = server.clock.now_ms()
    await server.controller.create_topic("later")
    await settle()

    page = (await server.get(f"/v1/events?since={since_ms}")).read(EventPage)
    whole = (await server.get("/v1/events?since=0")).read(EventPage)
    none = (await server.get(f"/v1/events?since={since_ms + 3_600_000}")).read(EventPage)

    assert page.items
    assert page.items[0].seq == before.as_of.seq + 1
    assert whole.items[: len(before.items)] == before.items
    assert (none.items, none.next_after) == ((), none.as_of.seq)


@pytest.mark.parametrize(
    ("query", "message"),
    [("since=yesterday", "since: 'yesterday' is not a time"), ("since=0&after=3", "cannot be combined with after")],
)
async def test_malformed_beginning_of_events_is_rejected(shared: Served, query: str, message: str) -> None:
    answer = await shared.get(f"/v1/events?{query}")

    assert answer.status == 400
    assert message in answer.body.decode()


@pytest.mark.parametrize(
    ("path", "parameter", "detail"),
    [
        ("/v1/partitions?state=online,lost", "state", "'lost' is invalid: choose from new, online, offline, absent"),
        ("/v1/partitions?limit=-1", "limit", "'-1' is invalid: Expected `int` >= 1"),
    ],
)
async def test_invalid_parameter_is_named_with_its_choices(
    shared: Served, path: str, parameter: str, detail: str
) -> None:
    answer = await shared.get(path)

    assert answer.status == 400
    assert answer.json()["errors"] == [{"detail": detail, "parameter": parameter}]


async def test_durations_of_requests_are_a_histogram_by_route(server: Served) -> None:
    await server.get("/v1/topics/orders")
    await server.get("/v1/topics/absent")
    await server.get("/nowhere")

    text = (await server.get("/metrics")).body.decode()

    name = "http_server_request_duration_seconds_count"
    route = 'http_request_method="GET",http_response_status_code="%d",http_route="/v1/topics/{topic}",url_scheme="http"'
    lines = [line for line in text.splitlines() if line.startswith(name)]
    shown = [line.replace('error_type="",', "") for line in lines]
    assert f"{name}{{{route % 200}}} 1.0" in shown
    assert f"{name}{{{route % 404}}} 1.0" in shown
    assert not any("absent" in line or "nowhere" in line for line in lines)
