"""Targets of the fuzzer for input of users, other programs and files: tokens, HTTP, the tcp network, TOML, logs."""

import contextlib
import dataclasses
import functools
import io
import ipaddress
import json
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from kactl.admin import cursor, origin
from kactl.admin.identity import token_file
from kactl.admin.problem import Refused
from kactl.admin.routes.route_table import ROUTES
from kactl.cli import context_file
from kactl.cli.exits import Failure
from kactl.config import file as config_file
from kactl.config.values import Duration
from kactl.decide.messages.control import LeaderAndIsr
from kactl.decide.messages.leases import LeaderEpochs, ReportLeaderships
from kactl.decide.messages.log import AnyEvent, PartitionEvent
from kactl.decide.messages.routes import Delta, RemovedRows, RouteRows, Snapshot
from kactl.forensics.event_types import Kind
from kactl.forensics.text import json_parser, probe, zone
from kactl.forensics.text.forms import Forms
from kactl.forensics.text.parser import Parser
from kactl.forensics.text.records import records
from kactl.forensics.text.source import Broken, Unpacked
from kactl.model import PartitionState, TopicRef
from kactl.model.errors import BadConfig, BadRequest, MalformedMessage
from kactl.security.access.tokens import TokenRecord, Tokens, hash_of, record_of, without_secrets
from kactl.transports.tcp import wire
from kactl.transports.tcp.framing import Bounds, FrameDecoder, Message, frames_of
from kactl.transports.tcp.framing import Kind as FrameKind
from kactl.transports.tcp.identity import Identity
from kactl.transports.tcp.wire.columns import Column, slots, values
from kactl.transports.tcp.wire.control import check_topics, topics_of
from tests.forensics.golden import GOLDEN
from tests.forensics.golden_kraft import KRAFT
from tests.transports.tcp.wire.recorded import encoded, samples

from .files import folder, from_file, text
from .seeds import CHANGED_REGISTRATIONS, COLUMNS, CONTINUED, ENVIRONMENT, FRAMES, GZIP, KACTL, PROBES, SETTINGS, ZONES
from .target import MEMORY_FIXED, SLOW, VERY_SLOW, Target

SECRET: Final = "abcdefghijklmnopqrstuvwxyz0123456789-_ABCDE"
TOKEN: Final = f"kactl_abcdefgh_{SECRET}"
_HOSTS: Final = ("ops.example", "[::1]:9000")
_LOCAL: Final = origin.Authority("127.0.0.1", 8080)
# The parser of TOML calls itself for each bracket, up to the limit of the interpreter.
_NESTED: Final = 2**20
# A parser of logs has a table of all formats.
_PARSED: Final = 2 * MEMORY_FIXED
# The layouts of Kafka's lines, with the placeholders of a line.
LAYOUTS_OF_LINES: Final = {
    "thread": "[2024-05-01 10:00:00,123] [{level}] [main] [{logger}] - {message}",
    "class-first": "[2024-05-01 10:00:00,123] ({logger}) {level} {message}",
    "bare": "2024-05-01 10:00:00,123 {level} {message} ({logger}) [main]",
    "level-first": "{level} [2024-05-01 10:00:00,123] {message} ({logger})",
    "dashed": "2024-05-01 10:00:00 {level} [main] {logger} - {message}",
    "piped": "2024-05-01 10:00:00,123 | {level} | [main] | {message} | {logger} (Logging.scala:66)",
    "colon": "2024-05-01 10:00:00,123 {level} kafka.{logger}: {message}",
    "container/standard": "kafka-1  | [2024-05-01 10:00:00,123] {level} {message} ({logger})",
    "grep/standard": "server.log:12:[2024-05-01 10:00:00,123] {level} {message} ({logger})",
}
# Of a file, this many bytes are read at once to recognise its format.
_PROBED: Final = 512 * 1024
_HOUR_MS: Final = 3_600_000
_NETWORKS: Final = (ipaddress.ip_network("10.0.0.0/8"),)
# Messages whose columns do not fit each other.
_SHORT: Final = LeaderEpochs((TopicRef("t", bytes(16)),), b"123", b"1", b"1")
_ELSEWHERE: Final = LeaderEpochs((TopicRef("t", bytes(16)),), b"\0\0\0\7", bytes(4), bytes(4))
_ROWS: Final = samples()["Delta"][1]
_WITH_COLUMNS: Final[list[tuple[wire.Family, Any]]] = [
    (wire.REQUESTS, ReportLeaderships(1, 2, 3, each, each)) for each in (_SHORT, _ELSEWHERE)
] + [
    (wire.ROUTES, msgspec.structs.replace(_ROWS, routes=msgspec.structs.replace(_ROWS.routes, **{name: column})))
    for name, column in (
        ("partition", b"123"),
        ("partition", _ROWS.routes.partition + bytes(4)),
        ("topic", b"123"),
        ("topic", b"\x07" * len(_ROWS.routes.topic)),
        ("in_sync", b"123"),
    )
]
# Two rows with three members of ISRs, and rows with a reason that is not listed.
_WITH_COLUMNS.append(
    (
        wire.ROUTES,
        msgspec.structs.replace(
            _ROWS,
            routes=msgspec.structs.replace(_ROWS.routes, partition=bytes(8), topic=bytes(8), in_sync=bytes(12)),
        ),
    )
)
_WITH_COLUMNS.extend(
    (wire.ORDERS, dataclasses.replace(order, states=dataclasses.replace(order.states, reason=np.full(3, 7, np.int32))))
    for _, order in samples().values()
    if isinstance(order, LeaderAndIsr) and len(order.states.topic) == 3
)
_HOUR_US: Final = 3_600_000_000
# 2024-10-26 00:00 in UTC, the day before clocks in Europe are set back.
_CLOCKS_CHANGE_US: Final = 1_729_900_800_000_000
_BODIES: Final = (
    {"controller_id": 1, "reason": "repaired"},
    {"name": "orders", "partitions": 3, "replication_factor": 2, "config": {"a": "b"}, "timeout_ms": 5, "reason": "x"},
    {"name": "orders", "assignment": [[1, 2], [2, 3]], "dry_run": True},
    {"partitions": 7, "assignment": [[1]], "config": {"a": None}},
    {"type": "unclean", "partitions": [{"topic": "t", "partition": 0}], "all": False, "reason": "x"},
    {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}], "reason": "x"},
    {"expected_epoch": 4, "reason": "x"},
    {"topics": ["t"], "brokers": [1, 2, 3], "remove": [2], "racks": {"1": "a"}},
    {"failures": [{"brokers": [1]}], "brokers": [1], "rolling": {"parallel": 2}},
)


