"""Routes of a controller and of its spectators, compared with the partition table."""

import random

import msgspec
import numpy as np
import pytest

from kactl.decide.machines.route_log import RouteLog
from kactl.decide.messages.routes import RouteColumns, RouteMessage, RouteRows, Snapshot, Version
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.readiness import Readiness
from kactl.decide.state.records import Assignments, Leaderships
from kactl.model import NO_LEADER, Assignment, Broker, Endpoint, Leadership, TopicPartition
from kactl.model.errors import MalformedMessage
from kactl.participant.spectator.routes import Route
from kactl.participant.spectator.table import Cursor, RouteTable

BROKERS = (1, 2, 3)
Model = dict[TopicPartition, tuple[int | None, int, bool, tuple[int, ...], str | None]]


class Published:
    """A cluster that changes at random, and the log of its routes under one controllership."""

    def __init__(self, seed: int, epoch: int = 1, *, removed_max: int = 1_000) -> None:
        self.random = random.Random(seed)
        self.epoch = epoch
        self.cluster = Cluster(0)
        self.readiness = Readiness()
        self.log = RouteLog(self.cluster.table, removed_max=removed_max)
        for broker in BROKERS:
            self.move_broker(broker)

    def move_broker(self, broker: int) -> None:
        endpoint = Endpoint("peer", f"host-{self.random.randrange(100)}", 7000 + broker)
        self.cluster.add_brokers([Broker(broker, self.random.randrange(1_000), (endpoint,))])

    def lead(self, name: TopicPartition) -> None:
        rng, table = self.random, self.cluster.table
        row = table.row(name)
        if row < 0:
            row = self.cluster.put_assignment(name, Assignment(BROKERS))
        epoch = int(table.column("leader_epoch")[row]) + 1
        isr = tuple(rng.sample(BROKERS, rng.randint(1, 3)))
        leader = rng.choice([*isr, NO_LEADER])
        self.cluster.put_leaderships(
            np.array([row], np.intp), Leaderships.of([Leadership(leader, epoch, isr, epoch, self.epoch)])
        )

    def report(self, name: TopicPartition) -> None:
        row = self.cluster.table.row(name)
        if row >= 0:
            rows = self.cluster.table.rows(np.array([row], np.intp))
            ready = np.array([self.random.random() < 0.8])
            self.readiness.put(rows.index, rows.topic, rows.partition, rows.leader_epoch, ready)

    def step(self) -> None:
        name = TopicPartition(f"t{self.random.randrange(3)}", self.random.randrange(4))
        match self.random.randrange(12):
            case 0:
                self.cluster.remove_topic(name.topic)
            case 1:
                self.move_broker(self.random.choice(BROKERS))
            case 2:
                self.cluster.queue_deletion([name.topic])
            case 3 | 4:
                self.report(name)
            case _:
                self.lead(name)

    def message(self, after: Version | None, topics: tuple[str, ...] | None = None) -> RouteMessage:
        self.log.update(self.cluster.brokers, self.readiness)
        sent = self.log.since(self.epoch, after, topics, age_ms=0.0)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=RouteMessage)  # type: ignore[no-any-return]

    def model(self) -> Model:
        """Returns the routes as the table has them, one by one."""
        model: Model = {}
        for topic in self.cluster.table.topics():
            for view in map(self.cluster.table.view, self.cluster.table.rows_of(topic).tolist()):
                if view.leader_epoch >= 0 and topic.name not in self.cluster.topics_to_delete:
                    model[view.name] = self._entry(view.name, view.leader, view.leader_epoch, view.isr)
        return model

    def _entry(
        self, name: TopicPartition, leader: int, leader_epoch: int, isr: tuple[int, ...]
    ) -> tuple[int | None, int, bool, tuple[int, ...], str | None]:
        table = self.cluster.table
        ready = self.readiness.of(table.column("topic"), table.column("partition"), table.column("leader_epoch"))
        broker = self.cluster.brokers.get(leader)
        host = None if broker is None else broker.endpoints[0].host
        is_ready = bool(ready[table.row(name)])
        return (None if leader == NO_LEADER else leader, leader_epoch, is_ready, isr, host)


def entry(route: Route) -> tuple[int | None, int, bool, tuple[int, ...], str | None]:
    host = None if route.endpoint is None else route.endpoint.host
    return route.leader, route.leader_epoch, route.ready, route.in_sync, host


def routes_of(table: RouteTable) -> Model:
    return {route.partition: entry(route) for topic in ("t0", "t1", "t2") for route in table.routes(topic)}


