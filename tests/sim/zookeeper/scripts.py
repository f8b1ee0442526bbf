"""Random scripts for several clients, as plain data: equal seeds make equal scripts.

Paths are relative to a root of the script's own, so that a server can run one script after the other.
"""

import random
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from kazoo.protocol.serialization import (
    Create,
    Create2,
    Exists,
    GetACL,
    GetChildren,
    GetChildren2,
    GetData,
    SetACL,
    SetData,
)
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id

from kactl.stores.zookeeper import request
from kactl.stores.zookeeper.delete_multi import PartitionsDeletion
from kactl.stores.zookeeper.request import MultiRead
from kactl.stores.zookeeper.set_watches import SetWatches

CLIENTS: Final = 3
PATHS: Final = ("/a", "/b", "/a/c", "/a/d", "/a/c/e", "/b/f", "/é", "/b/0", "/b/0/state", "/b/1", "/b/1/state")
MALFORMED: Final = (
    "",
    "/a/",
    "//a",
    "/a/../b",
    "/./a",
    "/a/x\0",
    "/a/x\x1f",
    "/a/\ud7ff",
    "/a/\ue000",
    "/a/\U0001f600",
)
TREES: Final = ("", "/a", "/a/c", "/b")
DATA: Final = (None, b"", b"x", b"\x00\xff" * 40, b"long" * 1_500)
USERS: Final = ("alice", "bob")
GROUP_MAX: Final = 25
# Stands for the last transaction that the client has seen.
LAST_SEEN: Final = -1
STEPS: Final = (
    ("ask", 90.0), ("drop", 2.5), ("take over", 1.0), ("close", 1.0), ("auth", 2.0), ("bad auth", 0.3),
    ("unknown", 0.3), ("wrong password", 0.4), ("from the future", 0.4), ("too long", 0.2), ("expire", 0.15),
)  # fmt: skip


class Step(NamedTuple):
    """Actions of one client.

    Attributes:
        do: one of the names in `STEPS`.
        argument: of that step: functions that make the requests of a root, or the name of a user.
    """

    do: str
    client: int
    argument: Any = None


class OneRequest(NamedTuple):
    """A request, for any root: `make(root)`."""

    kind: str
    arguments: tuple[Any, ...]

    def make(self, root: str) -> Any:
        return _MAKE[self.kind](root, *self.arguments)


class SetAllWatches(NamedTuple):
    """SetWatches as ZooKeeper's own clients send it: watches of data, of existence and of children."""

    zxid: int
    paths: tuple[tuple[str, ...], ...]
    type: int = SetWatches.type

    def serialize(self) -> bytes:
        parts = [struct.pack("!q", self.zxid)]
        for paths in self.paths:
            encoded = [path.encode() for path in paths]
            parts += (struct.pack("!i", len(encoded)), *(struct.pack("!i", len(one)) + one for one in encoded))
        return b"".join(parts)

    def deserialize(self, answer: bytes, offset: int) -> None:
        return None


def script(seed: int, operations: int) -> list[Step]:
    """Returns the steps of a script with about this many requests."""
    rng = random.Random(f"zookeeper script {seed}")
    restricts = rng.random() < 0.5
    steps: list[Step] = []
    left = operations
    names, weights = zip(*STEPS, strict=True)
    while left > 0:
        client, do = rng.randrange(CLIENTS), rng.choices(names, weights)[0]
        if do in ("auth", "bad auth"):
            steps.append(Step(do, client, rng.choice(USERS)))
            left -= 1
        elif do in ("ask", "expire"):
            group = _group(rng, restricts=restricts)
            steps.append(Step(do, client, group))
            left -= len(group)
        else:
            steps.append(Step(do, client))
            left -= 1
    return steps


def _group(rng: random.Random, *, restricts: bool) -> list[OneRequest]:
    size = rng.choice((1, 2, 5, rng.randint(1, GROUP_MAX)))
    group = [_one(rng, restricts=restricts) for _ in range(size)]
    # A server that has not committed a change of an access list yet decides about later writes by the old list.
    last = next((at for at, one in enumerate(group) if one.kind == "set acl"), size)
    return group[: last + 1]


