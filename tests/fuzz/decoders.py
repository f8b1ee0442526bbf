"""Mutation fuzzing of decoders outside of the Kafka listener: logins, certificates, stored records, frames, tokens,
HTTP, the tcp network, configuration, logs.

Run as `python -m tests.fuzz.decoders [INPUTS] [SEED]`, or by `make fuzz`. It exits with 1 at the first input that
violates an oracle, and prints the target and the input. The oracles:

* a decoder raises only its documented exceptions;
* the same bytes have the same outcome twice;
* an input uses at most TIME_S of processor time;
* no login completes without the password.
"""

import gc
import logging
import random
import sys
import time
from collections import Counter
from typing import Any, Final

import msgspec
import numpy as np

from kactl.access import MalformedCertificate, PrincipalRules, subject_of
from kactl.errors import MalformedMessage
from kactl.sasl import DigestMd5, SaslError, ScramClient, ScramServer, verifier
from kactl.stores.formats import access, admin_records, records, registration
from kactl.stores.formats.json_text import Malformed
from kactl.stores.sqlite import frame
from kactl.stores.zookeeper.connection import messages
from kactl.stores.zookeeper.connection.frames import MalformedFrame
from kactl.transports.kafka.listener.sasl_apis import SASL_AUTHENTICATE_API, SASL_HANDSHAKE_API
from tests.access.der import certificate, encoded_name, random_name

from . import interfaces
from .seeds import ACLS, DIGEST, PRODUCER_IDS, REGISTRATIONS, RULES, SCRAM_FIRST, USERS
from .target import RARELY, Target

TIME_S: Final = 0.1
_PROGRESS: Final = 100_000
_CHANGES_MAX: Final = 4
_PIECES: Final = (
    b"\0", b"\xff", b"\x80", b"\x7f", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff" * 10,
    b'"', b"{", b"}", b"[" * 40, b"null", b"-1", b"1e999", b"9" * 30, b"\\ud800", b",", b"=", b":", b"true",
)  # fmt: skip


class Violation(Exception):
    """An oracle is violated."""


_KNOWN: Final = verifier("SCRAM-SHA-256", "pencil", salt=b"salt-of-the-user", iterations=4096)


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


def targets() -> list[Target]:
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
    change = frame.pack("change", 1, column)
    session = bytes(4) + b"\0\0\x17\x70" + bytes(8) + b"\0\0\0\x10" + bytes(17)
    malformed, damaged, bad_frame = (Malformed,), (frame.FrameDamagedError,), (MalformedFrame,)
    return [
        Target("certificate", subject_of, (MalformedCertificate,), certificates),
        Target(
            "principal rules",
            lambda data: PrincipalRules(data.decode(errors="replace")),
            (ValueError,),
            RULES,
        ),
        Target(
            "SCRAM server, first",
            _server_begins,
            (SaslError,),
            [b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL", b"n,,n=a,r=b,tokenauth=true", b"n,," + b"n" * 70_000],
        ),
        Target("SCRAM server, last", _server_finishes, (SaslError,), [b"c=biws,r=xyzabc,p=" + b"A" * 43 + b"="]),
        Target("SCRAM client, first", _client_responds, (SaslError,), SCRAM_FIRST),
        Target("SCRAM client, last", _client_trusts, (SaslError,), [b"v=" + b"A" * 43 + b"=", b"e=other-error"]),
        Target("DIGEST-MD5", _digest, (SaslError,), [challenge, *DIGEST]),
        Target("DIGEST-MD5, last", _digest_trusts, (SaslError,), [b"rspauth=" + b"a" * 32, b'nonce="n"']),
        Target("ACLs", lambda data: access.decode_acls("/a", data), (), acls + ACLS),
        Target("users", lambda data: access.decode_user(data, "SCRAM-SHA-256"), malformed, [user, *USERS]),
        Target("topics", records.decode_topic, malformed, [topic]),
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
        Target("SQLite frames", frame.unseal, damaged, [frame.seal(b"payload" * 9)]),
        Target("SQLite columns", lambda data: frame.unpack("change", 1, data), damaged, [change]),
        Target(
            "sealed columns",
            lambda data: frame.unpack("change", 1, frame.seal(data)),
            damaged,
            [bytes(frame.unseal(change))],
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
    ]


def changed(content: bytes, other: bytes, chance: random.Random) -> bytes:
    """Returns the content with some random changes."""
    mutated = bytearray(content)
    for _ in range(chance.randint(1, _CHANGES_MAX)):
        at, upto = sorted(chance.randrange(len(mutated) + 1) for _ in range(2))
        match chance.randrange(6):
            case 0:
                mutated[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                mutated[at:at] = chance.choice(_PIECES)
            case 2:
                mutated[at:upto] = b""
            case 3:
                mutated[at:at] = mutated[at:upto]
            case 4:
                mutated[at : at + 4] = chance.choice(_PIECES)
            case _:
                mutated[at:] = other[min(at, len(other)) :]
    return bytes(mutated)


def check(target: Target, content: bytes) -> bool:
    """Returns whether an input is accepted.

    Raises:
        Violation: an oracle is violated. Any other exception is one that the decoder does not document.
    """
    outcomes = []
    for _ in range(2):
        try:
            outcomes.append((True, _shown(target.decode(content))))
        except Violation:
            raise
        except target.errors as error:
            outcomes.append((False, type(error).__name__))
    if outcomes[0] != outcomes[1]:
        raise Violation(f"it had two outcomes: {outcomes}")
    return outcomes[0][0]


def _shown(value: Any) -> str:
    """Returns the text of a decoded value; it has no addresses of objects."""
    if isinstance(value, memoryview):
        return repr(bytes(value))
    return "" if isinstance(value, PrincipalRules) else repr(value)


def fuzz(inputs: int, seed: int) -> Counter[str]:
    """Returns the number of accepted inputs by target.

    Raises:
        Violation: an oracle is violated.
    """
    chance, known, counts = random.Random(seed), targets(), Counter[str]()
    all_of_them = known + [target for target in known if not target.is_slow] * (RARELY - 1)
    longest_s = 0.0
    gc.freeze()  # seeds and modules
    for number in range(inputs):
        target = all_of_them[number % len(all_of_them)]
        content = changed(chance.choice(target.seeds), chance.choice(target.seeds), chance)
        begun_s = time.process_time()
        try:
            counts[target.name] += check(target, content)
            taken_s = time.process_time() - begun_s
            if taken_s > TIME_S:
                # Not a garbage collection, nor the first use of a module.
                begun_s = time.process_time()
                check(target, content)
                taken_s = time.process_time() - begun_s
            if taken_s > TIME_S:
                raise Violation(f"it took {taken_s:.3f} s")
        except BaseException as error:
            error.add_note(f"input {number} of seed {seed}: {target.name} {content.hex()}")
            raise
        longest_s = max(longest_s, taken_s)
        if (number + 1) % _PROGRESS == 0:
            print(f"{number + 1} inputs, longest {longest_s * 1000:.1f} ms", file=sys.stderr, flush=True)
    return counts


def main() -> None:
    inputs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(2**32)
    logging.disable()  # malformed access control lists
    print(f"seed {seed}")
    print(dict(fuzz(inputs, seed).most_common()))


if __name__ == "__main__":
    main()
