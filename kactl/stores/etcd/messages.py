"""Requests and responses of etcd's JSON gateway, as far as the store uses them.

Bytes are base64 and 64-bit integers are text, as in every JSON form of a protobuf message; fields that are zero are
left out.

Source: etcd's rpc.proto, kv.proto; https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/.
"""

from typing import Any, Final, Literal, TypeVar

import msgspec

from kactl.errors import StoreUnavailable

_T = TypeVar("_T")
Target = Literal["VERSION", "CREATE", "MOD"]


class Compare(msgspec.Struct, omit_defaults=True):
    """A condition of a transaction: the named property of a key equals the one value that is given."""

    key: bytes
    target: Target
    result: str = "EQUAL"
    version: int | msgspec.UnsetType = msgspec.UNSET
    create_revision: int | msgspec.UnsetType = msgspec.UNSET
    mod_revision: int | msgspec.UnsetType = msgspec.UNSET


def version_is(key: bytes, version: int) -> Compare:
    """The key has been written `version` times since its creation; 0: it does not exist."""
    return Compare(key, "VERSION", version=version)


def created_at(key: bytes, revision: int) -> Compare:
    """The key was created at a revision; 0: it does not exist."""
    return Compare(key, "CREATE", create_revision=revision)


def written_at(key: bytes, revision: int) -> Compare:
    """The last write of the key was at a revision; 0: it does not exist."""
    return Compare(key, "MOD", mod_revision=revision)


class Range(msgspec.Struct, omit_defaults=True):
    """A read of one key, or of all keys from `key` up to but not including `range_end`. It sees every earlier write."""

    key: bytes
    range_end: bytes = b""
    limit: int = 0
    keys_only: bool = False


class Put(msgspec.Struct, omit_defaults=True):
    """A write of one key; with a lease, the key is deleted at the end of the lease."""

    key: bytes
    value: bytes
    lease: int = 0


class DeleteRange(msgspec.Struct, omit_defaults=True):
    """A deletion of one key, or of a range; missing keys are skipped."""

    key: bytes
    range_end: bytes = b""


class Op(msgspec.Struct, omit_defaults=True):
    """One operation of a transaction: exactly one of its fields is set."""

    request_range: Range | None = None
    request_put: Put | None = None
    request_delete_range: DeleteRange | None = None


def op(request: Range | Put | DeleteRange) -> Op:
    """Returns a request as an operation of a transaction."""
    match request:
        case Range():
            return Op(request_range=request)
        case Put():
            return Op(request_put=request)
        case DeleteRange():
            return Op(request_delete_range=request)


class Txn(msgspec.Struct):
    """A transaction: if all comparisons hold, `success`, otherwise `failure`, atomically."""

    compare: list[Compare]
    success: list[Op]
    failure: list[Op]


class Header(msgspec.Struct, frozen=True):
    """`revision` is that of the whole store at the time of the response."""

    revision: int = 0


class KeyValue(msgspec.Struct, gc=False):
    """A stored key. `version` counts its writes since its creation, from 1."""

    key: bytes
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    value: bytes = b""
    lease: int = 0


class RangeResponse(msgspec.Struct):
    header: Header = Header()
    kvs: list[KeyValue] = []
    more: bool = False


class OpResponse(msgspec.Struct):
    """The response to one operation; None for those that are not reads."""

    response_range: RangeResponse | None = None


class TxnResponse(msgspec.Struct):
    """`responses` are those of the executed operations, in their order."""

    header: Header
    succeeded: bool = False
    responses: list[OpResponse] = []

    def read(self, index: int) -> list[KeyValue]:
        """Returns what one of the executed operations, a read, found.

        Raises:
            StoreUnavailable: the response does not have it.
        """
        if index >= len(self.responses):
            raise StoreUnavailable(f"etcd responded to {len(self.responses)} operations of a transaction with more")
        response = self.responses[index].response_range
        return [] if response is None else response.kvs


class Executed(msgspec.Struct):
    """The response to a transaction of writes, without the responses to its operations."""

    header: Header
    succeeded: bool = False


class LeaseResponse(msgspec.Struct, rename={"id": "ID", "ttl": "TTL"}):
    """A granted or renewed lease; `ttl` in seconds, 0 if the lease does not exist."""

    id: int = 0
    ttl: int = 0


class KeepAliveResponse(msgspec.Struct):
    result: LeaseResponse


class WatchEvent(msgspec.Struct, gc=False):
    kv: KeyValue
    type: Literal["PUT", "DELETE"] = "PUT"


class WatchResult(msgspec.Struct):
    """Events of one or several revisions, in their order. `canceled` ends the watch.

    A large result is received in fragments; `fragment` is True in all but the last one. A fragment may end within a
    revision.
    """

    header: Header = Header()
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    fragment: bool = False
    events: list[WatchEvent] = []


class WatchResponse(msgspec.Struct):
    result: WatchResult | None = None


class MembersResponse(msgspec.Struct):
    members: list[dict[str, Any]] = []


class Failure(msgspec.Struct):
    """An error of the server. `code` is gRPC's."""

    error: str = ""
    code: int = 0


class TokenResponse(msgspec.Struct):
    token: str = ""


encoder: Final = msgspec.json.Encoder()
# Lax, since 64-bit integers are text.
range_response: Final = msgspec.json.Decoder(RangeResponse, strict=False)
txn_response: Final = msgspec.json.Decoder(TxnResponse, strict=False)
executed: Final = msgspec.json.Decoder(Executed, strict=False)
lease_response: Final = msgspec.json.Decoder(LeaseResponse, strict=False)
keep_alive_response: Final = msgspec.json.Decoder(KeepAliveResponse, strict=False)
watch_response: Final = msgspec.json.Decoder(WatchResponse, strict=False)
members_response: Final = msgspec.json.Decoder(MembersResponse, strict=False)
token_response: Final = msgspec.json.Decoder(TokenResponse, strict=False)
failure: Final = msgspec.json.Decoder(Failure, strict=False)

# Invalid JSON or another type, invalid UTF-8, and nesting beyond the limit of the interpreter.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def decoded(decoder: "msgspec.json.Decoder[_T]", answer: bytes) -> _T:
    """Returns a response of etcd.

    Raises:
        StoreUnavailable: something else responded. The outcome of the request is unknown.
    """
    try:
        return decoder.decode(answer)
    except UNREADABLE as error:
        raise StoreUnavailable(f"the server sent something that is not etcd's: {error}") from None
