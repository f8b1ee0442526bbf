"""Writes of a controller: many at once, each for itself, all under the fence.

A group is a few steps that are done together or not at all, such as a container and the state in it. Groups travel
in multis of one check of the fence and up to a hundred steps, and a multi is all or nothing. So when one group of a
multi is refused, the nodes of all of them are read, those that cannot be written any more are taken out, and the rest
goes again in smaller multis. One refused group costs one read and one more multi, and so do a hundred of them.

The fence is told from the steps by its place: it is the first operation of every multi, and nothing else is looked at
to decide that a later controller exists.

A multi that was lost with its connection is sent again and may find itself done. Then, and only then, a node that
holds exactly what we wrote, at the version that our write gives, counts as written by us.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)

from kactl.errors import ControllerMoved, StoreError
from kactl.model import Fence
from kactl.stores.base import Outcome

from . import layout, request
from .client import Client
from .responses import Responses

# Every round settles a group of each multi that failed, so this is met only if nodes come and go faster than we write.
ROUNDS_MAX: Final = 100
_ANY: Final = -1


@dataclasses.dataclass(slots=True)
class Op:
    """One operation. `path` is relative. An optional one is passed over if it is done already.

    What it does is told by `data` and `expected`: see `create`, `put` and `delete`.
    """

    path: str
    data: bytes | None
    expected: int | None
    deletes: bool = False
    optional: bool = False


def create(path: str, data: bytes | None, *, optional: bool = False) -> Op:
    return Op(path, data, None, optional=optional)


def put(path: str, data: bytes, expected: int = _ANY) -> Op:
    """Replace data at a version; any by default."""
    return Op(path, data, expected)


def delete(path: str) -> Op:
    """Passed over where nothing stands."""
    return Op(path, None, None, deletes=True, optional=True)


async def commit(
    client: Client, groups: Sequence[Sequence[Op]], fence: Fence, *, batch: int, tried: Responses | None = None
) -> list[Outcome]:
    """Do some groups of steps; what becomes of one does not depend on the others.

    Args:
        batch: steps in one multi, at most; a group is never parted.
        tried: what came of a first try by somebody else, who sent the groups in order, as many in a multi as fit into
            `batch`. The answer to a multi that was done may be empty.

    Raises:
        ControllerMoved: the fence is not the stored one. Groups may have been done before that was found.
        StoreError: the controller epoch is gone from ZooKeeper.
    """
    check = request.check(client.path(layout.CONTROLLER_EPOCH), fence.version)
    outcomes = [Outcome.FAILED] * len(groups)
    left = [list(group) for group in groups]
    multis = _pack(range(len(groups)), left, batch)
    for _ in range(ROUNDS_MAX):
        if not multis:
            break
        responses = tried or await client.ask_all(
            [request.multi([check, *_operations(client, left, members)]) for members in multis]
        )
        tried = None
        refused = []
        for at, (members, result) in enumerate(zip(multis, responses.results, strict=True)):
            fault = _fault(result, fence)
            if fault is None:
                for group in members:
                    outcomes[group] = Outcome.COMMITTED
            else:
                refused.append(_Refused(members, *fault, repeated=at in responses.repeated))
        multis = await _settle(client, left, refused, outcomes)
    return outcomes


@dataclasses.dataclass(slots=True)
class _Refused:
    """A multi that was not done.

    Attributes:
        members: its groups.
        at: the step at which it failed; None if it failed as a whole.
        repeated: it was sent again after a lost connection.
    """

    members: list[int]
    at: int | None
    error: ZookeeperError
    repeated: bool

    def blames(self, behind: int, group: Sequence[Op]) -> bool:
        """Whether it failed for good because of a group whose first step stands `behind` others.

        Not if the step is optional and was refused because it was done.
        """
        if self.at is None:
            return len(self.members) == 1
        if not behind <= self.at < behind + len(group):
            return False
        op = group[self.at - behind]
        return not (op.optional and isinstance(self.error, NoNodeError if op.deletes else NodeExistsError))


def _pack(order: Sequence[int], groups: Sequence[Sequence[Op]], size: int) -> list[list[int]]:
    """Part some groups, in order, into multis of at most `size` steps; a group of more has one for itself."""
    multis: list[list[int]] = []
    room = 0
    for group in order:
        if not groups[group]:
            continue
        if room < len(groups[group]):
            multis.append([])
            room = size
        multis[-1].append(group)
        room -= len(groups[group])
    return multis


def _operations(client: Client, groups: Sequence[Sequence[Op]], members: Sequence[int]) -> Iterator[Any]:
    for group in members:
        for op in groups[group]:
            path = client.path(op.path)
            if op.deletes:
                yield request.delete(path)
            elif op.expected is None:
                yield request.create(path, op.data)
            else:
                yield request.put(path, op.data or b"", op.expected)


def _fault(result: Any, fence: Fence) -> tuple[int | None, ZookeeperError] | None:
    """The step at which a multi failed, counted without the check, and with which error; None if it was done."""
    if isinstance(result, ZookeeperError):
        return None, result
    if not result:
        return None
    if isinstance(result[0], BadVersionError):
        raise ControllerMoved(ours=fence.epoch)
    if isinstance(result[0], NoNodeError):
        raise StoreError(f"{layout.CONTROLLER_EPOCH} is gone: somebody emptied the tree of the cluster")
    for at, one in enumerate(result):
        if isinstance(one, ZookeeperError) and not isinstance(one, RolledBackError | RuntimeInconsistency):
            return at - 1, one
    return None


async def _settle(
    client: Client, groups: list[list[Op]], refused: Sequence[_Refused], outcomes: list[Outcome]
) -> list[list[int]]:
    """Read what stands, take out what cannot be done any more, and say which multis to send next."""
    ops = [op for multi in refused for group in multi.members for op in groups[group]]
    found = iter(await client.read_all([op.path for op in ops]) if ops else ())
    again: list[list[int]] = []
    for multi in refused:
        size = sum(len(groups[group]) for group in multi.members)
        behind = 0
        for group in multi.members:
            held = groups[group]
            blamed = multi.blames(behind, held)
            behind += len(held)
            verdicts = [_look(op, next(found), adopt=multi.repeated) for op in held]
            groups[group] = [op for op, verdict in zip(held, verdicts, strict=True) if verdict is not _DONE]
            if _CONFLICT in verdicts:
                groups[group], outcomes[group] = [], Outcome.CONFLICT
            elif not groups[group]:
                outcomes[group] = Outcome.COMMITTED
            elif blamed:
                refusal = isinstance(multi.error, BadVersionError | NodeExistsError)
                groups[group], outcomes[group] = [], Outcome.CONFLICT if refusal else Outcome.FAILED
        # Halved, so that errors which reading cannot foresee are found in few rounds too.
        again += _pack(multi.members, groups, max(1, size // 2))
    return again


_TO_DO: Final = "to do"
_DONE: Final = "done"
_CONFLICT: Final = "conflict"


def _look(op: Op, found: Any, *, adopt: bool) -> str:
    """What is to become of a step, by what stands at its path: (data, stat) or an error."""
    if isinstance(found, NoNodeError):
        if op.deletes:
            return _DONE
        return _TO_DO if op.expected is None else _CONFLICT
    if isinstance(found, ZookeeperError) or op.deletes:
        return _TO_DO
    data, stat = found
    if op.expected is not None and op.expected in (_ANY, stat.version):
        return _TO_DO
    ours = 0 if op.expected is None else op.expected + 1
    if op.optional or (adopt and data == op.data and stat.version == ours):
        return _DONE
    return _CONFLICT
