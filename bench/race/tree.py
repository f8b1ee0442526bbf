"""ZooKeeper client of the race: it creates the cluster, performs the writes of brokers and administrators, and reads.

Nodes have the format of Kafka 3.9. A cluster of 200,000 partitions has 420,000 nodes, created in transactions of a
thousand.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Self, TypeVar

import numpy as np
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import NoNodeError, ZookeeperError
from kazoo.protocol.serialization import Create, SetData
from kazoo.security import OPEN_ACL_UNSAFE

from bench.clusters import Shape
from kactl.model import Assignment, TopicPartition
from kactl.stores.formats import records
from kactl.stores.formats.admin_records import encode_preferred_election
from kactl.stores.zookeeper import layout
from tests.support.processes import HarnessError

# Id in /controller while the race holds the controllership, so that contenders stand by. No broker has this id.
HOLDER: Final = 9900

_CONNECT_S: Final = 30.0
_SESSION_S: Final = 30.0
_NODES_AT_ONCE: Final = 1000
_WRITES_AT_ONCE: Final = 500
# Transactions in flight: few large ones, many small ones.
_IN_FLIGHT: Final = 8
_SMALL_IN_FLIGHT: Final = 100
_READS_IN_FLIGHT: Final = 500
# Partitions per notification of changed ISRs.
_NOTIFIED_AT_ONCE: Final = 3000
# The server's byte code is compiled after about ten thousand executions.
_WARM_READS: Final = 20_000
_WARM_WRITES: Final = 3000
_SCRATCH: Final = "/race-scratch"
_POLL_S: Final = 0.01

T = TypeVar("T")


class Owner:
    """Owner of /controller.

    Attributes:
        number: transaction that created the node, which identifies the election.
        since: monotonic seconds, with the resolution of ZooKeeper's milliseconds.
    """

    __slots__ = ("id", "number", "since")

    def __init__(self, data: bytes, stat: Any) -> None:
        self.id = records.decode_controller(data)[0]
        self.number: int = stat.czxid
        self.since = stat.ctime / 1000 - time.time() + time.monotonic()


class Tree:
    """A client that is connected during the whole run; `requests` counts its own requests, which are subtracted."""

    def __init__(self, connect: str, shape: Shape) -> None:
        """Connects.

        Raises:
            HarnessError: ZooKeeper cannot be reached.
        """
        self.shape = shape
        self.requests = 0
        self._assignments = shape.assignments()
        self._client = KazooClient(connect, timeout=_SESSION_S)
        try:
            self._client.start(timeout=_CONNECT_S)
        except self._client.handler.timeout_exception:
            raise HarnessError(f"no ZooKeeper at {connect} within {_CONNECT_S:g} s") from None

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Creates the cluster with preferred leaders and complete ISRs."""
        nodes = itertools.chain(self._parents(), self._topics())
        self._in_transactions(nodes, _NODES_AT_ONCE)

    def warm(self) -> None:
        """Executes typical requests, so that the server's byte code is compiled before the first contender.

        The number of requests is limited by the size of the cluster.
        """
        self._request(self._client.create, _SCRATCH, b"")
        for _ in range(2):
            self._states(range(0, self.shape.partitions, max(1, self.shape.partitions // _WARM_READS)))
            self._in_transactions(
                (SetData(_SCRATCH, b"", -1) for _ in range(min(_WARM_WRITES, self.shape.partitions))), 1
            )

    def led_by(self, broker: int) -> list[int]:
        """Returns the partitions whose preferred leader is a broker."""
        return [int(number) for number in np.flatnonzero(self._assignments.replicas[0] == broker)]

    def followed_by(self, broker: int) -> list[int]:
        """Returns the partitions of which a broker has a replica but not the preferred one."""
        return [int(number) for number in np.flatnonzero((self._assignments.replicas[1:] == broker).any(axis=0))]

    def partitions_of(self, topics: Sequence[int]) -> list[int]:
        """Returns all partitions of topics, which are given by their numbers."""
        per_topic = self.shape.per_topic
        return [topic * per_topic + number for topic in topics for number in range(per_topic)]

    # -- the controllership --------------------------------------------------------------------------------------------

    def hold(self) -> Owner:
        """Takes the controllership."""
        data = records.encode_controller(HOLDER, 0)
        self._request(self._client.create, layout.CONTROLLER, data, ephemeral=True)
        owner = self.owner()
        assert owner is not None
        return owner

    def owner(self) -> Owner | None:
        """Returns the current controller; None if there is none."""
        try:
            return Owner(*self._request(self._client.get, layout.CONTROLLER))
        except NoNodeError:
            return None

    def depose(self) -> float:
        """Deletes /controller; returns the time of the request."""
        at = time.monotonic()
        self._request(self._client.delete, layout.CONTROLLER)
        return at

    def next_owner(self, former: Owner | None, *, alive: Callable[[], None], limit_s: float) -> Owner:
        """Waits for another election. Returns the new owner.

        Args:
            alive: raises if no contender is left to be elected.

        Raises:
            HarnessError: no contender was elected.
        """

        def another() -> Owner | None:
            owner = self.owner()
            return None if owner is None or (former is not None and owner.number == former.number) else owner

        return self._until(another, "no controller was elected", alive=alive, limit_s=limit_s)

    # -- writes of brokers and administrators --------------------------------------------------------------------------

    def grow_isrs(self, numbers: Sequence[int]) -> None:
        """Writes complete ISRs, as leaders do when their followers have caught up."""
        writes = []
        for number, (data, stat) in zip(numbers, self._states(numbers), strict=True):
            state = records.decode_state(data)
            content = records.encode_state(
                state.leader,
                leader_epoch=state.leader_epoch,
                isr=self._replicas(number),
                controller_epoch=state.controller_epoch,
                recovering=False,
            )
            writes.append(SetData(self._state_path(number), content, stat.version))
        self._in_transactions(writes, _WRITES_AT_ONCE)

    def notify_isrs(self, numbers: Sequence[int]) -> float:
        """Notifies the controller of changed ISRs; returns the time of the first notification."""
        at = time.monotonic()
        for begin in range(0, len(numbers), _NOTIFIED_AT_ONCE):
            names = [self._name(number) for number in numbers[begin : begin + _NOTIFIED_AT_ONCE]]
            path = f"{layout.ISR_NOTIFICATIONS}/{layout.ISR_NOTIFICATION_PREFIX}"
            self._request(self._client.create, path, records.encode_isr_notification(names), sequence=True)
        return at

    def ask_preferred(self, numbers: Sequence[int]) -> float:
        """Requests preferred leader elections; returns the time of the request."""
        wanted = encode_preferred_election([self._name(number) for number in numbers])
        at = time.monotonic()
        self._request(self._client.create, layout.PREFERRED_ELECTION_REQUEST, wanted)
        return at

    def wait_preferred_done(self, *, alive: Callable[[], None], limit_s: float) -> None:
        """Waits until the controller has removed the request."""
        self._until(
            lambda: self._request(self._client.exists, layout.PREFERRED_ELECTION_REQUEST) is None or None,
            f"{layout.PREFERRED_ELECTION_REQUEST} was not removed",
            alive=alive,
            limit_s=limit_s,
        )

    def mark_deletions(self, topics: Sequence[int]) -> float:
        """Requests the deletion of topics in one transaction; returns the time of the request."""
        refs = self.shape.refs()
        marks = [_node(layout.deletion(refs[topic].name), None) for topic in topics]
        at = time.monotonic()
        self._in_transactions(marks, len(marks))
        return at

    def wait_deleted(self, *, alive: Callable[[], None], limit_s: float) -> float:
        """Waits until no request for a deletion is left; returns the time at which this was seen."""

        def gone() -> float | None:
            left = self._request(self._client.exists, layout.DELETIONS).children_count
            return None if left else time.monotonic()

        return self._until(gone, "topics were not deleted", alive=alive, limit_s=limit_s)

    def topics_left(self) -> int:
        """Returns the number of topics."""
        count: int = self._request(self._client.exists, layout.TOPICS).children_count
        return count

    def last_write(self, numbers: Sequence[int]) -> float:
        """Returns the time of the last write to the states of partitions, in monotonic seconds."""
        latest = max(stat.mtime for _, stat in self._states(numbers))
        return float(latest / 1000 - time.time() + time.monotonic())

    def registered(self, broker: int) -> bool:
        """Returns whether a broker is registered."""
        return self._request(self._client.exists, layout.broker(broker)) is not None

    # -- requests ------------------------------------------------------------------------------------------------------

    def _until(self, seen: Callable[[], T | None], failed: str, *, alive: Callable[[], None], limit_s: float) -> T:
        deadline = time.monotonic() + limit_s
        while (result := seen()) is None:
            alive()
            if time.monotonic() > deadline:
                raise HarnessError(f"{failed} within {limit_s:g} s")
            time.sleep(_POLL_S)
        return result

    def _request(self, method: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        self.requests += 1
        return method(*args, **keywords)

    def _parents(self) -> Iterator[Create]:
        yield from (_node(path, None) for path in layout.PERSISTENT)
        yield _node(layout.CLUSTER_ID, records.encode_cluster_id(records.encode_id(bytes(range(16)))))
        yield _node("/controller_epoch", records.encode_epoch(1))

    def _topics(self) -> Iterator[Create]:
        per_topic = self.shape.per_topic
        for index, ref in enumerate(self.shape.refs()):
            replicas = {number: self._replicas(index * per_topic + number) for number in range(per_topic)}
            assignment = {number: Assignment(brokers, (), ()) for number, brokers in replicas.items()}
            yield _node(layout.topic_config(ref.name), records.encode_config({}))
            yield _node(layout.topic(ref.name), records.encode_topic(ref.id, assignment))
            yield _node(layout.partitions(ref.name), None)
            for number, brokers in replicas.items():
                state = records.encode_state(
                    brokers[0], leader_epoch=0, isr=brokers, controller_epoch=1, recovering=False
                )
                yield _node(layout.partition(ref.name, number), None)
                yield _node(layout.state(ref.name, number), state)

    def _in_transactions(self, operations: Iterable[Any], at_once: int) -> None:
        """Performs operations in order, several per transaction, with several transactions in flight."""
        in_flight: list[Any] = []
        left = iter(operations)
        while chunk := list(itertools.islice(left, at_once)):
            transaction = TransactionRequest(self._client)
            transaction.operations.extend(chunk)
            in_flight.append(self._request(transaction.commit_async))
            if len(in_flight) > (_IN_FLIGHT if at_once > 1 else _SMALL_IN_FLIGHT):
                _done(in_flight.pop(0))
        for request in in_flight:
            _done(request)

    def _states(self, numbers: Sequence[int]) -> list[tuple[bytes, Any]]:
        """Returns the data and Stats of the state nodes of partitions."""
        states = []
        for begin in range(0, len(numbers), _READS_IN_FLIGHT):
            part = numbers[begin : begin + _READS_IN_FLIGHT]
            requests = [self._request(self._client.get_async, self._state_path(number)) for number in part]
            states += [request.get() for request in requests]
        return states

    def _replicas(self, number: int) -> tuple[int, ...]:
        return tuple(int(broker) for broker in self._assignments.replicas[:, number])

    def _name(self, number: int) -> TopicPartition:
        topic, partition = divmod(number, self.shape.per_topic)
        return TopicPartition(self._assignments.topics[topic].name, partition)

    def _state_path(self, number: int) -> str:
        name = self._name(number)
        return layout.state(name.topic, name.partition)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()


def _node(path: str, data: bytes | None) -> Create:
    return Create(path, data, OPEN_ACL_UNSAFE, 0)


def _done(transaction: Any) -> None:
    for result in transaction.get():
        if isinstance(result, ZookeeperError):
            raise HarnessError(f"ZooKeeper rejected a write of the race: {result!r}")