class Reader:
    """A reader of a spectator's changes, which may fall behind."""

    def __init__(self, table: RouteTable, tick: int | None = 0) -> None:
        self.cursor = Cursor(table, tick)
        self.last: Version | None = None
        self.seen: Model = {}
        self.versions: list[Version] = []

    def read(self, limit: int) -> bool:
        if self.cursor.restarts():
            self.seen = {}
        changes = self.cursor.read(limit)
        for change in changes:
            self.versions.append(change.version)
            self.last = change.version
            if change.route is None:
                self.seen.pop(change.partition, None)
            else:
                self.seen[change.partition] = entry(change.route)
        return bool(changes)

    def finish(self) -> None:
        for _ in range(1_000):
            if not self.read(2):
                return
        raise AssertionError("the reader never reaches the end")


@pytest.mark.parametrize("seed", range(6))
def test_spectator_has_the_routes_of_the_table(seed: int) -> None:
    rng = random.Random(seed)
    published, table = Published(seed, removed_max=5), RouteTable(removed_max=5)
    reader, slow = Reader(table), Reader(table)
    answers: list[tuple[RouteMessage, Model]] = []
    before = table.version

    for _ in range(120):
        published.step()
        if rng.random() < 0.2:
            published = renewed(published)
        if rng.random() < 0.5:
            after = None if table.version.seq < 0 else table.version
            answers.append((published.message(after), published.model()))
        if answers and rng.random() < 0.7:
            message, model = answers.pop(rng.randrange(len(answers)))  # responses overtake each other
            accepted = table.apply(message)
            assert table.version >= before
            assert accepted == (message.version >= before)
            if message.version >= before:
                assert routes_of(table) == model
            before = table.version
        reader.finish()
        slow.read(1)
        assert reader.seen == routes_of(table)

    slow.finish()
    assert slow.seen == routes_of(table)


def renewed(published: Published) -> Published:
    """Returns the same cluster under the next controller, which has read it from the store."""
    later = Published(published.random.randrange(1_000), published.epoch + 1, removed_max=5)
    later.cluster._brokers = dict(published.cluster.brokers)
    for topic in published.cluster.table.topics():
        for row in published.cluster.table.rows_of(topic).tolist():
            view = published.cluster.table.view(row)
            later.cluster.put_assignments(Assignments.of({view.name: view.assignment}))
            if view.leadership is not None:
                rows = np.array([later.cluster.table.row(view.name)], np.intp)
                later.cluster.put_leaderships(rows, Leaderships.of([view.leadership]))
    later.cluster.queue_deletion(published.cluster.topics_to_delete)
    return later


@pytest.mark.parametrize("seed", range(6))
def test_reader_resumes_after_any_version_that_it_has_seen(seed: int) -> None:
    rng = random.Random(seed)
    published, table = Published(seed), RouteTable()
    reader = Reader(table)
    after: Version | None = None
    for _ in range(60):
        published.step()
        table.apply(published.message(after))
        after = table.version
        reader.read(rng.randint(0, 2))  # it may stop between two changes of one message

    fresh = RouteTable()  # of a program that was started again
    fresh.apply(published.message(None))
    for resumed_from in (table, fresh):
        assert reader.last is not None
        tick = resumed_from.tick_of(reader.last)
        if tick is None:
            resumed_from.rewind(reader.last, published.message(reader.last))
            tick = resumed_from.tick_of(reader.last)
        assert tick is not None
        resumed = Reader(resumed_from, tick)
        resumed.seen = dict(reader.seen)
        resumed.finish()
        assert resumed.seen == routes_of(resumed_from) == published.model()


@pytest.mark.parametrize("looks", [1, 5], ids=["of this spectator", "also of others"])
def test_versions_of_changes_rise_without_repetition(looks: int) -> None:
    """The controller numbers the changes of several looks before this spectator receives them in one message."""
    published, table = Published(7), RouteTable()
    reader = Reader(table)
    after: Version | None = None
    for _ in range(100):
        for _ in range(looks):
            published.step()
            message = published.message(after)
        table.apply(message)
        after = table.version
        reader.read(100)

    assert reader.versions == sorted(set(reader.versions))


def test_removal_in_an_overtaken_message_is_no_second_change() -> None:
    """Both messages contain that the partition was removed and created again."""
    published, table = Published(1), RouteTable()
    name = TopicPartition("t0", 0)
    published.lead(name)
    table.apply(published.message(None))
    after = table.version
    published.cluster.remove_topic("t0")
    published.message(after)
    published.lead(name)
    first = published.message(after)
    published.lead(TopicPartition("t1", 0))
    second = published.message(after)
    reader = Reader(table, table.tick)

    for message in (first, second):
        table.apply(message)
        reader.read(100)

    assert reader.versions == sorted(set(reader.versions))
    assert reader.seen == routes_of(table)


