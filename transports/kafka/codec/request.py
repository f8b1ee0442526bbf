"""Encoding of requests to brokers into frames.

The parts that many brokers receive are encoded once: the partitions for the lifetime of the object that holds them, and
the live brokers by their tuple. Only a few bytes of each frame differ between recipients. If several brokers receive
some of the same partitions, `FanOutBodies` assembles the bodies from the bytes of each partition.
"""

import struct
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kactl.decide.messages.control import KafkaRequest, LeaderAndIsr, PartitionStates, StopReplica, UpdateMetadata
from kactl.decide.outbound.request_columns import FanOut, PartitionStatesView
from kactl.decide.state.rows import Ints
from kactl.model import Broker, Endpoint
from kactl.model.errors import IllegalState

from .primitive import NO_TAGS, array, nullable_string, string
from .row import BOOL, INT8, INT32, LIST, Columns, Layout, Records, TopicHeaderCache, TopicHeaders, topics_in_bytes
from .version import Versions

LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6

# A batch makes one body for everybody and one per broker; a broker that lags by more batches than this costs another
# encoding, and no more memory.
_KEPT_BODIES: Final = 16

_LEADERSHIP: Final[Layout] = (
    ("partition", INT32),
    ("controller_epoch", INT32),
    ("leader", INT32),
    ("leader_epoch", INT32),
    ("isr", LIST),
    ("partition_epoch", INT32),
    ("replicas", LIST),
)
_LEADER_AND_ISR: Final[Layout] = (*_LEADERSHIP, ("adding", LIST), ("removing", LIST), ("is_new", BOOL))
_LEADER_AND_ISR_6: Final[Layout] = (*_LEADER_AND_ISR, ("recovering", INT8))
_UPDATE_METADATA: Final[Layout] = (*_LEADERSHIP, ("offline_replicas", LIST))
_STOP_REPLICA: Final[Layout] = (("partition", INT32), ("leader_epoch", INT32), ("delete", BOOL))

# Source: the protocol's table of security protocols.
_SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

_NOT_KRAFT: Final = b"\0"
_INCREMENTAL: Final = b"\0"  # what a controller over ZooKeeper calls every LeaderAndIsr

_Body = tuple[type[LeaderAndIsr] | type[UpdateMetadata], memoryview]
# Rows that are copied into bodies at a time, unless a single broker has more; a row takes 0.07 microseconds.
ROWS_AT_ONCE: Final = 1 << 14


class Frame(msgspec.Struct, frozen=True):
    """One request with its length before it, in pieces to be sent one after another; `size` is that of all of them."""

    buffers: tuple[bytes | memoryview, ...]
    size: int


