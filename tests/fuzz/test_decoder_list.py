"""Every function of kactl that interprets bytes or text from outside is reached by a target, or has a reason here."""

import ast
from typing import Final

import pytest

from .decoder_list import Place, _decoding, decoding_functions, reached_functions
from .decoders import targets

_SEALED: Final = "a value in the server's own database: the target `SQLite frames` has the check that precedes it"
_IN_TYPE: Final = "the same decoder as in a target, after bytes were received"
EXEMPT: Final[dict[Place, str]] = {
    ("admin/identity/unix_socket.py", "uid_of"): "the operating system states the user of a socket",
    ("admin/route.py", "_body"): f"{_IN_TYPE} `body ...`",
    ("cli/doctor.py", "_etcd"): "a command reads some bytes of a server that it was given, and reports each error",
    ("cli/sql.py", "_rows"): "the result of the user's own query",
    ("config/json_schema.py", "_key"): "a description in the code",
    ("forensics/ingest.py", "_look"): "from another process of the same command",
    ("forensics/ingest.py", "_unpacked"): "the standard library unpacks archives; tests/forensics has damaged ones",
    ("forensics/reading.py", "_events"): "from another process of the same command",
    ("runtime/installation.py", "_source"): "a file that pip has written beside the installed package",
    ("stores/formats/registration.py", "encode_evicted"): "a registration that was decoded before",
    ("stores/sqlite/backup.py", "_epochs"): _SEALED,
    ("stores/sqlite/catalog.py", "Catalog.configs"): _SEALED,
    ("stores/sqlite/catalog.py", "Catalog.default_config"): _SEALED,
    ("stores/sqlite/catalog.py", "Catalog.notifications"): _SEALED,
    ("stores/sqlite/catalog.py", "Catalog.topic_id_copies"): _SEALED,
    ("stores/sqlite/requests.py", "Requests.features"): _SEALED,
    ("stores/sqlite/requests.py", "Requests.maintenance"): _SEALED,
    ("stores/sqlite/requests.py", "Requests.preferred_election_request"): _SEALED,
    ("stores/sqlite/requests.py", "Requests.producer_ids"): _SEALED,
    ("stores/sqlite/requests.py", "Requests.reassignment_request"): _SEALED,
    ("stores/sqlite/sessions.py", "Sessions._broker"): _SEALED,
    ("stores/sqlite/sessions.py", "Sessions.brokers"): _SEALED,
    ("stores/sqlite/sessions.py", "Sessions.controller"): _SEALED,
    ("transports/kafka/client.py", "KafkaConnection._exchange"): "a length; targets `answers ...` have the rest",
    ("transports/kafka/codec/row.py", "TopicHeaderCache._made"): "encodes",
    ("transports/kafka/codec/row.py", "_laid_out"): "encodes",
    ("transports/kafka/codec/row.py", "_record"): "encodes",
    ("transports/kafka/listener/connection.py", "_header_of"): "a header that was decoded before",
    ("transports/kafka/listener/relay.py", "Relay._forward_response"): "a length of four bytes; the rest is not read",
}  # fmt: skip


def test_every_decoder_has_a_target_or_a_reason() -> None:
    missing = decoding_functions() - reached_functions(targets())

    assert sorted(missing - EXEMPT.keys()) == [], "add targets to tests/fuzz, or reasons to EXEMPT"
    assert sorted(EXEMPT.keys() - missing) == [], "these have a target now, or are gone"


@pytest.mark.parametrize(
    ("body", "is_found"),
    [
        ("_HEAD.unpack_from(data)", True),
        ("msgspec.json.decode(data, type=Topic)", True),
        ("[json.loads(line) for line in data]", True),
        ("tomllib.load(data)", True),
        ("int.from_bytes(data)", True),
        ("data.decode()", False),
        ('data.decode("utf-8", "replace")', False),
        ("wire.decode(data, ORDERS)", False),
        ("context_file.load(data)", False),
    ],
)
def test_calls_that_decode_are_found(body: str, is_found: bool) -> None:
    code = f"class A:\n    async def read(self, data):\n        return {body}\n"
    assert list(_decoding(ast.parse(code), ())) == ["A.read"] * is_found