@pytest.mark.parametrize("led", [True, False], ids=["known", "unknown"])
def test_topic_that_was_removed_twice_is_removed_once(led: bool) -> None:
    """Its row would be free twice, and two other partitions would have it."""
    published, table = Published(1), RouteTable()
    if led:
        published.lead(TopicPartition("t0", 0))
    table.apply(published.message(None))
    reader, after = Reader(table, table.tick), table.version
    for _ in range(2):
        published.lead(TopicPartition("t0", 0))
        published.message(None)
        published.cluster.remove_topic("t0")
        last = published.message(after)
    table.apply(last)
    reader.finish()
    assert len(reader.versions) == led
    for partition in range(3):
        published.lead(TopicPartition("t1", partition))
        table.apply(published.message(table.version))

    assert routes_of(table) == published.model()
    if led:
        assert reader.versions == [last.version]
        assert table.tick_of(last.version) is not None


def test_version_of_another_controllership_is_unknown_to_the_controller() -> None:
    published = Published(1, epoch=5)
    for _ in range(20):
        published.step()
    now = published.message(None).version

    assert isinstance(published.message(Version(4, 3)), Snapshot)
    assert isinstance(published.message(Version(5, now.seq + 1)), Snapshot)
    assert not isinstance(published.message(Version(5, now.seq)), Snapshot)


def test_row_of_a_removed_partition_is_used_for_another_one() -> None:
    published, table = Published(1), RouteTable()
    leadership = Leaderships.of([Leadership(1, 0, (1, 2), 0, 1)])
    for topic in ("t0", "t1"):
        row = published.cluster.put_assignment(TopicPartition(topic, 0), Assignment(BROKERS))
        published.cluster.put_leaderships(np.array([row], np.intp), leadership)
        table.apply(published.message(table.version if table.version.seq > 0 else None))
        published.cluster.remove_topic("t0")

    assert row == 0
    assert routes_of(table) == published.model()
    assert [route.leader for route in table.routes("t1")] == [1]


def test_removals_beyond_the_limit_lead_to_a_snapshot() -> None:
    published = Published(1, removed_max=2)
    for number in range(4):
        published.lead(TopicPartition("t0", number))
    before = published.message(None).version
    published.cluster.remove_topic("t0")

    assert isinstance(published.message(before), Snapshot)
    assert not isinstance(published.message(published.message(None).version), Snapshot)


def test_only_topics_of_interest_are_sent() -> None:
    published, table = Published(1), RouteTable()
    for topic in ("t0", "t1"):
        published.lead(TopicPartition(topic, 0))
    table.apply(published.message(None, ("t1", "unknown")))
    published.lead(TopicPartition("t0", 0))
    published.lead(TopicPartition("t1", 0))
    published.cluster.remove_topic("t0")
    table.apply(published.message(table.version, ("t1",)))

    assert routes_of(table) == {name: each for name, each in published.model().items() if name.topic == "t1"}


@pytest.mark.parametrize(
    "change",
    [
        {"topic": b"\x01\x00\x00\x00"},
        {"topic": b"\xff\xff\xff\xff"},
        {"leader": b""},
        {"leader": b"\x00"},
        {"seq": b"\x00" * 4},
        {"ready": b"\x00\x00"},
        {"partition": b""},
    ],
    ids=str,
)
def test_columns_that_do_not_fit_are_malformed(change: dict[str, bytes]) -> None:
    four, eight = b"\x00" * 4, b"\x00" * 8
    columns = RouteColumns(("t",), four, four, four, four, eight, b"\x01", four)
    assert RouteRows.decoded(columns).ready.tolist() == [True]
    table = RouteTable()

    broken = msgspec.structs.replace(columns, **change)

    with pytest.raises(MalformedMessage):
        table.apply(Snapshot(Version(1, 1), 0.0, (), broken))
    assert table.version == Version(-1, -1)


def test_report_about_an_earlier_leadership_changes_nothing() -> None:
    one = np.array([0], np.int32)
    readiness = Readiness()

    def ready(leader_epoch: int) -> bool:
        return bool(readiness.of(one, one, np.array([leader_epoch], np.int32))[0])

    def put(leader_epoch: int, is_ready: bool) -> None:
        readiness.put(np.array([0]), one, one, np.array([leader_epoch], np.int32), np.array([is_ready]))

    put(3, True)
    put(2, True)
    put(2, False)
    assert ready(3)
    assert not ready(2)
    put(3, False)
    assert not ready(3)


def test_leader_stays_ready_while_only_the_isr_changes() -> None:
    one = np.array([0], np.int32)
    readiness = Readiness()

    def ready(leader_epoch: int, since: int) -> bool:
        return bool(readiness.of(one, one, np.array([leader_epoch], np.int32), np.array([since], np.int32))[0])

    readiness.put(np.array([0]), one, one, np.array([3], np.int32), np.array([True]))
    assert ready(5, since=3)
    assert ready(5, since=2)
    assert not ready(5, since=4)
    # The leadership has ended before the report about its last epoch was sent.
    readiness.put(np.array([0]), one, one, np.array([5], np.int32), np.array([False]))
    assert not ready(5, since=3)
