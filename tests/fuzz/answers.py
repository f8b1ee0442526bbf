"""Targets of the fuzzer for answers of servers that kactl asks, for headers and queries of clients, and for files.

A server may be another one than it should be, or its answers may be damaged: they are hostile bytes, too.
"""

import asyncio
import codecs
import functools
import io
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec
import numpy as np
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes

from kactl.admin import audit_file, examples, route, schema
from kactl.admin.identity import run_file
from kactl.admin.problem import Refused
from kactl.admin.routes.route_table import ROUTES
from kactl.admin.schema import ControllerInfo
from kactl.cli import api_client, partition_files
from kactl.cli.compat import kafka_leader_election, topic_options
from kactl.cli.exits import Failure
from kactl.cli.sse import EventStream
from kactl.decide.messages import log
from kactl.decide.messages.control import (
    KafkaResponse,
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionErrors,
    StopReplicaResponse,
    UpdateMetadata,
    UpdateMetadataResponse,
)
from kactl.fencing import HEADER, HeaderFence
from kactl.forensics import tables
from kactl.forensics.jobs import catalog
from kactl.forensics.storage import Location
from kactl.forensics.text.json_lines import Elements, plain
from kactl.forensics.text.source import Broken, Transcoded
from kactl.forensics.whatif.snapshots import file as snapshot
from kactl.forensics.whatif.snapshots import racks
from kactl.forensics.whatif.tables import BadSnapshot
from kactl.model import PartitionState
from kactl.model.errors import BadConfig, BadRequest, MalformedMessage, StaleToken, StoreUnavailable
from kactl.security.access import tickets
from kactl.security.access.role import Role
from kactl.stores.etcd import calls, http2, messages
from kactl.stores.etcd.calls import EtcdError
from kactl.stores.etcd.http2 import ConnectionLost, NotExecuted
from kactl.stores.zookeeper import request, state_reads
from kactl.stores.zookeeper.connection import frames as zookeeper
from kactl.stores.zookeeper.delete_multi import PartitionsDeletion
from kactl.transports.kafka.codec import Decoder
from kactl.transports.kafka.credentials import BrokerCredentials, LoginConnection, LoginFailed
from kactl.transports.kafka.listener.counters import PeerRejected
from kactl.transports.kafka.listener.frames import Frames
from kactl.transports.kafka.listener.limits import Limits
from kactl.transports.kafka.listener.pools import Pool, Share
from kactl.transports.tcp import wire
from tests.support.kio_codec import response_bytes
from tests.transports.kafka.test_request import LEAD, STOP, TOPIC, UPDATE, spoken

from .files import folder, from_file, run, text
from .seeds import BAD_JSON, KACTL, PARTITION_ERRORS
from .target import MEMORY_FIXED, SLOW, VERY_SLOW, Target, Violation

