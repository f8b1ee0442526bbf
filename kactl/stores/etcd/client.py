"""Typed calls: reads, transactions, and transactions under a fence."""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Final, TypeVar

import anyio

from kactl.model import Fence
from kactl.model.errors import ControllerMoved, StoreError
from kactl.runtime.logs import logger

from . import calls, messages
from .calls import INVALID_ARGUMENT, PERMISSION_DENIED, Calls, EtcdError
from .keys import Interval, Keys
from .messages import Compare, DeleteRange, Executed, Header, KeyValue, Put, Range, TxnResponse

log = logger(__name__)

# The default of etcd's `max-txn-ops`, which applies to comparisons and to operations separately.
OPERATIONS_DEFAULT: Final = 128
# Part of the text of etcd's error for a larger one.
_TOO_LARGE: Final = "too many operations"
# More are not faster, and one transaction would occupy the server for longer.
OPERATIONS_MAX: Final = 1_000
# A page of a large range: a few megabytes.
PAGE_KEYS: Final = 10_000

_T = TypeVar("_T")
_R = TypeVar("_R")


class ReadRevision:
    """The lowest revision at which some reads were made; 0 if there were none."""

    def __init__(self) -> None:
        self.revision = 0

    def note(self, revision: int) -> None:
        self.revision = min(self.revision, revision) if self.revision else revision


_noting: ContextVar[ReadRevision | None] = ContextVar("noting", default=None)


@contextlib.contextmanager
def reading() -> Iterator[ReadRevision]:
    """Note the revision of the reads in this block, those of the tasks that it starts included."""
    noted = ReadRevision()
    token = _noting.set(noted)
    try:
        yield noted
    finally:
        _noting.reset(token)


def _note(revision: int) -> None:
    noted = _noting.get()
    if noted is not None:
        noted.note(revision)