def _find(text: str) -> TokenRecord | None:
    known = TokenRecord(
        id="abcdefgh",
        name="a",
        role=_ROLE,
        sha256=hash_of(SECRET),
        created_ms=0,
        expires_ms=_HOUR_MS,
        networks=_NETWORKS,
    )
    found = Tokens([known]).find(text, now_ms=1, address="10.0.0.1")
    anywhere = msgspec.structs.replace(known, networks=())
    assert Tokens([known]).find(text, now_ms=1, address=None) is None
    assert Tokens([anywhere]).find(text, now_ms=1, address=None) in (None, found and anywhere)
    assert found is None or text == TOKEN, f"{text!r} is accepted as a token"
    assert TOKEN not in without_secrets(text)
    return found


_ROLE: Final = next(route.role for route in ROUTES if route.role)


def _host(text: str) -> bool:
    accepted = origin._is_accepted(origin._authority(text, "http"), _LOCAL, _HOSTS)
    if accepted:
        host = text.lower().rpartition(":")[0] or text.lower()
        names = {"127.0.0.1", "localhost", "ops.example", "[::1]", "[::ffff:127.0.0.1]"}
        assert host in names or text.lower() in names, f"{text!r} is accepted as a host"
    return accepted


def _origin(text: str) -> bool:
    accepted = origin._is_own(text, "http", _LOCAL, _HOSTS)
    assert not accepted or text.startswith(("http://", "https://"))
    return accepted


def _frames(data: bytes) -> list[Any]:
    """Decode frames at once and byte by byte: both ways have the same messages."""
    bounds = Bounds(frame=4096, message=16_384, streams=4)
    at_once, in_pieces = FrameDecoder(bounds), FrameDecoder(bounds)
    found: list[list[Any]] = []
    for decoder, size in ((at_once, len(data) or 1), (in_pieces, 3)):
        shown: list[Any] = []
        try:
            for begin in range(0, len(data), size):
                decoder.feed(data[begin : begin + size])
                while (message := decoder.next()) is not None:
                    shown.append((message.kind, message.stream, bytes(message.head), bytes(message.tail)))
        except MalformedMessage:
            shown.append("malformed")
        found.append(shown)
    assert found[0] == found[1], f"{found[0]} at once, and {found[1]} in pieces"
    if found[0] and found[0][-1] == "malformed":
        raise MalformedMessage("malformed")
    return found[0]