class Encoder:
    """Encodes requests in the versions of one cluster. Thread-safe.

    Args:
        client_id: the controller's client id in every request.
        listener_name: the listener that provides the address of a leader in LeaderAndIsr.
    """

    def __init__(self, versions: Versions, *, client_id: str, listener_name: str) -> None:
        self._versions = versions
        self._listener_name = listener_name
        name = client_id.encode()
        self._client_id = struct.pack(">h", len(name)) + name
        self._bodies = _Bodies()
        self._with_ids = TopicHeaderCache(ids=True)
        self._without_ids = TopicHeaderCache(ids=False)
        self._brokers: tuple[tuple[Broker, ...], bytes] | None = None
        self._live: tuple[tuple[Broker, ...], bytes] | None = None
        self._leaders: dict[int, tuple[Broker, bytes]] = {}
        self._layout = _LEADER_AND_ISR_6 if versions.leader_and_isr >= 6 else _LEADER_AND_ISR
        self._groups = FanOutBodies(self._layout)

    def frame(self, request: KafkaRequest, correlation_id: int) -> Frame:
        """Returns the encoded request.

        Raises:
            IllegalState: an endpoint of a live broker has a protocol that Kafka does not have.
        """
        match request:
            case LeaderAndIsr():
                key, version = LEADER_AND_ISR, self._versions.leader_and_isr
                kind = _INCREMENTAL if version >= 5 else b""
                opening = _sender(request, kraft=version >= 7) + kind
                body = (self._states(request, self._leader_and_isr), self._live_leaders(request.live_leaders))
            case UpdateMetadata():
                key, version = UPDATE_METADATA, self._versions.update_metadata
                opening = _sender(request, kraft=version >= 8)
                body = (self._states(request, self._update_metadata), self._live_brokers(request.live_brokers))
            case StopReplica():
                key, version = STOP_REPLICA, self._versions.stop_replica
                opening = _sender(request, kraft=version >= 4)
                body = (self._stop_replica(request), b"")
        states, rest = body
        header = struct.pack(">hhi", key, version, correlation_id) + self._client_id + NO_TAGS
        end = rest + NO_TAGS
        size = len(header) + len(opening) + len(states) + len(end)
        return Frame((struct.pack(">i", size) + header + opening, states, end), 4 + size)

    def is_encoded(self, states: PartitionStates) -> bool:
        """Returns whether these partitions are encoded already."""
        return self._bodies.get(states) is not None

    def is_light(self, states: PartitionStates, rows_max: int) -> bool:
        """Returns whether `frame` takes at most as long as encoding `rows_max` rows."""
        if isinstance(states, PartitionStatesView) and states.fan_out is not None:
            return self._groups.is_light(states.fan_out, states.place, rows_max)
        return len(states) <= rows_max or self.is_encoded(states)

    def _states(
        self, request: LeaderAndIsr | UpdateMetadata, encode: Callable[[PartitionStates], memoryview]
    ) -> memoryview:
        states = request.states
        if isinstance(states, PartitionStatesView):
            # One broker's own.
            return encode(states)
        cached = self._bodies.get(states)
        if cached is not None and cached[0] is type(request):
            return cached[1]
        body = encode(states)
        self._bodies.put(states, (type(request), body))
        return body

    def _leader_and_isr(self, states: PartitionStates) -> memoryview:
        ids = self._versions.leader_and_isr >= 5
        if isinstance(states, PartitionStatesView) and states.fan_out is not None:
            common = states.fan_out.states
            body = self._groups.body(states, lambda: self._headers(common, ids=ids))
            if body is not None:
                return body
        return _partitions(self._layout, states, self._headers(states, ids=ids))

    def _live_leaders(self, leaders: tuple[Broker, ...]) -> bytes:
        """Where leaders are. One that lacks the listener is left out; brokers look among the live brokers anyway."""
        cached = self._live
        if cached is None or cached[0] != leaders:
            # Usually the same leaders as in the request to the previous broker.
            live = array([live for leader in leaders if (live := self._live_leader(leader))])
            cached = self._live = leaders, live
        return cached[1]

    def _live_leader(self, leader: Broker) -> bytes:
        cached = self._leaders.get(leader.id)
        if cached is None or cached[0] is not leader:
            endpoint = endpoint_of(leader, self._listener_name)
            where = b"" if endpoint is None else string(endpoint.host) + struct.pack(">i", endpoint.port) + NO_TAGS
            cached = self._leaders[leader.id] = leader, where and struct.pack(">i", leader.id) + where
        return cached[1]

    def _update_metadata(self, states: PartitionStates) -> memoryview:
        ids = self._versions.update_metadata >= 7
        return _partitions(_UPDATE_METADATA, states, self._headers(states, ids=ids))

    def _stop_replica(self, request: StopReplica) -> memoryview:
        headers = self._headers(request, ids=False)
        return topics_in_bytes(_STOP_REPLICA, columns_of(request, _STOP_REPLICA), headers, request.topic)

    def _headers(self, named: PartitionStates | StopReplica, *, ids: bool) -> TopicHeaders:
        return (self._with_ids if ids else self._without_ids).of(named.topics)

    def _live_brokers(self, brokers: tuple[Broker, ...]) -> bytes:
        cached = self._brokers
        if cached is None or cached[0] is not brokers:
            cached = self._brokers = (brokers, array([_broker(broker) for broker in brokers]))
        return cached[1]


class _Bodies:
    """Cache of the last few bodies by the object that they were encoded from; none outlives its object."""

    def __init__(self) -> None:
        # Reentrant, because an object may die, and `_forget` be called, while this very thread holds it.
        self._lock = threading.RLock()
        self._kept: OrderedDict[int, tuple[weakref.ref[PartitionStates], _Body]] = OrderedDict()

    def get(self, states: PartitionStates) -> _Body | None:
        with self._lock:
            cached = self._kept.get(id(states))
            if cached is None or cached[0]() is not states:
                return None
            self._kept.move_to_end(id(states))
            return cached[1]

    def put(self, states: PartitionStates, body: _Body) -> None:
        key = id(states)
        with self._lock:
            self._kept[key] = weakref.ref(states, lambda _: self._forget(key)), body
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT_BODIES:
                self._kept.popitem(last=False)

    def _forget(self, key: int) -> None:
        with self._lock:
            self._kept.pop(key, None)