class Client:
    """Calls of one client of one cluster.

    Args:
        max_in_flight: maximum number of concurrent transactions of one large call.

    Attributes:
        newest_revision: the highest revision of the store in any response since it was last lowered.
        epoch_seen: the highest controller epoch that was read or written, also before a loss of the store.
    """

    def __init__(self, calls: Calls, keys: Keys, *, max_in_flight: int) -> None:
        self.calls = calls
        self.keys = keys
        self.newest_revision = 0
        self.epoch_seen = 0
        self._max_in_flight = max_in_flight
        self._operations: int | None = None

    # -- reads

    async def get(self, key: bytes) -> KeyValue | None:
        """Returns one key, or None."""
        kvs = (await self._range(Range(key))).kvs
        return kvs[0] if kvs else None

    async def read_interval(
        self, interval: Interval, *, keys_only: bool = False, by_creation: bool = False
    ) -> list[KeyValue]:
        """Returns all keys of an interval, by key or by creation."""
        found: list[KeyValue] = []
        begin = interval.begin
        while True:
            response = await self._range(Range(begin, interval.end, limit=PAGE_KEYS, keys_only=keys_only))
            found += response.kvs
            if not response.more:
                break
            begin = response.kvs[-1].key + b"\0"
        return sorted(found, key=lambda kv: kv.create_revision) if by_creation else found

    async def read_all(self, ranges: Sequence[Range]) -> list[Sequence[KeyValue]]:
        """Returns what each of many reads finds."""
        size = OPERATIONS_DEFAULT
        parts = [ranges[begin : begin + size] for begin in range(0, len(ranges), size)]
        answers = await self.each(self.read_part, parts)
        return [kvs for answer in answers for kvs in answer]

    async def may_read(self, key: bytes) -> bool:
        """Returns whether the user has the right to read a key, whether it exists or not."""
        try:
            await self._range(Range(key, limit=1, keys_only=True))
        except EtcdError as error:
            if error.grpc_code != PERMISSION_DENIED:
                raise
            return False
        return True

    async def revision(self) -> int:
        """Returns the revision of the store, which contains every write that has completed before this call."""
        return (await self._range(Range(self.keys.epoch, keys_only=True))).header.revision

    async def _range(self, request: Range) -> messages.RangeResponse:
        response = messages.range_response.parse(await self.calls.read(calls.RANGE, request.encoded()))
        self._was_at(response.header)
        _note(response.header.revision)
        return response

    async def read_part(self, ranges: Sequence[Range]) -> list[Sequence[KeyValue]]:
        """Returns what each of some reads finds, as many as fit into a transaction; all at one revision."""
        response = messages.txn_response.parse(await self.calls.read(calls.TXN, messages.txn([], ranges)))
        self._was_at(response.header)
        _note(response.header.revision)
        return [messages.read(response, index) for index in range(len(ranges))]

    def _was_at(self, header: Header) -> None:
        self.newest_revision = max(self.newest_revision, header.revision)

    # -- transactions

    async def txn(
        self,
        compare: Sequence[Compare],
        success: Sequence[Range | Put | DeleteRange],
        failure: Sequence[Range] = (),
    ) -> TxnResponse:
        """Execute a transaction that writes, at most once.

        Raises:
            StoreUnavailable: the outcome is unknown.
        """
        body = messages.txn(compare, success, failure)
        response = messages.txn_response.parse(await self.calls.write(calls.TXN, body))
        self._was_at(response.header)
        return response

    async def fenced(
        self,
        fence: Fence,
        compare: Sequence[Compare],
        success: Sequence[Range | Put | DeleteRange],
        failure: Sequence[Range] = (),
    ) -> TxnResponse:
        """Execute a transaction under the fence. The responses to `failure` begin at index 1.

        Raises:
            ControllerMoved: the fence is not the stored one; nothing was changed.
        """
        epoch = self.keys.epoch
        response = await self.txn(
            [messages.version_is(epoch, fence.version), *compare], success, [Range(epoch, keys_only=True), *failure]
        )
        if not response.succeeded:
            self.check_fence(messages.read(response, 0), fence)
        return response

    def check_fence(self, epoch: Sequence[KeyValue], fence: Fence) -> None:
        """Compare a fence with the epoch that was read."""
        if not epoch:
            raise StoreError(f"{self.keys.epoch.decode()} is missing: the keys of the cluster were deleted")
        if epoch[0].version != fence.version:
            raise ControllerMoved(ours=fence.epoch)

    async def check(self, fence: Fence) -> None:
        """See `Store.check`. The read goes through the cluster's leader, as one of a transaction without reads would
        not.
        """
        self.check_fence((await self._range(Range(self.keys.epoch, keys_only=True))).kvs, fence)

    async def execute(self, body: bytes) -> Executed:
        """Execute an encoded transaction of writes. Its `failure` is not decoded."""
        executed = messages.executed.parse(await self.calls.write(calls.TXN, body))
        self._was_at(executed.header)
        return executed

    async def operations(self) -> int:
        """Returns how many comparisons, and how many operations, this server accepts in a transaction."""
        if self._operations is None:
            reads = [Range(self.keys.epoch, keys_only=True)] * OPERATIONS_MAX
            try:
                await self.calls.read(calls.TXN, messages.txn([], reads))
                self._operations = OPERATIONS_MAX
            except EtcdError as error:
                if error.grpc_code != INVALID_ARGUMENT:
                    raise
                self._operations = OPERATIONS_DEFAULT
        return self._operations

    def accepts_fewer(self, error: EtcdError) -> bool:
        """Returns whether a transaction was too large for the server, whose limit has changed since it was determined,
        or which is another member. From now on transactions have the size that every server accepts by default.
        """
        if error.grpc_code != INVALID_ARGUMENT or _TOO_LARGE not in error.message:
            return False
        self._operations = OPERATIONS_DEFAULT
        return True

    # -- the servers

    async def members(self) -> int:
        """Returns the number of etcd's members; 0 if this user may not know it."""
        try:
            answer = await self.calls.read(calls.MEMBER_LIST, messages.MEMBER_LIST)
        except EtcdError as error:
            log.debug("the members could not be listed: %s", error)
            return 0
        return len(messages.members_response.parse(answer).members)

    async def check_cluster(self) -> None:
        """Verify that all endpoints which answer belong to one cluster of etcd: with two, each could have a controller.

        Raises:
            StoreError: they do not.
        """
        if not self.calls.has_several:
            return
        answers = await self.calls.of_each(calls.MEMBER_LIST, messages.MEMBER_LIST)
        ids = {name: messages.members_response.parse(answer).header.cluster_id for name, answer in answers.items()}
        if len(set(ids.values())) > 1:
            listed = ", ".join(f"{name} to {id_:x}" for name, id_ in sorted(ids.items()))
            raise StoreError(f"the endpoints belong to different clusters of etcd: {listed}; name those of one cluster")

    # -- leases

    async def grant_lease(self, ttl_s: int) -> messages.LeaseResponse:
        """Returns a new lease; the server may grant more time than requested. It is lost if the response is."""
        answer = await self.calls.write(calls.LEASE_GRANT, messages.lease_grant(ttl_s))
        return messages.lease_response.parse(answer)

    async def keep_alive(self, lease: int, *, limit_ms: float) -> int:
        """Renew a lease. Returns its time to live in seconds, 0 if it has ended."""
        answer = await self.calls.read(calls.LEASE_KEEP_ALIVE, messages.lease_id(lease), limit_ms=limit_ms)
        return messages.lease_response.parse(answer).TTL

    async def revoke(self, lease: int) -> None:
        """End a lease, and delete all that depends on it. One that has ended is skipped."""
        try:
            await self.calls.read(calls.LEASE_REVOKE, messages.lease_id(lease))
        except EtcdError as error:
            if not is_lost_lease(error):
                raise

    # -- many calls

    async def each(self, call: Callable[[_T], Awaitable[_R]], values: Sequence[_T]) -> list[_R]:
        """Returns the results of a call for each value, a few at a time. After an error no further call begins.

        Raises:
            Exception: the first error, as itself.
        """
        if len(values) == 1:
            return [await call(values[0])]
        results: dict[int, _R] = {}
        errors: list[Exception] = []
        waiting = iter(enumerate(values))

        async def work() -> None:
            for index, value in waiting:
                if errors:
                    return
                try:
                    results[index] = await call(value)
                except Exception as error:
                    errors.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(min(self._max_in_flight, len(values))):
                tasks.start_soon(work)
        if errors:
            raise errors[0]
        return [results[index] for index in range(len(values))]


def is_lost_lease(error: EtcdError) -> bool:
    """Returns whether a request failed because its lease does not exist, or not any longer."""
    return "lease not found" in error.message


def batches(items: Iterable[_T], size: int) -> list[list[_T]]:
    """Returns the items in lists of at most `size`."""
    found = list(items)
    return [found[begin : begin + size] for begin in range(0, len(found), size)]
