"""Registrations of brokers of all versions, and of kactl's own participants."""

import msgspec
import pytest

from kactl.model import Broker, Endpoint
from kactl.stores.formats import registration
from kactl.stores.formats.records import Malformed

KAFKA_3_9 = (
    b'{"version":5,"host":"127.0.0.1","port":9091,"jmx_port":-1,"timestamp":"1698765432100",'
    b'"endpoints":["INTERNAL://127.0.0.1:19091","CLIENT://127.0.0.1:9091"],'
    b'"listener_security_protocol_map":{"INTERNAL":"SSL","CLIENT":"PLAINTEXT"},"rack":"r1","features":{}}'
)
TWO_LISTENERS = (Endpoint("INTERNAL", "127.0.0.1", 19091, "SSL"), Endpoint("CLIENT", "127.0.0.1", 9091, "PLAINTEXT"))


def test_registration_of_a_kafka_broker_is_read() -> None:
    assert registration.decode(3, KAFKA_3_9, 77) == Broker(3, 77, TWO_LISTENERS, "r1")


def test_registration_is_written_as_kafkas() -> None:
    assert registration.encode(Broker(3, 0, TWO_LISTENERS, "r1"), 1698765432100) == KAFKA_3_9


@pytest.mark.parametrize(
    ("data", "endpoint", "rack"),
    [
        (b'{"version":1,"host":"h","port":9,"jmx_port":-1}', Endpoint("PLAINTEXT", "h", 9, "PLAINTEXT"), None),
        (b'{"version":2,"host":null,"port":-1,"endpoints":["SSL://h:9"]}', Endpoint("SSL", "h", 9, "SSL"), None),
        (b'{"version":3,"endpoints":["SSL://h:9"],"rack":"r"}', Endpoint("SSL", "h", 9, "SSL"), "r"),
        (
            b'{"version":4,"endpoints":["C://h:9"],"listener_security_protocol_map":{"C":"SASL_SSL"},"rack":null}',
            Endpoint("C", "h", 9, "SASL_SSL"),
            None,
        ),
    ],
)
def test_older_registrations_are_read(data: bytes, endpoint: Endpoint, rack: str | None) -> None:
    assert registration.decode(1, data, 5) == Broker(1, 5, (endpoint,), rack)


@pytest.mark.parametrize("host", ["::1", "fe80::1%eth0", "", "a-b.example"])
def test_any_host_round_trips(host: str) -> None:
    broker = Broker(1, 5, (Endpoint("PLAINTEXT", host, 9092),))

    data = registration.encode(broker, 0)

    assert registration.decode(1, data, 5) == broker
    assert (f"[{host}]" if ":" in host else host).encode() in data


def test_features_round_trip() -> None:
    broker = Broker(1, 5, TWO_LISTENERS, None, (("f", 1, 3), ("g", 2, 2)))

    data = registration.encode(broker, 0)

    assert registration.decode(1, data, 5) == broker
    assert b'"features":{"f":{"min_version":1,"max_version":3},"g":{"min_version":2,"max_version":2}}' in data
    assert b"rack" not in data


def test_host_and_port_are_those_of_the_first_plaintext_endpoint() -> None:
    data = registration.encode(Broker(1, 5, (Endpoint("S", "secret", 1, "SSL"),)), 0)

    assert b'"host":null,"port":-1' in data


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"{}",
        b'{"version":1}',
        b'{"version":2,"host":"h","port":9}',
        b'{"version":5,"endpoints":["h:9"]}',
        b'{"version":5,"endpoints":["C://h"]}',
        b'{"version":5,"endpoints":["C://h:x"]}',
        b'{"version":5,"endpoints":["://h:1"]}',
        b'{"version":5,"endpoints":["C://h:9"],"listener_security_protocol_map":{"D":"SSL"}}',
        b'{"version":5,"endpoints":["C://h:9"],"features":{"f":{}}}',
    ],
)
def test_invalid_registration_is_malformed(data: bytes | None) -> None:
    with pytest.raises(Malformed):
        registration.decode(1, data, 5)


@pytest.mark.parametrize(
    ("name", "is_id"),
    [("0", True), ("2147483647", True), ("2147483648", False), ("9999999999", False), ("-1", False), ("x", False)],
)
def test_broker_ids_are_int32(name: str, is_id: bool) -> None:
    # An id that does not fit would make the whole request to other brokers impossible to encode.
    assert registration.is_broker_id(name) == is_id


# -- what only kactl's participants register ---------------------------------------------------------------------------

REMOTE = Broker(
    3,
    77,
    TWO_LISTENERS,
    "r1",
    incarnation=bytes(range(16)),
    timeout_ms=6_000,
    session="controller",
    handover_wait_ms=4_000,
    peer=Endpoint("PEER", "::1", 7373, "TLS"),
)


def test_registration_of_a_participant_round_trips_in_one_object_more() -> None:
    data = registration.encode(REMOTE, 0)

    assert registration.decode(3, data, 77) == REMOTE
    plain, own = (
        msgspec.json.decode(registration.encode(Broker(3, 77, TWO_LISTENERS, "r1"), 0)),
        msgspec.json.decode(data),
    )
    assert own.pop("kactl")["session"] == "controller"
    assert own == plain


def test_eviction_keeps_everything_else_in_a_registration() -> None:
    kafka = KAFKA_3_9.replace(b'"features":{}', b'"features":{},"later":[1]')

    marked = registration.encode_evicted(kafka)

    assert registration.is_evicted(marked)
    assert not registration.is_evicted(kafka)
    assert not registration.is_evicted(b"damaged")
    assert msgspec.json.decode(marked) == msgspec.json.decode(kafka) | {"kactl": {"evicted": True}}
    assert registration.decode(3, marked, 77) == Broker(3, 77, TWO_LISTENERS, "r1", evicted=True)
    assert registration.decode(
        3, registration.encode_evicted(registration.encode(REMOTE, 0)), 77
    ) == msgspec.structs.replace(REMOTE, evicted=True)


@pytest.mark.parametrize("own", [b'{"incarnation":"xy"}', b'{"session":"none"}', b'{"timeout_ms":-1}', b"7"])
def test_malformed_object_of_a_participant_is_rejected(own: bytes) -> None:
    with pytest.raises(Malformed):
        registration.decode(3, KAFKA_3_9.replace(b'"features":{}', b'"features":{},"kactl":' + own), 77)