_KEY: Final = bytes(tickets.KEY_BYTES)
_TICKET: Final = tickets.signed(tickets.ticket_of_user("a", Role.VIEWER, now_ms=0), _KEY)
_FENCE: Final = f"t-0;7.9;{'01' * 16}"
_FRAME: Final = b"\0\0\0\x0c\0\x12\0\0\0\0\0\1\0\2ab"
# Answers to SaslHandshake and SaslAuthenticate.
_OFFER: Final = b"\0\0\0\0" + b"\0\0" + b"\0\0\0\1" + b"\0\x0dSCRAM-SHA-256"
_REFUSED_OFFERS: Final = [_OFFER.replace(bytes(6), bytes(5) + code, 1) for code in (b"\x21", b"\1")]
_TRUSTED: Final = [
    b"".join(len(answer).to_bytes(4, "big") + answer for answer in (_OFFER, *answers))
    for answers in (
        (bytes(4) + b"\0\0\xff\xff" + len(each).to_bytes(4, "big") + each + bytes(8) for each in rounds)
        for rounds in ((b"r=x,s=c2FsdA==,i=4096", b"v=AAAA"), (b"e=other-error",), (b"", b"", b""))
    )
]
_LOGINS: Final = (
    _TRUSTED
    + [len(answer).to_bytes(4, "big") + answer for answer in (*_REFUSED_OFFERS, b"ab", b"\1" * 9)]
    + [
        _TRUSTED[0][: 4 + len(_OFFER)] + size + bytes(4) + code + b"\0\3bad" + bytes(12)
        # The last one is smaller than its fields.
        for size, code in ((b"\0\0\0\x17", b"\0\x3a"), (b"\0\0\0\x17", b"\0\1"), (b"\0\0\0\x13", b"\0\x3a"))
    ]
)
_STAT: Final = struct.pack("!qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 0, 2, 0, 9)
_END: Final = struct.pack("!i?i", -1, True, -1)
_MISSING: Final = struct.pack("!i?ii", -1, False, -101, -101)
_FOUND_HEAD: Final = struct.pack("!i?i", 4, False, 0)
_FOUND: Final = _FOUND_HEAD + struct.pack("!i", 2) + b"{}" + _STAT
_MANIFEST: Final = tables.Manifest(
    made_by="0.1", time_zone="UTC", time_ms=1, sources=("a",), files=1, lines=2, events=3, unparsed=0
)
# What the connection reports as the error of the request; it catches every exception.
_CUT: Final = (struct.error, ValueError, IndexError)
_BAD_EVENTS: Final = [
    b"data: \xff\n\n", b"data: " + b"[" * 3000 + b"\n\n", b"retry: " + b"9" * 5000 + b"\n\n", "retry: ٣\n\n".encode()
]  # fmt: skip
_DESCRIBED_TOPIC: Final = (
    b"Topic: t\tPartitionCount: 1\tConfigs: min.insync.replicas=2,unclean.leader.election.enable=true\n"
)
# A row of a snapshot becomes Arrow columns, which are larger than an input.
_ARROW: Final = 2**20
# The state of HTTP/2 on both sides of a header.
_CONNECTION_BYTES_MAX: Final = 2**20
_T = TypeVar("_T")


def targets() -> list[Target]:
    return [*_of_clients(), *_of_brokers(), *_of_zookeeper(), *_of_etcd(), *_of_servers(), *_of_files()]


def _of_clients() -> list[Target]:
    queries = {each.takes_query for each in ROUTES} | {each.takes_path for each in ROUTES}
    return [
        Target("tickets", text(_ticket), (), [_TICKET.encode(), _TICKET[:-1].encode() + b"C"]),
        Target("fencing headers", text(_admitted), (BadRequest, StaleToken), [_FENCE.encode()]),
        *(
            Target(f"parameters {kind.__name__}", functools.partial(_parameters, kind), (Refused,), _pairs(kind))
            for kind in sorted(queries, key=lambda kind: kind.__name__)
        ),
    ]


def _of_brokers() -> list[Target]:
    """The answers to the requests of a controller. Each level has one encoding or two."""
    by_name = b"\0\0\0\x09\0\0\0\x02\2t\0\0\0\3\0\0\0\0"
    by_id = b"\0\0\0\x09\0\0\0\x02" + bytes(range(1, 17)) + b"\x02\0\0\0\0\0\0\0\0\0"
    return [
        Target(
            f"answers to {type(asked).__name__} {level}",
            functools.partial(_answered, Decoder(spoken(level)), asked),
            (MalformedMessage,),
            [_valid(asked, level), b"\0\0\0\x09\0\0\0\0", by_name, by_id, *PARTITION_ERRORS],
        )
        for level in ("2.6", "3.9")
        for asked in (LEAD, UPDATE, STOP)
    ] + [
        Target(
            "logins of brokers",
            lambda data: run(_log_in(data)),
            (LoginFailed, asyncio.IncompleteReadError),
            _LOGINS,
            rarity=SLOW,
        ),
        Target(
            "Kafka frames", lambda data: run(_kafka_frames(data)), (PeerRejected,), [_FRAME, _FRAME * 3], rarity=SLOW
        ),
    ]


def _valid(asked: Any, level: str) -> bytes:
    """Returns a response as another implementation writes it."""
    number = np.zeros(1, np.int32)
    errors = PartitionErrors((TOPIC.name,), number, number, np.zeros(1, np.int16))
    answer: KafkaResponse
    match asked:
        case UpdateMetadata():
            answer = UpdateMetadataResponse(0)
        case LeaderAndIsr():
            answer = LeaderAndIsrResponse(0, errors)
        case _:
            answer = StopReplicaResponse(0, errors)
    return response_bytes(asked, answer, spoken(level), correlation_id=9)


def _answered(decoder: Decoder, asked: Any, data: bytes) -> str:
    return type(decoder.response(asked, 9, data)).__name__


class _Received:
    """Both interfaces of a stream whose bytes have all arrived."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def peek(self, size: int) -> bytes:
        return self._data[:size]

    def take(self, size: int) -> bytes:
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    async def read(self, size: int) -> bytes:
        return self.take(size)

    async def readexactly(self, size: int) -> bytes:
        piece = await self.read(size)
        if len(piece) < size:
            raise asyncio.IncompleteReadError(piece, size)
        return piece

    def write(self, data: bytes) -> None:
        pass


async def _log_in(data: bytes) -> None:
    received = _Received(data)
    credentials = BrokerCredentials(mechanism="SCRAM-SHA-256", username="kactl", password="pencil")
    await LoginConnection(credentials, received, received, client_id="kactl", host="b1").run()
    raise Violation("a broker without the password has been trusted")


async def _kafka_frames(data: bytes) -> list[int]:
    pool, sizes = Pool(2**20, 2**20, "clients"), list[int]()
    frames = Frames(_Received(data), Limits(), Share(pool, "a", timeout_s=0.0))  # type: ignore[arg-type]
    while (head := await frames.head()) is not None:
        sizes.append(len(await frames.rest(head)))
    return sizes


def _of_zookeeper() -> list[Target]:
    state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":7,"isr":[1,1,2]}'
    found = [_FOUND_HEAD + struct.pack("!i", size) + data + _STAT for size, data in ((-1, b""), (len(state), state))]
    answers = [_FOUND + _MISSING + _END, _END, _FOUND * 3 + _END, *(each + _END for each in found)]
    deletion = PartitionsDeletion("/f", 1, [("/t", np.array([0], np.int32))])
    done = struct.pack("!i?i", 13, False, 0) + struct.pack("!i?i", 2, False, 0) * 2 + _END
    identities = struct.pack("!i", 1) + struct.pack("!i", 2) + b"ip" + struct.pack("!i", 3) + b"::1"
    return [
        Target("ZooKeeper frames", _frames, (zookeeper.MalformedFrame,), [b"\0\0\0\3abc" * 4 + b"\0\0\0\0"]),
        Target("ZooKeeper reads", lambda data: request.MultiRead.deserialize(data, 0), _CUT, answers),
        Target("ZooKeeper states", lambda data: type(state_reads._decode(data, 0)).__name__, _CUT, answers),
        Target("ZooKeeper deletions", lambda data: deletion.deserialize(data, 0), _CUT, [done, _MISSING * 3 + _END]),
        Target("ZooKeeper identities", lambda data: request.WhoAmI.deserialize(data, 0), _CUT, [identities]),
    ]


def _of_etcd() -> list[Target]:
    key = {"key": b"a", "create_revision": 1, "mod_revision": 2, "version": 3, "value": b"b", "lease": 4}
    header = {"revision": 7}
    txn = {"header": header, "succeeded": True, "responses": [{"response_range": {"kvs": [key]}}, {}]}
    watched = {"header": header, "fragment": True, "events": [{"type": messages.DELETE, "kv": key}]}
    responses: list[tuple[messages.Decoder[Any], str, dict[str, Any]]] = [
        (messages.range_response, "RangeResponse", {"header": header, "kvs": [key], "more": True}),
        (messages.txn_response, "TxnResponse", txn),
        (messages.executed, "TxnResponse", txn),
        (messages.lease_response, "LeaseResponse", {"ID": 5, "TTL": 9}),
        (messages.watch_response, "WatchResponse", watched),
        (messages.watch_response, "WatchResponse", {"canceled": True, "compact_revision": 5, "cancel_reason": "x"}),
        (messages.members_response, "MembersResponse", {"members": [{"ID": 5}]}),
        (messages.token_response, "TokenResponse", {"token": "abc.5"}),
    ]
    encoded = [(decoder, messages.CLASSES[name](**fields).SerializeToString()) for decoder, name, fields in responses]
    connection = (EtcdError, ConnectionLost, NotExecuted)
    return [
        *(
            Target(f"etcd {number}", decoder.parse, (StoreUnavailable,), [data])
            for number, (decoder, data) in enumerate(encoded)
        ),
        Target(
            "etcd connections", _called, connection, _connections(), rarity=SLOW, memory_fixed=_CONNECTION_BYTES_MAX
        ),
    ]


def _called(data: bytes) -> list[bytes]:
    """Returns the responses to a call, whose server sends these bytes and closes the connection."""
    connection, stream = _opened(_Discarded())
    connection.data_received(data)
    connection.connection_lost(None)
    call, read = calls._Call(stream), []
    try:
        while (response := _result(call.response())) is not None:
            read.append(response)
        call.check_status()
    finally:
        call.close()
    return read


def _opened(transport: "_Discarded") -> tuple[http2.Connection, http2.Stream]:
    connection = http2.Connection(lambda: 0.0)
    connection.connection_made(cast(asyncio.Transport, transport))
    stream = _result(connection.stream([(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]))
    _result(stream.send(b"", end=True))
    return connection, stream


def _result(work: Coroutine[Any, Any, _T]) -> _T:
    """Returns the result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(_T, done.value)
    raise AssertionError("it waits")


class _Discarded:
    """A transport without a peer. `data` is what was written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def get_write_buffer_size(self) -> int:
        return len(self.data)

    def abort(self) -> None:
        pass


def _connections() -> list[bytes]:
    """Returns what servers send: a response, a rejection, and the end of a connection."""
    seeds = []
    for send in (_respond, _reject, lambda server: server.close_connection(last_stream_id=0), _acknowledge):
        transport = _Discarded()
        _opened(transport)
        server = H2Connection(H2Configuration(client_side=False))
        server.initiate_connection()
        server.receive_data(transport.data)
        send(server)
        seeds.append(server.data_to_send())
    return seeds


_STREAM: Final = 1
_STATUS: Final = (":status", "200")


def _respond(server: H2Connection) -> None:
    server.send_headers(_STREAM, [_STATUS, ("content-type", "application/grpc")])
    server.send_data(_STREAM, b"\0\0\0\0\1a\0\0\0\0\0", pad_length=3)
    server.send_headers(_STREAM, [("grpc-status", "0"), ("grpc-message", "")], end_stream=True)


def _reject(server: H2Connection) -> None:
    server.send_headers(_STREAM, [_STATUS, ("grpc-status", "16"), ("grpc-message", "etcdserver%3A x")], end_stream=True)


def _acknowledge(server: H2Connection) -> None:
    server.increment_flow_control_window(1_000)
    server.increment_flow_control_window(1_000, _STREAM)
    server.ping(bytes(8))
    server.reset_stream(_STREAM, ErrorCodes.REFUSED_STREAM)


def _of_servers() -> list[Target]:
    """Answers of a kactl server, as commands read them."""
    problem = (
        b'{"type":"about:blank","title":"Bad request","status":400,"detail":"x","errors":[{"field":"a","detail":"b"}]}'
    )
    kinds = (schema.BrokerEvent, schema.PartitionEvent, schema.ResetEvent)
    events = [b"retry: 100\nid: 1\ndata: " + _json(kind) + b"\n\n" for kind in kinds]
    return [
        Target("problems", lambda data: str(api_client.refusal("s", 400, data)), (), [problem, *BAD_JSON]),
        Target(
            "answers",
            lambda data: api_client._decoded("s", data, ControllerInfo),
            (Failure,),
            [_json(ControllerInfo), *BAD_JSON],
        ),
        Target(
            "event streams", _events, (Failure,), [*events, b"".join(events), b": ping\n\ndata: {}\n\n", *_BAD_EVENTS]
        ),
        Target(
            "answers of controllers",
            _answer,
            (MalformedMessage,),
            [
                bytes([number]) + piece
                for number in range(40)
                for piece in (b"\xc0", b"\x91\x01", b"\x80", b"\x01", b"\xa0")
            ],
        ),
    ]


def _of_files() -> list[Target]:
    partitions = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    twice = partitions.replace(b"]}]", b']},{"topic":"t","partition":0}]')
    named = [partitions, twice, b'{"version":1,"topics":[{"topic":"t"}]}']
    record = _json(schema.AuditRecord) + b"\n"
    described = b"\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\n"
    item = b'{"topic":"t","partition":0,"leader":1,"replicas":[1,2],"isr":[1],"min_insync_replicas":1}'
    pages = [b'{"items":[' + item + b'],"matched":1}', b"[" + item + b"]", item, item + b"\n" + item]
    brokers = [
        b'[{"id":1,"rack":"a","state":"live"}]',
        b'{"items":[{"id":1,"rack":"a"}]}',
        b'{"1":"a"}',
        b"1=a,2=b\n",
        b"1=a,1=b\n",
        b" ",
        b"b:9 (id: 1 rack: a) -> (\n",
    ]
    event = log.encode(log.BrokerEvent(seq=1, time_ms=2, controller_epoch=3, broker=1, broker_epoch=7, what="failed"))
    changed = log.encode(
        log.PartitionEvent(
            seq=1, time_ms=2, controller_epoch=3, topic="t", partition=0, from_state=PartitionState.OFFLINE,
            to_state=PartitionState.ONLINE, leader=1, leader_epoch=2, isr=(1, 2), partition_epoch=4,
        )
    )  # fmt: skip
    results = catalog.ResultsManifest(made_by="0.1", time_ms=1, ingest=_MANIFEST, jobs={})
    running = b'{"url":"http://127.0.0.1:8080","pid":1,"socket":"/s","token_file":"/t"}'
    return [
        *(
            Target(f"files {kind.__name__}", _partitions(kind), (Failure,), named)
            for kind in (partition_files.Targets, partition_files.NamesFile, partition_files.TopicsFile)
        ),
        Target(
            "files of elections",
            from_file("e.json", lambda path: kafka_leader_election._read(str(path))),
            (Failure,),
            named,
            rarity=SLOW,
            # The file is read with its limit.
            memory_fixed=MEMORY_FIXED + partition_files.FILE_BYTES_MAX,
        ),
        Target("topic ids", text(topic_options.check_id), (Failure,), [b"AAAAAAAAAAAAAAAAAAAAAQ"]),
        Target(
            "audit trails",
            from_file(audit_file.NAME, _audited),
            (BadConfig,),
            [record * 2, record + record.replace(b'"seq":', b'"seq":9'), b"", b"x"],
            rarity=SLOW,
        ),
        Target(
            "run files",
            from_file("127.0.0.1-80.json", lambda path: run_file.find(path.parent, "127.0.0.1", 80)),
            (),
            [running, *BAD_JSON],
            rarity=SLOW,
            memory_fixed=MEMORY_FIXED + run_file.BYTES_MAX,
        ),
        Target("events of kactl", log.decode, (msgspec.MsgspecError, UnicodeDecodeError), [event, changed, *KACTL]),
        Target(
            "snapshots",
            lambda data: snapshot.read_stream(io.BytesIO(data), "s")[1],
            (BadSnapshot,),
            [
                *pages,
                *(page.replace(b"[1,2]", b"[1,1]") for page in pages),
                *BAD_JSON,
                b"[]",
                b"[{",
                b"text",
                described * 2,
                described.replace(b"1,2", b"1,x"),
                b"Topic: t\tPartitionCount: 1\n" + described,
                _DESCRIBED_TOPIC,
                _DESCRIBED_TOPIC + b"another line\n" + described,
                described.decode().encode("utf-16"),
            ],
            rarity=VERY_SLOW,
            memory_fixed=_ARROW,
        ),
        Target("racks", lambda data: racks.of_text(data.decode(errors="replace"), "r").of, (BadSnapshot,), brokers),
        Target("UTF-16 files", _transcoded, (), [described.decode().encode("utf-16")[2:]]),
        Target(
            "logs in JSON",
            plain,
            (),
            [msgspec.json.encode({"log": described.decode(), "stream": "stdout"}) + b"\n", *BAD_JSON],
            rarity=SLOW,
        ),
        Target("exports of logs", _export, (MalformedMessage,), [b'{"message":"a"}]}', *BAD_JSON], rarity=SLOW),
        Target("manifests", _manifest, (tables.NotIngested,), [msgspec.json.encode(_MANIFEST), *BAD_JSON], rarity=SLOW),
        Target(
            "manifests of results",
            _results,
            (catalog.NoResults,),
            [msgspec.json.encode(results), *BAD_JSON],
            rarity=SLOW,
        ),
    ]


def _ticket(given: str) -> Any:
    found = tickets.read_ticket(given, _KEY, now_ms=1)
    assert found is None or given == _TICKET, f"{given!r} is accepted as a ticket"
    return found


def _pairs(kind: Any) -> list[bytes]:
    """Returns parameters that are of one kind, and of none."""
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    alone = [f"{name}={value}" for name in names for value in ("1", "a", "true", "partition,broker", "\ufffd")]
    twice = [f"{name}=1\0{name}=1" for name in names]
    return [each.encode() for each in ["", *alone, *twice, "\0".join(f"{name}=1" for name in names)]]


def _admitted(value: str) -> Any:
    return HeaderFence().admit({HEADER: value})


def _parameters(kind: Any, data: bytes) -> Any:
    entries = data.decode("utf-8", "replace").split("\0") if data else []  # as the router does
    given = [(name, value) for name, _, value in (each.partition("=") for each in entries)]
    # The router finds all parameters of a path.
    required = _required(kind)
    return route._parameters(kind, given + [(name, "1") for name in required - {name for name, _ in given}])


@functools.cache
def _required(kind: Any) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind) if field.required)


def _frames(data: bytes) -> list[bytes]:
    """Split at once and in pieces: both ways have the same frames."""
    found: list[list[bytes]] = []
    for size in (len(data) or 1, 3):
        frames, shown = zookeeper.Frames(bytes_max=10_000), list[bytes]()
        try:
            for begin in range(0, len(data), size):
                shown += frames.feed(data[begin : begin + size])
        except zookeeper.MalformedFrame:
            shown.append(b"malformed")
        found.append(shown)
    assert found[0] == found[1], f"{found[0]} at once, and {found[1]} in pieces"
    if found[0][-1:] == [b"malformed"]:
        raise zookeeper.MalformedFrame("malformed")
    return found[0]


def _json(kind: Any) -> bytes:
    return msgspec.json.encode(examples.example(kind))


def _events(data: bytes) -> list[str]:
    stream = EventStream(_Server(), after=0)  # type: ignore[arg-type]
    return [type(event).__name__ for event in stream._events(io.BytesIO(data))]  # type: ignore[arg-type]


class _Server:
    server = "s"


def _answer(data: bytes) -> Any:
    """Decode the answer to a request of each kind."""
    kinds = list(wire.requests.every_request())
    return wire.decode_answer(data[1:], kinds[data[0] % len(kinds)] if data else kinds[0])


def _partitions(kind: Any) -> Callable[[bytes], Any]:
    return lambda data: partition_files.decoded("f", data, kind)


def _audited(path: Path) -> Any:
    place = path.parent / "audit"
    place.mkdir(exist_ok=True)
    path.replace(place / path.name)
    audit_file.verify(place)
    return audit_file._last_seq(place)


def _transcoded(data: bytes) -> bytes:
    file, pieces = Transcoded(io.BytesIO(codecs.BOM_UTF16_LE + data)), list[bytes]()  # others are not recognised
    while piece := file.read(7):
        pieces.append(piece)
    return b"".join(pieces)


def _export(data: bytes) -> bytes:
    file = Elements(io.BytesIO(b'{"events":[' + data))
    try:
        return b"".join(iter(lambda: file.read(7), b""))
    except Broken:
        raise MalformedMessage("malformed") from None


def _manifest(data: bytes) -> Any:
    (folder() / tables.MANIFEST).write_bytes(data)
    return tables.read_manifest(Location(str(folder())))


def _results(data: bytes) -> Any:
    (folder() / tables.JOBS_MANIFEST).write_bytes(data)
    return catalog._read_manifest(Location(str(folder())), _MANIFEST)
