"""Examples of requests and responses for the OpenAPI document, made from their types.

A field has the value of its name in the table below, if its type permits it, or else a small value of its type.
"""

import enum
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec

from .schema import Question

_VALUES: Final[Mapping[str, Any]] = {
    "adding": [],
    "action": "kill",
    "active_id": 0,
    "advertised": "broker-1.example:9092",
    "age_ms": 0,
    "broker": 1,
    "brokers": [1, 2, 3],
    "cause": "the session of controller 0 ended",
    "cluster": "orders-eu",
    "config": {"min.insync.replicas": "2"},
    "controller_epoch": 3,
    "controller_id": 0,
    "depth": 0,
    "detail": "",
    "epoch": 3,
    "error_name": "NONE",
    "expected_epoch": 3,
    "explained": "If 1 fails, every partition keeps a leader.",
    "event": 1790000000000104,
    "host": "broker-1.example",
    "id": 1,
    "isr": [1, 2, 3],
    "kill": [{"brokers": [1]}],
    "label": "BrokerChange",
    "leader": 1,
    "leader_epoch": 4,
    "limit": 500,
    "listener": "PLAINTEXT",
    "matched": 1,
    "min_insync_replicas": 2,
    "name": "orders",
    "next_cursor": None,
    "node_id": 0,
    "operation": "POST /v1/elections",
    "outcome": "ok",
    "partition": 0,
    "partition_epoch": 7,
    "partitions": 12,
    "peer": "127.0.0.1",
    "port": 9092,
    "preferred_leader": 1,
    "principal": "token:ada",
    "protocol": "PLAINTEXT",
    "removing": [],
    "reason": "maintenance of rack a",
    "replica_states": {"1": "online", "2": "online", "3": "online"},
    "replicas": [1, 2, 3],
    "replication_factor": 3,
    "role": "operator",
    "seq": 1790000000000421,
    "state": "online",
    "status": "ok",
    "strategy": "offline",
    "ticket": "kactl_ticket_...",
    "time_ms": 1790000000321,
    "timeout_ms": 30_000,
    "topic": "orders",
    "topics": 1,
    "trigger": "BrokerChange",
    "type": "preferred",
    "verdict": "1 leads: it is the preferred replica, live and in sync",
    "version": "0.1.0",
    "waits_for": "replica 3 to join the ISR",
}
# Fields of requests that have a default, and are worth showing.
_SHOWN: Final = frozenset(
    {"partitions", "replication_factor", "dry_run", "reason", "config", "replicas", "type", "kill", "timeout_ms"}
)


def example(kind: Any) -> Any:
    """Returns an example of a type, as plain values."""
    return _of(kind, "")


def of_field(kind: Any, name: str) -> Any:
    """Returns an example of a field of this name."""
    return _of(kind, name)


def _of(kind: Any, name: str) -> Any:
    if name in _VALUES and _fits(_VALUES[name], kind):
        return _VALUES[name]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _annotated(kind, name)
    if origin in (types.UnionType, typing.Union):
        return _of(next(each for each in arguments if each is not types.NoneType), name)
    if origin is Literal:
        return arguments[0]
    if origin is tuple and Ellipsis not in arguments:
        return [_of(each, "") for each in arguments]
    if origin in (tuple, list):
        return [_of(arguments[0], name.removesuffix("s"))]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind)).value
    if origin is dict:
        return {str(_of(arguments[0], "")): _of(arguments[1], name)}
    return {int: 0, float: 0.0, bool: False, str: ""}.get(kind)


def _annotated(kind: Any, name: str) -> Any:
    """Returns an example of a type with bounds; the least number that they permit."""
    plain, *metas = get_args(kind)
    value = _of(plain, name)
    least = max((meta.ge for meta in metas if isinstance(meta, msgspec.Meta) and meta.ge is not None), default=None)
    return least if isinstance(value, int) and least is not None and value < least else value


def _struct(kind: type[msgspec.Struct]) -> dict[str, Any]:
    config = kind.__struct_config__
    values: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field is not None else {}
    asked = issubclass(kind, Question)
    for field in msgspec.structs.fields(kind):
        if field.required or field.name in (_SHOWN if asked else _VALUES):
            values[field.encode_name] = _of(field.type, field.name)
        elif not asked:
            values[field.encode_name] = msgspec.to_builtins(
                field.default if field.default is not msgspec.NODEFAULT else {}
            )
    return values


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, str_keys=True)
    except (msgspec.ValidationError, TypeError):
        return False
    return True
