"""Format of broker registrations.

Real brokers write versions 4 and 5; versions 1 to 3 are of brokers before 0.10. kactl's own participants register as
version 5 with one object more, `kactl`, which Kafka's brokers ignore. So does an active controller that only brokers
look up there, and that is no broker.

Source: Kafka's BrokerIdZNode.
"""

import re
from typing import Annotated, Any, Final, Literal

import msgspec

from kactl.model import Broker, Endpoint
from kactl.model.errors import BrokerIdTaken

from .json_text import INT32_MAX, Malformed, excerpt
from .json_text import decode as decode_json

_NO_PORT: Final = -1
_PLAINTEXT: Final = "PLAINTEXT"
_FIRST_WITH_ENDPOINTS: Final = 2
_ID: Final = re.compile("[0-9]{1,10}")
_PORT: Final = re.compile("-?[0-9]{1,9}")


# The values are sent to brokers, and have to fit the fields of their requests.
_TEXT_MAX: Final = 1_000
_PORT_MAX: Final = 2**16 - 1

_Text = Annotated[str, msgspec.Meta(max_length=_TEXT_MAX)]
_Port = Annotated[int, msgspec.Meta(ge=_NO_PORT, le=_PORT_MAX)]
_Level = Annotated[int, msgspec.Meta(ge=0, le=2**15 - 1)]


class _Levels(msgspec.Struct):
    min_version: _Level
    max_version: _Level


class _Participant(msgspec.Struct, omit_defaults=True):
    """What only kactl's participants register; see `kactl.model.Broker`. `incarnation` is hexadecimal.

    `controller` marks the entry of a controller.
    """

    incarnation: _Text = ""
    evicted: bool = False
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] = 0
    session: Literal["store", "controller"] = "store"
    handover_wait_ms: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] = 0
    peer: Endpoint | None = None
    controller: bool = False
    groups: tuple[_Text, ...] | None = None
    weight: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)] = 1
    name: _Text = ""


class _Node(msgspec.Struct):
    version: Annotated[int, msgspec.Meta(ge=1)]
    host: _Text | None = None
    port: _Port = _NO_PORT
    jmx_port: int = _NO_PORT
    timestamp: str | int = ""
    endpoints: list[_Text] | None = None
    listener_security_protocol_map: dict[str, _Text] | None = None
    rack: _Text | msgspec.UnsetType | None = msgspec.UNSET
    features: dict[str, _Levels] | None = None
    kactl: _Participant | msgspec.UnsetType = msgspec.UNSET


_decoder: Final = msgspec.json.Decoder(_Node)


def encode(broker: Broker, now_ms: int, *, controller: bool = False) -> bytes:
    """Returns a registration of version 5; with `controller`, the entry of a controller."""
    plain = next((endpoint for endpoint in broker.endpoints if endpoint.protocol == _PLAINTEXT), None)
    node = _Node(
        version=5,
        host=plain.host if plain else None,
        port=plain.port if plain else _NO_PORT,
        timestamp=str(now_ms),
        endpoints=[_endpoint_text(endpoint) for endpoint in broker.endpoints],
        listener_security_protocol_map={endpoint.listener: endpoint.protocol for endpoint in broker.endpoints},
        rack=msgspec.UNSET if broker.rack is None else broker.rack,
        features={name: _Levels(lowest, highest) for name, lowest, highest in broker.features},
    )
    own = _Participant(
        incarnation=broker.incarnation.hex(),
        evicted=broker.evicted,
        timeout_ms=broker.timeout_ms,
        session=broker.session,
        handover_wait_ms=broker.handover_wait_ms,
        peer=broker.peer,
        controller=controller,
        groups=broker.groups,
        weight=broker.weight,
        name=broker.name,
    )
    if own != _Participant():
        node.kactl = own
    return msgspec.json.encode(node)


def encode_evicted(data: bytes) -> bytes:
    """Returns a registration with the mark of an eviction. Everything else in it stays, known or not."""
    node: dict[str, Any] = msgspec.json.decode(data)
    node["kactl"] = {**node.get("kactl", {}), "evicted": True}
    return msgspec.json.encode(node)


def is_evicted(data: bytes | None) -> bool:
    """Returns whether a registration has the mark of an eviction; False if it cannot be read."""
    return _own(data).evicted


def taken(broker: int, data: bytes | None) -> BrokerIdTaken:
    """Returns the error for an id with this registration. Its session lasts for its timeout at most, if nothing renews
    it."""
    return BrokerIdTaken(broker, ends_ms=_own(data).timeout_ms or None)


def is_controller(data: bytes | None) -> bool:
    """Returns whether this is the entry of a controller, and no registration; False if it cannot be read."""
    return _own(data).controller


def _own(data: bytes | None) -> _Participant:
    try:
        own = decode_json(_decoder, data).kactl
    except ValueError:
        return _Participant()
    return _Participant() if own is msgspec.UNSET else own


def decode(broker_id: int, data: bytes | None, epoch: int) -> Broker:
    """Returns the broker of a registration of any version.

    Raises:
        Malformed: it is not a registration.
    """
    try:
        node = decode_json(_decoder, data)
        endpoints = _endpoints(node)
        own = _Participant() if node.kactl is msgspec.UNSET else node.kactl
        incarnation = bytes.fromhex(own.incarnation)
    except Malformed:
        raise
    except ValueError as error:
        raise Malformed(f"{error} in {excerpt(data)}") from None
    return Broker(
        id=broker_id,
        epoch=epoch,
        endpoints=endpoints,
        rack=None if node.rack is msgspec.UNSET else node.rack,
        features=tuple(
            (name, levels.min_version, levels.max_version) for name, levels in sorted((node.features or {}).items())
        ),
        incarnation=incarnation,
        evicted=own.evicted,
        timeout_ms=own.timeout_ms,
        session=own.session,
        handover_wait_ms=own.handover_wait_ms,
        peer=own.peer,
        groups=own.groups,
        weight=own.weight,
        name=own.name,
    )


def _endpoints(node: _Node) -> tuple[Endpoint, ...]:
    if node.version < _FIRST_WITH_ENDPOINTS:
        if node.host is None:
            raise ValueError("a registration without endpoints and without a host")
        return (Endpoint(_PLAINTEXT, node.host, node.port, _PLAINTEXT),)
    if node.endpoints is None:
        raise ValueError(f"a registration of version {node.version} without endpoints")
    return tuple(_endpoint(text, node.listener_security_protocol_map) for text in node.endpoints)


def _endpoint(text: str, protocols: dict[str, str] | None) -> Endpoint:
    listener, scheme, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not scheme or not listener or not colon or not _PORT.fullmatch(port):
        raise ValueError(f"{text!r} is no endpoint")
    if not _NO_PORT <= int(port) <= _PORT_MAX:
        raise ValueError(f"{text!r} has a port that is none")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if protocols is None:
        return Endpoint(listener, host, int(port), listener)
    if listener not in protocols:
        raise ValueError(f"listener {listener!r} has no security protocol")
    return Endpoint(listener, host, int(port), protocols[listener])


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def is_broker_id(text: str) -> bool:
    """Returns whether a text is the decimal id of a broker."""
    return _ID.fullmatch(text) is not None and int(text) <= INT32_MAX
