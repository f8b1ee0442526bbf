"""Targets of the fuzzer for logins, certificates, stored records, and frames of ZooKeeper and SQLite."""

import random
import struct
from typing import Final

import msgspec
import numpy as np

from kactl.config import topic_values
from kactl.model.errors import MalformedMessage
from kactl.security.access import MalformedCertificate, PrincipalRules, expiry_of, subject_of
from kactl.security.sasl import DigestMd5, OAuthBearerClient, SaslError, ScramClient, ScramServer, oauthbearer, verifier
from kactl.security.tls.tls_records import TlsRecords
from kactl.stores.formats import access, admin_records, records, registration
from kactl.stores.formats.json_text import Malformed
from kactl.stores.sqlite import frame
from kactl.stores.zookeeper.connection import messages
from kactl.stores.zookeeper.connection.frames import MalformedFrame
from kactl.transports.kafka.listener import user_file
from kactl.transports.kafka.listener.sasl_apis import SASL_AUTHENTICATE_API, SASL_HANDSHAKE_API
from tests.security.access.der import certificate, element, encoded_name, random_name
from tests.transports.kafka.listener import fuzz as listener

from . import answers, interfaces
from .corpus import recorded
from .seeds import (
    ACLS,
    BEARERS,
    DIGEST,
    PRODUCER_IDS,
    REGISTRATIONS,
    REQUESTS,
    RULES,
    SCRAM_FIRST,
    SCRAM_NAMES,
    USER_FILES,
    USERS,
)
from .target import Target, Violation

# Expressions in an operator's configuration are compiled, which takes some hundred bytes for each of theirs.
_COMPILED: Final = 2**20
_KNOWN: Final = verifier("SCRAM-SHA-256", "pencil", salt=b"salt-of-the-user", iterations=4096)


# No certificate; subjects of another type, with elements of another type, without a type, and with one of no bytes.
_NO_SUBJECTS: Final = [b"", b"0"] + [
    certificate(element(tag, content))
    for tag, content in (
        (0x31, b""),
        (0x30, element(0x30, b"")),
        (0x30, element(0x31, element(0x30, b""))),
        (0x30, element(0x31, element(0x30, element(0x06, b"") + element(0x0C, b"a")))),
    )
]
_LARGE_HEADER: Final = msgspec.msgpack.encode(("change", 1, 2**40, (("leader", -1, "", 0),)))
_LARGE_COLUMN: Final = struct.pack("<I", len(_LARGE_HEADER)) + _LARGE_HEADER


def _validities() -> list[bytes]:
    """Returns certificates whose validity ends in this or the last century, at no time, and with one time."""
    usual = certificate(encoded_name([]))
    begin, end = element(0x17, b"240101000000Z"), element(0x18, b"20540101000000Z")
    # All are as long as the usual validity: it is part of elements whose length is in front of them.
    times = [
        end + element(0x17, b"540101000000Z"),
        end + element(0x17, b"260101000000Z"),
        begin + element(0x18, b"2054-101000000Z"),
        begin + element(0x05, bytes(15)),
    ]
    return [usual.replace(begin + end, each) for each in times]


def _server_begins(message: bytes) -> str:
    return ScramServer("SCRAM-SHA-256", pepper=b"p", nonce="abc").begin(message)


def _server_finishes(message: bytes) -> bytes:
    server = ScramServer("SCRAM-SHA-256", pepper=b"p", nonce="abc")
    server.begin(b"n,,n=alice,r=xyz")
    server.challenge(_KNOWN)
    finished = server.finish(message)
    raise Violation(f"a login without the password has completed: {finished!r}")


def _client_responds(message: bytes) -> bytes:
    client = ScramClient("SCRAM-SHA-256", "alice", "pencil", derive=lambda salt, count: b"k" * 32, nonce="xyz")
    client.first()
    return client.respond(message)


def _client_trusts(message: bytes) -> bytes:
    client = ScramClient("SCRAM-SHA-256", "alice", "pencil", derive=lambda salt, count: b"k" * 32, nonce="xyz")
    client.first()
    client.respond(b"r=xyzabc,s=c2FsdA==,i=4096")
    client.respond(message)
    raise Violation("a server without the password has been trusted")