def _one(rng: random.Random, *, restricts: bool) -> OneRequest:
    path, watch = _path(rng), rng.random() < 0.4
    match rng.randrange(26):
        case 0 | 1 | 2:
            return OneRequest("get", (path, watch))
        case 3 | 4 | 5:
            return OneRequest("exists", (path, watch))
        case 6 | 7 | 8:
            return OneRequest("children", (rng.choice((path, "", "")), watch))
        case 9:
            return OneRequest("old children", (path, watch))
        case 10:
            return OneRequest("many", tuple(_path(rng) for _ in range(rng.randint(0, 9))))
        case 11 | 12 | 13:
            fence = [OneRequest("check", (path, rng.randint(-1, 2)))] if rng.random() < 0.5 else []
            paths = rng.sample(PATHS, 2) if rng.random() < 0.5 else PATHS
            writes = [_write(rng, restricts=restricts, multi=paths) for _ in range(rng.randint(0, 5))]
            return OneRequest("multi", (*fence, *writes))
        case 14:
            return OneRequest("sync", ("",))
        case 15:
            return OneRequest("watch tree", (rng.choice(TREES),))
        case 16:
            return OneRequest("unwatch", (rng.choice((*TREES, *PATHS)),))
        case 17:
            if rng.random() < 0.5:
                return OneRequest("set watches", tuple(rng.sample(PATHS, rng.randint(0, 4))))
            kinds = tuple(tuple(rng.sample(PATHS, rng.randint(0, 3))) for _ in range(3))
            return OneRequest("set all watches", (rng.choice((0, LAST_SEEN, 2**63 - 1)), kinds))
        case 18:
            return OneRequest("acl", (path,))
        case 19:
            return OneRequest("delete partitions", (path, rng.randint(0, 2)))
        case _:
            return _write(rng, restricts=restricts)


def _write(rng: random.Random, *, restricts: bool, multi: Sequence[str] = ()) -> OneRequest:
    """Returns a write; `multi` are the paths of the multi that it belongs to."""
    path = rng.choice(multi) if multi else _path(rng)
    version = rng.choice((-1, -1, 0, 1, 2))
    match rng.randrange(20):
        case 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10:
            flags = (rng.random() < 0.25) + 2 * (rng.random() < 0.1)
            acl = _acl(rng) if restricts and rng.random() < 0.15 else tuple(OPEN_ACL_UNSAFE)
            kind = "create" if multi or rng.random() < 0.8 else "create2"
            return OneRequest(kind, (path, rng.choice(DATA), acl, flags))
        case 11 | 12 | 13 | 14:
            return OneRequest("put", (path, rng.choice(DATA), version))
        case 15 | 16 | 17:
            return OneRequest("delete", (path, version))
        case 18 if restricts and not multi:
            return OneRequest("set acl", (path, _acl(rng), version))
        case _:
            return OneRequest("delete", (rng.choice((path, path, *MALFORMED)), -1))


def _path(rng: random.Random) -> str:
    return rng.choice(MALFORMED) if rng.random() < 0.01 else rng.choice(PATHS)


def _acl(rng: random.Random) -> tuple[ACL, ...]:
    """Returns some entries; few of them are not allowed."""
    ids = [
        Id("world", "anyone"),
        Id("world", "anyone"),
        Id("auth", "anything"),
        *(Id("digest", digest(user)) for user in USERS),
        Id("ip", "127.0.0.1"),
    ]
    if rng.random() < 0.05:
        ids += [Id("world", "someone"), Id("digest", "no colon"), Id("unknown", "id")]
    perms = (31, 31, 1, 3, 15, 17, 1 | 16, 2 | 4 | 8)
    return tuple(ACL(rng.choice(perms), rng.choice(ids)) for _ in range(rng.choice((1, 1, 2, 3))))


def secret(user: str) -> str:
    return f"{user}:secret of {user}"


def digest(user: str) -> str:
    from kazoo.security import make_digest_acl_credential

    return str(make_digest_acl_credential(user, f"secret of {user}"))


def _partitions(root: str, path: str, version: int) -> Any:
    return PartitionsDeletion(root + path, version, [(f"{root}/b", np.array([0, 1], np.int32))])


def _absolute(root: str, paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(root + path for path in paths)


_MAKE: Final[dict[str, Any]] = {
    "get": lambda root, path, watch: GetData(root + path, watch),
    "exists": lambda root, path, watch: Exists(root + path, watch),
    "children": lambda root, path, watch: GetChildren2(root + path, watch),
    "old children": lambda root, path, watch: GetChildren(root + path, watch),
    "many": lambda root, *paths: MultiRead(_absolute(root, paths)),
    "multi": lambda root, *parts: request.multi([part.make(root) for part in parts]),
    "check": lambda root, path, version: request.check(root + path, version),
    "sync": lambda root, path: request.sync(root + path),
    "watch tree": lambda root, path: request.watch_tree(root + path),
    "unwatch": lambda root, path: request.unwatch(root + path),
    "set watches": lambda root, *paths: SetWatches(_absolute(root, paths)),
    "set all watches": lambda root, zxid, kinds: SetAllWatches(zxid, tuple(_absolute(root, paths) for paths in kinds)),
    "acl": lambda root, path: GetACL(root + path),
    "set acl": lambda root, path, acl, version: SetACL(root + path, list(acl), version),
    "create": lambda root, path, data, acl, flags: Create(root + path, data, list(acl), flags),
    "create2": lambda root, path, data, acl, flags: Create2(root + path, data, list(acl), flags),
    "put": lambda root, path, data, version: SetData(root + path, data, version),
    "delete": lambda root, path, version: request.delete(root + path, version),
    "delete partitions": _partitions,
}
