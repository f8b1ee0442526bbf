"""Fenced writes of a controller: many at once, independent of each other, all under one fence.

A group is a few operations that succeed or fail together, such as a container and the state in it. Groups are sent in
multis of one check of the fence and up to a hundred operations, and a multi is atomic. If one group of a multi is
rejected, the nodes of all its groups are read, groups that can no longer succeed are removed, and the others are sent
again in smaller multis. One rejected group costs one read and one more multi, and so do a hundred of them.

The fence is identified by its position: it is the first operation of every multi, and only its error means that a later
controller exists.

A multi that was lost with its connection is sent again and may find its own writes. Then, and only then, a node with
exactly the written data, at the version that the write produces, counts as written by it.
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

from kactl.model import Fence
from kactl.model.errors import ControllerMoved, StoreError
from kactl.stores.base import Outcome

from . import layout, request
from .client import Client
from .responses import Responses

# Every round settles a group of each failed multi, so the limit is reached only if nodes change faster than kactl
# writes.
ROUNDS_MAX: Final = 100
_ANY: Final = -1


@dataclasses.dataclass(slots=True)
class Op:
    """One operation on a relative path. An optional one is skipped if its effect exists already.

    `data` and `expected` determine the kind: see `create`, `put`, `delete` and `exists`.
    """

    path: str
    data: bytes | None
    expected: int | None
    deletes: bool = False
    optional: bool = False

    @property
    def is_check(self) -> bool:
        return self.data is None and self.expected is not None


def create(path: str, data: bytes | None, *, optional: bool = False) -> Op:
    return Op(path, data, None, optional=optional)


def put(path: str, data: bytes, expected: int = _ANY) -> Op:
    """Replace data at a version; any version by default."""
    return Op(path, data, expected)


def delete(path: str) -> Op:
    """Delete a node; a missing one is skipped."""
    return Op(path, None, None, deletes=True, optional=True)


def exists(path: str) -> Op:
    """The group succeeds only while the node exists."""
    return Op(path, None, _ANY)


async def commit(
    client: Client, groups: Sequence[Sequence[Op]], fence: Fence, *, batch: int, tried: Responses | None = None
) -> list[Outcome]:
    """Execute groups of operations; the outcome of a group does not depend on the others.

    Args:
        batch: maximum number of operations in one multi; a group is never split.
        tried: the responses to a first attempt by the caller, which sent the groups in order, as many in a multi as
            fit into `batch`. The response to a successful multi may be empty.

    Returns:
        the outcome of each group.

    Raises:
        ControllerMoved: the fence is not the stored one. Groups may have been executed before that was detected.
        StoreError: the controller epoch is missing from ZooKeeper.
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
        failed = []
        for index, (members, result) in enumerate(zip(multis, responses.results, strict=True)):
            fault = _fault(result, fence)
            if fault is None:
                for group in members:
                    outcomes[group] = Outcome.COMMITTED
            else:
                failed.append(_FailedMulti(members, *fault, repeated=index in responses.repeated))
        multis = await _settle(client, left, failed, outcomes)
    return outcomes


@dataclasses.dataclass(slots=True)
class _FailedMulti:
    """A multi that failed.

    Attributes:
        members: its groups.
        failed_op: index of the failed operation; None if the multi failed as a whole.
        repeated: it was sent again after a lost connection.
    """

    members: list[int]
    failed_op: int | None
    error: ZookeeperError
    repeated: bool

    def blames(self, behind: int, group: Sequence[Op]) -> bool:
        """Returns whether it failed because of a group, whose first operation has index `behind`.

        An optional operation that was rejected because its effect exists is no reason.
        """
        if self.failed_op is None:
            return len(self.members) == 1
        if not behind <= self.failed_op < behind + len(group):
            return False
        op = group[self.failed_op - behind]
        return not (op.optional and isinstance(self.error, NoNodeError if op.deletes else NodeExistsError))


def _pack(order: Sequence[int], groups: Sequence[Sequence[Op]], size: int) -> list[list[int]]:
    """Split groups, in order, into multis of at most `size` operations; a larger group gets a multi of its own."""
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
                yield client.create(op.path, op.data)
            elif op.is_check:
                yield request.check(path, op.expected)
            else:
                yield request.put(path, op.data or b"", op.expected)


def _fault(result: Any, fence: Fence) -> tuple[int | None, ZookeeperError] | None:
    """Returns the index of the failed operation, not counting the check, and its error; None if the multi succeeded."""
    if isinstance(result, ZookeeperError):
        return None, result
    if not result:
        return None
    if isinstance(result[0], BadVersionError):
        raise ControllerMoved(ours=fence.epoch)
    if isinstance(result[0], NoNodeError):
        raise StoreError(f"{layout.CONTROLLER_EPOCH} is missing: the tree of the cluster was deleted")
    for index, error in enumerate(result):
        if isinstance(error, ZookeeperError) and not isinstance(error, RolledBackError | RuntimeInconsistency):
            return index - 1, error
    return None


async def _settle(
    client: Client, groups: list[list[Op]], failed: Sequence[_FailedMulti], outcomes: list[Outcome]
) -> list[list[int]]:
    """Read the nodes of failed multis, and remove what cannot succeed any more. Returns the multis to send next."""
    ops = [op for multi in failed for group in multi.members for op in groups[group]]
    nodes = iter(await client.read_all([op.path for op in ops]) if ops else ())
    again: list[list[int]] = []
    for multi in failed:
        size = sum(len(groups[group]) for group in multi.members)
        behind = 0
        for group in multi.members:
            group_ops = groups[group]
            blamed = multi.blames(behind, group_ops)
            behind += len(group_ops)
            verdicts = [_verdict(op, next(nodes), adopt=multi.repeated) for op in group_ops]
            groups[group] = [op for op, verdict in zip(group_ops, verdicts, strict=True) if verdict is not _DONE]
            if _CONFLICT in verdicts:
                groups[group], outcomes[group] = [], Outcome.CONFLICT
            elif all(op.is_check for op in groups[group]):
                groups[group], outcomes[group] = [], Outcome.COMMITTED
            elif blamed:
                refusal = isinstance(multi.error, BadVersionError | NodeExistsError)
                groups[group], outcomes[group] = [], Outcome.CONFLICT if refusal else Outcome.FAILED
        # Halved, so that errors which reading does not reveal are also isolated in few rounds.
        again += _pack(multi.members, groups, max(1, size // 2))
    return again


_TO_DO: Final = "to do"
_DONE: Final = "done"
_CONFLICT: Final = "conflict"


def _verdict(op: Op, node: Any, *, adopt: bool) -> str:
    """Returns what to do with an operation, given the node at its path: (data, stat) or an error."""
    if isinstance(node, NoNodeError):
        if op.deletes:
            return _DONE
        return _TO_DO if op.expected is None else _CONFLICT
    if isinstance(node, ZookeeperError) or op.deletes:
        return _TO_DO
    data, stat = node
    if op.expected is not None and op.expected in (_ANY, stat.version):
        return _TO_DO
    ours = 0 if op.expected is None else op.expected + 1
    if op.optional or (adopt and data == op.data and stat.version == ours):
        return _DONE
    return _CONFLICT