def _sender(request: KafkaRequest, *, kraft: bool) -> bytes:
    """Returns the controller id and the epochs. `kraft` is true if the version has a field for a KRaft controller."""
    return (
        struct.pack(">i", request.controller_id)
        + (_NOT_KRAFT if kraft else b"")
        + struct.pack(">iq", request.controller_epoch, request.broker_epoch)
    )


def _partitions(layout: Layout, states: PartitionStates, headers: TopicHeaders) -> memoryview:
    return topics_in_bytes(layout, columns_of(states, layout), headers, states.topic)


def endpoint_of(broker: Broker, listener_name: str) -> Endpoint | None:
    """Returns the endpoint of the broker's listener with that name; None if there is none."""
    return next((endpoint for endpoint in broker.endpoints if endpoint.listener == listener_name), None)


def _broker(broker: Broker) -> bytes:
    endpoints = []
    for endpoint in broker.endpoints:
        protocol = _SECURITY_PROTOCOLS.get(endpoint.protocol)
        if protocol is None:
            raise IllegalState(
                f"broker {broker.id}: listener {endpoint.listener} has the protocol {endpoint.protocol}, "
                "which Kafka does not have: its registration should have been refused"
            )
        names = string(endpoint.host) + string(endpoint.listener)
        endpoints.append(struct.pack(">i", endpoint.port) + names + struct.pack(">h", protocol) + NO_TAGS)
    return struct.pack(">i", broker.id) + array(endpoints) + nullable_string(broker.rack) + NO_TAGS


class _Making:
    """Progress of the bodies of one `FanOut`."""

    __slots__ = ("bodies", "made", "records")

    def __init__(self, count: int) -> None:
        self.records: Records | None = None
        self.made = bytearray(count)  # 1 for each broker with a body that has been assembled
        self.bodies: dict[int, memoryview] = {}  # assembled and not returned yet


class FanOutBodies:
    """Bodies for several brokers with common partitions, by their content. May be used by several threads.

    The first caller encodes every partition, and assembles the bodies of the brokers that follow along with its own. A
    body is returned once and then dropped: each broker has its own body, and a second delivery encodes it again.

    Args:
        layout: of one partition.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._lock = threading.RLock()  # reentrant, because a Told may die while this very thread holds it
        self._makings: weakref.WeakKeyDictionary[FanOut, _Making] = weakref.WeakKeyDictionary()

    def is_light(self, fan_out: FanOut, place: int, rows_max: int) -> bool:
        """Returns whether `body` takes at most as long as encoding `rows_max` rows."""
        with self._lock:
            making = self._makings.get(fan_out)
            if making is not None and place in making.bodies:
                return True
            if making is not None and making.records is not None:
                return fan_out.size_of(place) <= ROWS_AT_ONCE
        rows = fan_out.size_of(place) if making is not None and making.made[place] else len(fan_out.states)
        return rows <= rows_max

    def body(self, states: PartitionStatesView, headers: Callable[[], TopicHeaders]) -> memoryview | None:
        """Body of the request to one broker; None if it was handed out already.

        Args:
            headings: makes those of `states.fan_out.states.topics`.
        """
        fan_out = states.fan_out
        assert fan_out is not None
        with self._lock:
            making = self._makings.setdefault(fan_out, _Making(len(fan_out)))
            body = making.bodies.pop(states.place, None)
            if body is not None or making.made[states.place]:
                return body
            places = _next(fan_out, states.place, making.made)
            for place in places:
                making.made[place] = 1
            records = making.records
        if records is None:
            records = Records(self._layout, columns_of(fan_out.states, self._layout), len(fan_out.states))
        begin = fan_out.bounds[places.start]
        bounds = [bound - begin for bound in fan_out.bounds[places.start : places.stop + 1]]
        positions = fan_out.positions[begin : begin + bounds[-1]]
        topic: Ints = fan_out.states.topic[positions]
        bodies = records.arrays(positions, bounds, headers(), topic)
        with self._lock:
            making.bodies.update(zip(places, bodies, strict=True))
            making.records = None if all(making.made) else records
            return making.bodies.pop(states.place)


def columns_of(states: Any, layout: Layout) -> Columns:
    return {name: getattr(states, name) for name, _ in layout}


def _next(fan_out: FanOut, place: int, made: bytearray) -> range:
    """Returns the places, from `place` on, of the bodies to assemble next."""
    end = place + 1
    while end < len(fan_out) and not made[end] and fan_out.bounds[end + 1] - fan_out.bounds[place] <= ROWS_AT_ONCE:
        end += 1
    return range(place, end)