def _bearer_responds(message: bytes) -> bytes:
    login = OAuthBearerClient(lambda: "token")
    login.first()
    answer = login.respond(message)
    if login.is_complete and message:
        raise Violation("a server that refuses the token has completed a login")
    try:
        login.respond(message)
    except SaslError:
        return answer
    raise Violation("a login has gone on behind its end")


def _digest(message: bytes) -> bytes:
    login = DigestMd5("kafka", "secret", service="zookeeper", host="zk-sasl-md5", nonce="n")
    login.first()
    return login.respond(message)


def _digest_trusts(message: bytes) -> bytes:
    login = DigestMd5("kafka", "secret", service="zookeeper", host="zk-sasl-md5", nonce="n")
    login.first()
    login.respond(DIGEST[0])
    login.respond(message)
    raise Violation("a server without the password has been trusted")


def _record_ends(data: bytes) -> list[int]:
    """Returns how many records end in the data, received as a whole and in two pieces."""
    counts = []
    for pieces in ([data], [data[: len(data) // 3], data[len(data) // 3 :]]):
        records, count = TlsRecords(), 0
        for piece in pieces:
            left = piece
            while left:
                taken, ends = records.take(left, 16)
                if not taken or ends > 16:
                    raise Violation(f"{taken} bytes and {ends} ends were taken")
                left, count = left[taken:], count + ends
        counts.append(count)
    if counts[0] != counts[1]:
        raise Violation(f"other records end in pieces than as a whole: {counts}")
    return counts


def targets() -> list[Target]:
    """Returns all targets, with what was recorded among their seeds."""
    return [
        target._replace(seeds=[*target.seeds, *REQUESTS.get(target.name, ()), *recorded(target.name)])
        for target in _targets()
    ]


def _targets() -> list[Target]:
    draws = random.Random(1)
    certificates = [certificate(encoded_name(random_name(draws))) for _ in range(50)]
    acl = {"principal": "User:a", "permissionType": "Allow", "host": "*", "operation": "Read"}
    acls = [msgspec.json.encode({"version": 1, "acls": [acl, {**acl, "permissionType": "Deny"}]})]
    user = b'{"version":1,"config":{"SCRAM-SHA-256":"salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096"}}'
    topic = (
        b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2],"1":[2]},'
        b'"adding_replicas":{"0":[2]}}'
    )
    challenge = b'realm="zk",nonce="a\\"b",charset=utf-8,algorithm=md5-sess,qop="auth"'
    features = b'{"version":2,"status":1,"features":{"a":{"max_version_level":2}}}'
    block = b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    event = b"\xff\xff\xff\xff" + bytes(12) + b"\0\0\0\1\0\0\0\3\0\0\0\2/a"
    state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":7,"isr":[1,2],"leader_recovery_state":0}'
    broker = (
        b'{"version":5,"host":"b1","port":9092,"endpoints":["INTERNAL://b1:9092","CLIENT://[::1]:9093"],"rack":"a",'
        b'"listener_security_protocol_map":{"INTERNAL":"SASL_SSL","CLIENT":"PLAINTEXT"},"features":{},"timestamp":"1","jmx_port":-1}'
    )
    partitions = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
    column = {"rows": np.arange(20, dtype=np.int32), "leader": np.zeros(20, np.int32)}
    change, other = frame.pack("change", 1, column), frame.pack("other", 1, column)
    session = bytes(4) + b"\0\0\x17\x70" + bytes(8) + b"\0\0\0\x10" + bytes(17)
    malformed, damaged, bad_frame = (Malformed,), (frame.FrameDamagedError,), (MalformedFrame,)
    return [
        Target("certificate", subject_of, (MalformedCertificate,), [*certificates, *_NO_SUBJECTS]),
        Target("validity of a certificate", expiry_of, (MalformedCertificate,), [*certificates, *_validities()]),
        Target("TLS records", _record_ends, (), [b"\x17\x03\x03\0\x05hello" * count for count in (1, 3, 50)]),
        Target(
            "principal rules",
            lambda data: PrincipalRules(data.decode(errors="replace")),
            (ValueError,),
            RULES,
            memory_fixed=_COMPILED,
        ),
        Target(
            "SCRAM server, first",
            _server_begins,
            (SaslError,),
            [
                b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL",
                b"n,,n=a,r=b,tokenauth=true",
                b"n,," + b"n" * 70_000,
                *SCRAM_NAMES,
            ],
        ),
        Target("SCRAM server, last", _server_finishes, (SaslError,), [b"c=biws,r=xyzabc,p=" + b"A" * 43 + b"="]),
        Target("SCRAM client, first", _client_responds, (SaslError,), SCRAM_FIRST),
        Target("SCRAM client, last", _client_trusts, (SaslError,), [b"v=" + b"A" * 43 + b"=", b"e=other-error"]),
        Target("OAUTHBEARER server", oauthbearer.presented, (SaslError,), BEARERS),
        Target("OAUTHBEARER client", _bearer_responds, (SaslError,), [b"", b'{"status":"invalid_token"}', b"{"]),
        Target("DIGEST-MD5", _digest, (SaslError,), [challenge, *DIGEST]),
        Target("DIGEST-MD5, last", _digest_trusts, (SaslError,), [b"rspauth=" + b"a" * 32, b'nonce="n"']),
        Target("ACLs", lambda data: access.decode_acls("/a", data), (), acls + ACLS),
        Target("users", lambda data: access.decode_user(data, "SCRAM-SHA-256"), malformed, [user, *USERS]),
        Target("ratios", lambda data: topic_values.ratio(data.decode("latin-1")), (), [b"0.5", b"0x1p-1", b"1e-3f"]),
        Target("settings of users", access.iterations, malformed, [user, *USERS]),
        Target("file of users", user_file.decode, (ValueError,), USER_FILES),
        Target("topics", records.decode_topic, malformed, [topic, topic.replace(b"AAAAAAAAAAAAAAAAAAAAAQ", b"x")]),
        Target("leaderships", records.decode_state, malformed, [state]),
        Target("controller", records.decode_controller, malformed, [b'{"version":1,"brokerid":1,"timestamp":"1"}']),
        Target("epoch", records.decode_epoch, malformed, [b"42"]),
        Target("configs", records.decode_config, malformed, [b'{"version":1,"config":{"a":"b"}}']),
        Target("config changes", records.decode_config_change, malformed, [b'{"version":2,"entity_path":"topics/a"}']),
        Target("ISR notifications", records.decode_isr_notification, malformed, [partitions]),
        Target(
            "directory notifications",
            records.decode_log_dir_notification,
            malformed,
            [b'{"version":1,"broker":1,"event":1}'],
        ),
        Target("registrations", lambda data: registration.decode(1, data, 7), malformed, [broker, *REGISTRATIONS]),
        Target("reassignments", admin_records.decode_reassignment, malformed, [partitions]),
        Target("elections", admin_records.decode_preferred_election, malformed, [partitions]),
        Target("features", lambda data: admin_records.decode_features(data, 1), malformed, [features]),
        Target("producer ids", admin_records.decode_producer_ids, malformed, [block, *PRODUCER_IDS]),
        Target("SQLite frames", frame.unseal, damaged, [frame.seal(b"payload" * 9), b"ab"]),
        Target("SQLite columns", lambda data: frame.unpack("change", 1, data), damaged, [change, other]),
        Target(
            "sealed columns",
            lambda data: frame.unpack("change", 1, frame.seal(data)),
            damaged,
            [bytes(frame.unseal(change)), _LARGE_COLUMN],
        ),
        Target("ZooKeeper sessions", messages.granted, bad_frame, [session]),
        Target("ZooKeeper replies", messages.reply_header, bad_frame, [bytes(16)]),
        Target("ZooKeeper tokens", messages.sasl_token, (MalformedFrame, OSError), [bytes(16) + b"\0\0\0\3abc"]),
        Target("ZooKeeper events", messages.event, bad_frame, [event]),
        Target(
            "SaslHandshake", lambda data: SASL_HANDSHAKE_API.request.read(data, 1), (MalformedMessage,), [b"\0\5PLAIN"]
        ),
        Target(
            "SaslAuthenticate 1",
            lambda data: SASL_AUTHENTICATE_API.request.read(data, 1),
            (MalformedMessage,),
            [b"\0\0\0\3abc"],
        ),
        Target(
            "SaslAuthenticate 2",
            lambda data: SASL_AUTHENTICATE_API.request.read(data, 2),
            (MalformedMessage,),
            [b"\4abc\0"],
        ),
        *interfaces.targets(),
        *answers.targets(),
        *listener.targets(),
    ]