def rows_of_log(data: bytes, *, layout: str, kind: Kind, start: int = 0, end: int | None = None) -> list[int]:
    """Returns the rows of each batch."""
    parser = Parser(file_id=1, kind=kind, broker=None, time_zone=zone.zone_of("UTC"))
    return [
        parser.parse(batch).num_rows
        for batch in records(io.BytesIO(data), Forms(expected=(layout,)), start=start, end=end)
    ]


def lines_with_layout(form: str) -> list[bytes]:
    """Returns pairs of lines of Kafka's loggers in another layout."""
    lines = [
        form.format(level=golden.level, message=golden.message, logger=golden.logger).encode() + b"\n"
        for golden in (*GOLDEN, *KRAFT)
    ]
    return [b"".join(lines[begin : begin + 2]) for begin in range(0, len(lines), 2)]


def _json_log(data: bytes, *, layout: str, start: int = 0, end: int | None = None) -> list[Any]:
    batches = json_parser.events(
        io.BytesIO(data), layout, file_id=1, kind=Kind.STATE_CHANGE, broker=None, start=start, end=end
    )
    return [batch.num_rows for batch in batches]


def _unzipped(data: bytes) -> int:
    source, size = Unpacked(io.BytesIO(data)), 0
    while size < 1_000_000 and (piece := source.read(4096)):
        size += len(piece)
    return size


