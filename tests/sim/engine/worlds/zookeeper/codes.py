"""Numbers of ZooKeeper's protocol: requests, errors, events, permissions.

Source: ZooDefs.OpCode, KeeperException.Code, Watcher.Event.EventType, ZooDefs.Perms.
"""

import enum
from typing import Final


class Op(enum.IntEnum):
    """Kind of a request."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    CHILDREN = 8
    SYNC = 9
    PING = 11
    CHILDREN_2 = 12
    CHECK = 13
    MULTI = 14
    CREATE_2 = 15
    REMOVE_WATCHES = 18
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    ADD_WATCH = 106
    CLOSE = -11


# Requests that the leader decides. Each of them takes a transaction number, also if it is rejected.
WRITES: Final = frozenset({Op.CREATE, Op.CREATE_2, Op.DELETE, Op.SET_DATA, Op.SET_ACL, Op.MULTI, Op.CLOSE})


class Code(enum.IntEnum):
    """Error of a response."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NO_WATCHER = -121


class Refused(Exception):
    """A server rejects a request."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


class Event(enum.IntEnum):
    """Kind of a watch event."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILDREN = 4


class Perm(enum.IntFlag):
    """Permission of an entry of an access list."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16


EPHEMERAL: Final = 1
SEQUENTIAL: Final = 2
ANY_VERSION: Final = -1

# Numbers of messages that answer no request of the client.
EVENT_XID: Final = -1
PING_XID: Final = -2
