"""ZooKeeper requests: kazoo's, and some that kazoo does not define.

A connection accepts any request that has a `type` and can be serialized and deserialized. Paths in requests are
absolute, chroot included.
"""

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from kazoo.exceptions import EXCEPTIONS, RolledBackError, RuntimeInconsistency, SystemZookeeperError, ZookeeperError
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData, Sync, Transaction
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2

_GET_DATA: Final = 4
_PERSISTENT_RECURSIVE: Final = 1
_ANY: Final = 3
_ERROR: Final = -1
_HEADER: Final = struct.Struct("!i?i")
_INT: Final = struct.Struct("!i")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_HEADER_GET: Final = _HEADER.pack(_GET_DATA, False, -1)
_HEADER_END: Final = _HEADER.pack(-1, True, -1)
_UNWATCHED: Final = b"\0"


def create(
    path: str,
    data: bytes | None,
    *,
    ephemeral: bool = False,
    sequential: bool = False,
    acls: Sequence[Any] = OPEN_ACL_UNSAFE,
) -> Any:
    """A new node; None writes null, which differs from b"". `Client.create` knows the permissions that are due."""
    return Create(path, data, acls, _EPHEMERAL * ephemeral + _SEQUENTIAL * sequential)


def put(path: str, data: bytes, version: int = -1) -> Any:
    """Replace a node's data, at `version`; -1 means any."""
    return SetData(path, data, version)


def delete(path: str, version: int = -1) -> Any:
    return Delete(path, version)


def check(path: str, version: int) -> Any:
    """In a multi: succeeds only while the node's data has that version."""
    return CheckVersion(path, version)


def sync(path: str) -> Any:
    """The server responds once it has caught up with its leader."""
    return Sync(path)


def watch_tree(path: str) -> Any:
    """A watch on everything below a path, which persists when it fires. Needs a server of 3.6 or later."""
    return WatchTree(path)


def unwatch(path: str) -> Any:
    """Remove all watches of this connection on exactly this path."""
    return Unwatch(path)


def multi(operations: Sequence[Any]) -> Any:
    """Atomic operations. The response is a list: the result of each operation, or an error for each."""
    return Transaction(list(operations))


def first_error(result: Any) -> ZookeeperError | None:
    """Returns the error at which a multi failed, or None; the other operations report that they were rolled back."""
    if isinstance(result, ZookeeperError):
        return result
    errors = [error for error in result if isinstance(error, ZookeeperError)]
    return next((error for error in errors if not isinstance(error, RolledBackError | RuntimeInconsistency)), None)


@dataclasses.dataclass(frozen=True, slots=True)
class WatchTree:
    """The response is None. Source: ZooKeeper's AddWatchRequest, of mode PERSISTENT_RECURSIVE."""

    path: str

    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        return _path(self.path) + _INT.pack(_PERSISTENT_RECURSIVE)

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> None:
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Unwatch:
    """The response is None. Source: ZooKeeper's RemoveWatchesRequest, of type ANY."""

    path: str

    type: ClassVar[int] = 18

    def serialize(self) -> bytes:
        return _path(self.path) + _INT.pack(_ANY)

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> None:
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class WhoAmI:
    """The identities of the connection: a list of (scheme, id). Needs a server of 3.7 or later.

    Source: ZooKeeper's WhoAmIResponse.
    """

    type: ClassVar[int] = 107

    def serialize(self) -> bytes:
        return b""

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> list[tuple[str, str]]:
        (count,) = _INT.unpack_from(answer, offset)
        offset += _INT.size
        texts = []
        for _ in range(2 * max(count, 0)):
            (length,) = _INT.unpack_from(answer, offset)
            offset += _INT.size
            texts.append(answer[offset : offset + max(length, 0)].decode())
            offset += max(length, 0)
        return list(zip(texts[::2], texts[1::2], strict=True))


def _path(path: str) -> bytes:
    text = path.encode()
    return _INT.pack(len(text)) + text


@dataclasses.dataclass(frozen=True, slots=True)
class MultiRead:
    """The data of many nodes in one request. Needs a server of 3.6 or later; others return UnimplementedError.

    The response is a list of (data, stat), or of an error, in the order of `paths`. It arms no watches.

    Source: ZooKeeper's MultiOperationRecord and MultiResponse.
    """

    paths: tuple[str, ...]

    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        parts: list[bytes] = []
        for path in self.paths:
            text = path.encode()
            parts += (_HEADER_GET, _INT.pack(len(text)), text, _UNWATCHED)
        return b"".join([*parts, _HEADER_END])

    @classmethod
    def deserialize(cls, answer: bytes, offset: int) -> list[Any]:
        nodes: list[Any] = []
        while True:
            kind, done, _ = _HEADER.unpack_from(answer, offset)
            offset += _HEADER.size
            if done:
                return nodes
            if kind == _ERROR:
                (code,) = _INT.unpack_from(answer, offset)
                offset += _INT.size
                nodes.append(error_of(code))
                continue
            (length,) = _INT.unpack_from(answer, offset)
            offset += _INT.size
            data = answer[offset : offset + length] if length >= 0 else None
            offset += max(length, 0)
            nodes.append((data, ZnodeStat._make(_STAT.unpack_from(answer, offset))))
            offset += _STAT.size


def error_of(code: int) -> ZookeeperError:
    """Returns the exception of an error code; a code that kazoo does not know is a SystemZookeeperError."""
    if code in EXCEPTIONS:
        error: ZookeeperError = EXCEPTIONS[code]()
        return error
    return SystemZookeeperError(f"error {code}")