def targets() -> list[Target]:
    import gzip

    lines = [
        f"[2024-05-01 10:00:00,123] {golden.level} {golden.message} ({golden.logger})\n".encode()
        for golden in (*GOLDEN, *KRAFT)
    ]
    lines += [b"\xef\xbb\xbf" + lines[0], bytes(7) + lines[1], lines[2].replace(b"2024", b"9999")]
    many = [b"".join(lines[begin : begin + 4]) for begin in range(0, len(lines), 4)] + CONTINUED
    kactl_line = (
        b'{"seq":1,"time_ms":1714557600123,"controller_epoch":1,"kind":"partition","topic":"t","partition":0,'
        b'"from_state":"OfflinePartition","to_state":"OnlinePartition","leader":1,"leader_epoch":2,"isr":[1,2],'
        b'"partition_epoch":3,"what":"elected","cause":"x","broker":1}\n'
    )
    dump = (
        b"| offset: 1 CreateTime: 1714557600123 keySize: -1 valueSize: 1 sequence: -1 headerKeys: [] payload: "
        b'{"type":"PARTITION_RECORD","version":0,"data":{"partitionId":0,"topicId":"AAAAAAAAAAAAAAAAAAAAAQ",'
        b'"replicas":[1,2],"isr":[1,2],"leader":1,"leaderEpoch":0,"partitionEpoch":0}}\n'
    )
    dumps = [
        dump * 2,
        dump + b"\n",
        dump.replace(b"1714557600123", b"9" * 30),
        dump.replace(b"1714557600123", b"9" * 15),
        dump.replace(b'"leader":1', b'"leader":[1]'),
        dump.replace(b"PARTITION_RECORD", b"NO_SUCH_RECORD"),
        dump.replace(b"PARTITION_RECORD", b"BROKER_REGISTRATION_CHANGE_RECORD"),
        *(dump.replace(dump[dump.index(b"{") :], change + b"\n") for change in CHANGED_REGISTRATIONS),
        dump.replace(b'"isr":[1,2]', b'"isr":]'),
    ]
    batch = b"baseOffset: 1 lastOffset: 1 count: 1 CreateTime: 1714557600123 size: 83 isvalid: true\n"
    bare = b" " + dump[dump.index(b"payload: ") :]
    payloads = [(batch + bare) * 3, bare + batch + b"\n" + bare, batch.replace(b"1714557600123", b"9" * 30) + bare]
    event = msgspec.json.encode(
        PartitionEvent(
            seq=1, time_ms=2, controller_epoch=3, topic="t", partition=0, from_state=PartitionState.OFFLINE,
            to_state=PartitionState.ONLINE, leader=1, leader_epoch=2, isr=(1, 2), partition_epoch=4,
        )
    )  # fmt: skip
    tokens = (
        f'[[token]]\nid = "abcdefgh"\nname = "a"\nrole = "viewer"\nsha256 = "{"ab" * 32}"\n'
        'created = 2026-01-01T00:00:00Z\nexpires = 2027-01-01T00:00:00Z\nnetworks = ["10.0.0.0/8"]\n'
    ).encode()
    contexts = b'[contexts.a]\nserver = "http://h:8080"\ntoken-file = "/a"\norigins = ["http://b:1"]\nca = "/c"\n'
    settings = (
        b'node-id = 1\ncluster = "c"\n[store]\nkind = "zookeeper"\nconnect = "h:1/k"\nsession-timeout = "18s"\n'
        b'[kafka]\nlisteners = ["A://127.0.0.1:1"]\nbroker-networks = ["10.0.0.0/8"]\nsuper-users = ["User:a"]\n'
        b'[kafka.protocols]\nA = "SASL_PLAINTEXT"\n[kafka.broker-principals]\npattern = "User:{id}"\n'
        b'[api]\nlisten = "[::1]:80"\nhosts = ["a"]\n[log]\nfolder = "x"\n'
    )
    frame = [b"".join(frames_of(Message(FrameKind.ASK, 7, b"head" * 30, b"tail" * 30), part)) for part in (40, 300)]
    first = [next(iter(frames_of(Message(FrameKind.ASK, stream, b"h" * 60, b"t" * 60), 40))) for stream in range(6)]
    frame += [b"".join(first), first[0] * 2, first[0] + frame[0], frame[0][:60] * 3]
    bodies = [json.dumps(body).encode() for body in _BODIES]
    messages = samples()
    families: dict[int, tuple[wire.Family, list[bytes]]] = {}
    for family, message in messages.values():
        families.setdefault(id(family), (family, []))[1].append(encoded(message))
    for family, message in _WITH_COLUMNS:
        families[id(family)][1].append(encoded(message))
    refused, bad_config = (Refused,), (BadConfig,)
    # Each body is a valid one of some routes; the others reject it.
    kinds = {route.takes_body for route in ROUTES if route.takes_body is not None}
    json_errors = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
    return [
        Target("tokens", text(_find), (), [TOKEN.encode(), f"Bearer {TOKEN}".encode()]),
        Target("new tokens", text(lambda text: record_of(text, "a", _ROLE)), (), [TOKEN.encode()]),
        Target(
            "token file",
            from_file("tokens.toml", token_file.read_tokens),
            bad_config,
            [
                tokens,
                tokens * 2,
                b"token = 1",
                tokens.replace(b"viewer", b"x"),
                tokens.replace(b'name = "a"', b'name = "?"'),
                tokens.replace(b"Z\n", b"\n"),
            ],
            rarity=SLOW,
            memory_fixed=_NESTED + token_file.BYTES_MAX,
        ),
        Target("context file", from_file("contexts.toml", _contexts), (Failure,), [contexts], SLOW, _NESTED),
        Target("configuration", from_file("kactl.toml", _settings), bad_config, [settings, *SETTINGS], SLOW, _NESTED),
        Target("environment", _environment, bad_config, ENVIRONMENT, rarity=SLOW),
        Target("time zones", text(_zoned), (zone.UnknownZone,), ZONES, rarity=SLOW),
        Target("durations", text(Duration.parse), (ValueError,), [b"18s", b"500ms"]),
        Target(
            "hosts",
            text(_host),
            (),
            [b"", b"a:", b":80", b"[", b"a:99999", b"127.0.0.1:8080", b"localhost:8080", b"ops.example", b"[::1]:9000"],
        ),
        Target(
            "origins",
            text(_origin),
            (),
            [b"http://127.0.0.1:8080", b"https://ops.example:8080", b"http://[", b"http://a:b@c"],
        ),
        Target(
            "cursors",
            text(cursor.read),
            refused,
            [cursor.write("orders", number).encode() for number in (7, -1)] + [b""],
        ),
        *(
            Target(
                f"body {kind.__name__}",
                functools.partial(msgspec.json.decode, type=kind),
                json_errors,
                [body for body in [b"{}", *bodies] if _is_accepted(kind, body)] or bodies,
            )
            for kind in sorted(kinds, key=lambda kind: kind.__name__)
        ),
        Target("tcp frames", _frames, (MalformedMessage,), frame + FRAMES, rarity=SLOW),
        Target("tcp identities", text(Identity.parse), (ValueError,), [b"kactl://c/participant/3"]),
        *(
            Target(f"tcp messages {number}", functools.partial(_message, family), (MalformedMessage,), seeds)
            for number, (family, seeds) in enumerate(families.values())
        ),
        Target("events", functools.partial(msgspec.json.decode, type=AnyEvent), json_errors, [event]),
        Target(
            "state-change logs",
            functools.partial(rows_of_log, layout="standard", kind=Kind.STATE_CHANGE),
            (),
            many,
            rarity=VERY_SLOW,
            memory_fixed=_PARSED,
        ),
        Target(
            "parts of logs",
            functools.partial(rows_of_log, layout="standard", kind=Kind.STATE_CHANGE, start=90, end=400),
            (),
            many,
            rarity=VERY_SLOW,
            memory_fixed=_PARSED,
        ),
        Target(
            "server logs",
            functools.partial(rows_of_log, layout="standard", kind=Kind.SERVER),
            (),
            many,
            rarity=VERY_SLOW,
            memory_fixed=_PARSED,
        ),
        *(
            Target(
                f"server logs, {layout}",
                functools.partial(rows_of_log, layout=layout, kind=Kind.SERVER),
                (),
                lines_with_layout(form),
                rarity=VERY_SLOW,
                memory_fixed=_PARSED,
            )
            for layout, form in LAYOUTS_OF_LINES.items()
        ),
        Target("kactl logs", functools.partial(_json_log, layout="kactl"), (), [kactl_line * 2, *KACTL], rarity=SLOW),
        Target("metadata dumps", functools.partial(_json_log, layout="dump"), (), dumps, rarity=SLOW),
        Target(
            "parts of dumps",
            functools.partial(_json_log, layout="dump", start=5, end=300),
            (),
            [dump * 4, *dumps],
            rarity=SLOW,
        ),
        Target("dumps without metadata", functools.partial(_json_log, layout="payloads"), (), payloads, rarity=SLOW),
        Target(
            "parts of dumps without metadata",
            functools.partial(_json_log, layout="payloads", start=5, end=300),
            (),
            payloads,
            rarity=SLOW,
        ),
        Target("columns", _columns, (MalformedMessage,), COLUMNS),
        Target("gzip files", _unzipped, (Broken,), [gzip.compress(many[0], mtime=0), *GZIP], rarity=SLOW),
        Target(
            "probes",
            from_file("x.log", lambda path: probe.probe(str(path))),
            (),
            [*many, kactl_line, dump, *PROBES, *KACTL],
            rarity=SLOW,
            memory_fixed=_PROBED,
        ),
    ]


