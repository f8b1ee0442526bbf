"""Requests and responses of etcd's gRPC services, as far as the store uses them.

The protobuf library encodes and decodes them: a takeover reads hundreds of thousands of keys.

Source: etcd's rpc.proto and kv.proto; https://etcd.io/docs/v3.4/dev-guide/api_reference_v3/.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from kactl.model.errors import StoreUnavailable

_T = TypeVar("_T")
Target = Literal["VERSION", "CREATE", "MOD"]

# -- requests


class Compare(msgspec.Struct, frozen=True):
    """A condition of a transaction: the named property of a key equals a value."""

    key: bytes
    target: Target
    value: int


# Number of a target, and the field with its value.
_TARGETS: Final[dict[Target, tuple[int, str]]] = {
    "VERSION": (0, "version"),
    "CREATE": (1, "create_revision"),
    "MOD": (2, "mod_revision"),
}


def version_is(key: bytes, version: int) -> Compare:
    """The key has been written `version` times since its creation; 0: it does not exist."""
    return Compare(key, "VERSION", version)


def created_at(key: bytes, revision: int) -> Compare:
    """The key was created at a revision; 0: it does not exist."""
    return Compare(key, "CREATE", revision)


def written_at(key: bytes, revision: int) -> Compare:
    """The last write of the key was at a revision; 0: it does not exist."""
    return Compare(key, "MOD", revision)


class Range(msgspec.Struct, frozen=True):
    """A read of one key, or of all keys from `key` up to but not including `range_end`. It sees every earlier write."""

    key: bytes
    range_end: bytes = b""
    limit: int = 0
    keys_only: bool = False

    def encoded(self) -> bytes:
        return _encoded("RangeRequest", **msgspec.structs.asdict(self))


class Put(msgspec.Struct, frozen=True):
    """A write of one key; with a lease, the key is deleted at the end of the lease."""

    key: bytes
    value: bytes
    lease: int = 0


class DeleteRange(msgspec.Struct, frozen=True):
    """A deletion of one key, or of a range; missing keys are skipped."""

    key: bytes
    range_end: bytes = b""


Operation = Range | Put | DeleteRange
_OPERATIONS: Final = {Range: "request_range", Put: "request_put", DeleteRange: "request_delete_range"}
Row = tuple[bytes, int, bytes]


def txn(
    compare: Sequence[Compare],
    success: Sequence[Operation],
    failure: Sequence[Operation] = (),
    rows: Iterable[Row] = (),
) -> bytes:
    """Returns a transaction: if all comparisons hold, `success`, otherwise `failure`, atomically.

    Args:
        rows: key, expected version and new value of more keys, each with a comparison and a `Put` that succeeds.
    """
    request = CLASSES["TxnRequest"]()
    for each in compare:
        number, field = _TARGETS[each.target]
        request.compare.add(target=number, key=each.key, **{field: each.value})
    for operations, added in ((success, request.success), (failure, request.failure)):
        for operation in operations:
            added.add(**{_OPERATIONS[type(operation)]: msgspec.structs.asdict(operation)})
    add_compare, add_operation = request.compare.add, request.success.add
    for key, version, value in rows:
        add_compare(key=key, version=version)
        put = add_operation().request_put  # setting fields takes less time than a constructor
        put.key, put.value = key, value
    return request.SerializeToString()  # type: ignore[no-any-return]


def lease_grant(ttl_s: int) -> bytes:
    return _encoded("LeaseGrantRequest", TTL=ttl_s)


def lease_id(lease: int) -> bytes:
    """Returns a request to revoke a lease, or to keep it alive."""
    return _encoded("LeaseRequest", ID=lease)


def watch(begin: bytes, end: bytes, start_revision: int) -> bytes:
    """Returns a request to watch a range from a revision on, with notices of progress and in fragments.

    Without fragments, what was missed by a large cluster exceeds any limit of a response.
    """
    create = {"key": begin, "range_end": end, "start_revision": start_revision}
    return _encoded("WatchRequest", create_request=create | {"progress_notify": True, "fragment": True})


def authenticate(name: str, password: str) -> bytes:
    return _encoded("AuthenticateRequest", name=name, password=password)


def _encoded(kind: str, /, **fields: object) -> bytes:
    return CLASSES[kind](**fields).SerializeToString()  # type: ignore[no-any-return]


MEMBER_LIST: Final = b""


# -- responses


class Header(Protocol):
    """`revision` is that of the whole store at the time of the response."""

    revision: int


class KeyValue(Protocol):
    """A stored key. `version` counts its writes since its creation, from 1."""

    key: bytes
    create_revision: int
    mod_revision: int
    version: int
    value: bytes
    lease: int


class RangeResponse(Protocol):
    """`more`: there are more keys than the limit of the request."""

    header: Header
    kvs: Sequence[KeyValue]
    more: bool


class OpResponse(Protocol):
    """The response to one operation; `response_range` is empty for those that are not reads."""

    response_range: RangeResponse


class TxnResponse(Protocol):
    """`responses` are those of the executed operations, in their order."""

    header: Header
    succeeded: bool
    responses: Sequence[OpResponse]


def read(response: TxnResponse, index: int) -> Sequence[KeyValue]:
    """Returns what one of the executed operations, a read, found.

    Raises:
        StoreUnavailable: the response does not have it.
    """
    if index >= len(response.responses):
        raise StoreUnavailable(f"etcd responded to {len(response.responses)} operations of a transaction with more")
    return response.responses[index].response_range.kvs


class Executed(Protocol):
    """The response to a transaction of writes, without the responses to its operations."""

    header: Header
    succeeded: bool


class LeaseResponse(Protocol):
    """A granted or renewed lease; `TTL` in seconds, 0 if the lease does not exist."""

    ID: int
    TTL: int


class WatchEvent(Protocol):
    """`type` is PUT or DELETE."""

    type: int
    kv: KeyValue


PUT: Final = 0
DELETE: Final = 1


class WatchResponse(Protocol):
    """Events of one or several revisions, in their order. `canceled` ends the watch.

    A large response is received in fragments; `fragment` is True in all but the last one. A fragment may end within a
    revision.
    """

    header: Header
    created: bool
    canceled: bool
    compact_revision: int
    cancel_reason: str
    fragment: bool
    events: Sequence[WatchEvent]


class MemberHeader(Protocol):
    """`cluster_id` differs between clusters, and after the restore of a snapshot."""

    cluster_id: int


class MembersResponse(Protocol):
    header: MemberHeader
    members: Sequence[object]


class TokenResponse(Protocol):
    token: str


_Type = descriptor_pb2.FieldDescriptorProto.Type
_INT: Final = _Type.Value("TYPE_INT64")
_UNSIGNED: Final = _Type.Value("TYPE_UINT64")
_BOOL: Final = _Type.Value("TYPE_BOOL")
_DATA: Final = _Type.Value("TYPE_BYTES")
_STRING: Final = _Type.Value("TYPE_STRING")

# Fields of each message: name and number, and a type or the name of another message; [...]: any number of them.
_MESSAGES: Final[dict[str, dict[str, tuple[int, Any]]]] = {
    "RangeRequest": {"key": (1, _DATA), "range_end": (2, _DATA), "limit": (3, _INT), "keys_only": (8, _BOOL)},
    "PutRequest": {"key": (1, _DATA), "value": (2, _DATA), "lease": (3, _INT)},
    "DeleteRangeRequest": {"key": (1, _DATA), "range_end": (2, _DATA)},
    "Compare": {
        "target": (2, _INT),
        "key": (3, _DATA),
        "version": (4, _INT),
        "create_revision": (5, _INT),
        "mod_revision": (6, _INT),
    },
    "OpRequest": {
        "request_range": (1, "RangeRequest"),
        "request_put": (2, "PutRequest"),
        "request_delete_range": (3, "DeleteRangeRequest"),
    },
    "TxnRequest": {"compare": (1, ["Compare"]), "success": (2, ["OpRequest"]), "failure": (3, ["OpRequest"])},
    "LeaseGrantRequest": {"TTL": (1, _INT)},
    "LeaseRequest": {"ID": (1, _INT)},
    "WatchCreateRequest": {
        "key": (1, _DATA),
        "range_end": (2, _DATA),
        "start_revision": (3, _INT),
        "progress_notify": (4, _BOOL),
        "fragment": (8, _BOOL),
    },
    "WatchRequest": {"create_request": (1, "WatchCreateRequest")},
    "AuthenticateRequest": {"name": (1, _STRING), "password": (2, _STRING)},
    "Header": {"revision": (3, _INT)},
    "KeyValue": {
        "key": (1, _DATA),
        "create_revision": (2, _INT),
        "mod_revision": (3, _INT),
        "version": (4, _INT),
        "value": (5, _DATA),
        "lease": (6, _INT),
    },
    "RangeResponse": {"header": (1, "Header"), "kvs": (2, ["KeyValue"]), "more": (3, _BOOL)},
    "OpResponse": {"response_range": (1, "RangeResponse")},
    "TxnResponse": {"header": (1, "Header"), "succeeded": (2, _BOOL), "responses": (3, ["OpResponse"])},
    "Executed": {"header": (1, "Header"), "succeeded": (2, _BOOL)},
    "LeaseResponse": {"ID": (2, _INT), "TTL": (3, _INT)},
    "WatchEvent": {"type": (1, _INT), "kv": (2, "KeyValue")},
    "WatchResponse": {
        "header": (1, "Header"),
        "created": (3, _BOOL),
        "canceled": (4, _BOOL),
        "compact_revision": (5, _INT),
        "cancel_reason": (6, _STRING),
        "fragment": (7, _BOOL),
        "events": (11, ["WatchEvent"]),
    },
    "Member": {"ID": (1, _INT)},
    "MembersResponse": {"header": (1, "MemberHeader"), "members": (2, ["Member"])},
    "MemberHeader": {"cluster_id": (1, _UNSIGNED)},
    "TokenResponse": {"token": (2, _STRING)},
}
_PACKAGE: Final = "kactl.etcd"


def _classes() -> dict[str, type[message.Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="kactl/etcd.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            is_list = isinstance(kind, list)
            each = kind[0] if is_list else kind
            added = described.field.add(name=field_name, number=number)
            added.label = added.LABEL_REPEATED if is_list else added.LABEL_OPTIONAL
            if isinstance(each, str):
                added.type, added.type_name = added.TYPE_MESSAGE, f".{_PACKAGE}.{each}"
            else:
                added.type = each
    pool = descriptor_pool.DescriptorPool()  # of its own: other libraries fill the default one
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


CLASSES: Final[dict[str, Any]] = _classes()


class Decoder(Generic[_T]):
    """Decoder of one kind of response."""

    def __init__(self, name: str) -> None:
        self._class: Any = CLASSES[name]

    def parse(self, data: bytes) -> _T:
        """Returns a response of etcd.

        Raises:
            StoreUnavailable: something else responded. The outcome of the request is unknown.
        """
        try:
            return self._class.FromString(data)  # type: ignore[no-any-return]
        except message.DecodeError as error:
            raise StoreUnavailable(f"the server sent something that is not etcd's: {error}") from None


range_response: Final = Decoder[RangeResponse]("RangeResponse")
txn_response: Final = Decoder[TxnResponse]("TxnResponse")
executed: Final = Decoder[Executed]("Executed")
lease_response: Final = Decoder[LeaseResponse]("LeaseResponse")
watch_response: Final = Decoder[WatchResponse]("WatchResponse")
members_response: Final = Decoder[MembersResponse]("MembersResponse")
token_response: Final = Decoder[TokenResponse]("TokenResponse")