def _is_accepted(kind: Any, body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError:
        return False
    return True


def _settings(path: Path) -> Any:
    return config_file.load(path, {"KACTL_LOG__FOLDER": "x"}, None, {"store.session-timeout": "5s"})


def _columns(data: bytes) -> list[Any]:
    """Decode a column with one value per row, with several, and as the topics of rows."""
    width, count, kind = data[:3].ljust(3, b"\0")
    column, dtype = Column(width, memoryview(data)[3:]), ("int32", "bool", "int64")[kind % 3]
    several = slots(column, count, dtype)
    found = values(column, count, dtype)
    check_topics(found, [""] * count, ascending=bool(kind & 4))
    topics = topics_of(["a"] * (count // 16), bytes(data[3:])) if kind & 8 else ()
    return [found.tolist(), None if several is None else several.tolist(), topics]


def _environment(data: bytes) -> Any:
    """Read variables, whose names are in upper case, and options of the command line."""
    entries = data.decode("utf-8", "replace").split("\0")
    pairs = {name: value for name, _, value in (entry.partition("=") for entry in entries)}
    env = {name: value for name, value in pairs.items() if name.isupper()}
    options = {name: value for name, value in pairs.items() if name and name not in env}
    return config_file.load(None, env, options, {"store.session-timeout": "5s"})


def _zoned(name: str) -> Any:
    """Convert the hours of two days around a change of clocks in a time zone."""
    found = zone.zone_of(name)
    hours = np.arange(48, dtype=np.int64) * _HOUR_US + _CLOCKS_CHANGE_US
    # The clocks show one hour twice.
    local = np.concatenate([hours[:27], hours[26:]])
    return zone.Fold(found).to_utc(local).tolist()


def _contexts(path: Path) -> Any:
    home = folder() / "kactl"
    home.mkdir(exist_ok=True)
    path.rename(home / context_file.NAME)
    return context_file.load({"XDG_CONFIG_HOME": str(folder())})


def _message(family: wire.Family, data: bytes) -> Any:
    if family is wire.REQUESTS:
        wire.begin_of(data)
    message = wire.decode(data, family)
    encoded_again = wire.encode(message)
    assert wire.encode(wire.decode(encoded_again, family)) == encoded_again, "encoded, it is another message"
    _check_columns(message)
    return type(message).__name__


def _check_columns(message: Any) -> None:
    """Decode columns of bytes, as the receiver of the message does."""
    if isinstance(message, ReportLeaderships):
        with contextlib.suppress(BadRequest):
            message.ended.columns()
            message.waiting.columns()
    if isinstance(message, Snapshot | Delta):
        with contextlib.suppress(MalformedMessage):
            RouteRows.decoded(message.routes)
    if isinstance(message, Delta):
        with contextlib.suppress(MalformedMessage):
            RemovedRows.decoded(message.removed)
