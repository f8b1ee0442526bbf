"""`kactl.shards` and `kactl.singleton`: work that processes share.

What this needs of the rest of kactl is imported when a worker is entered: an import takes longer than the start, and
Ctrl-C finds a program that has just begun in `kactl.run`, which ends it in one line.
"""

import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, Unpack

from kactl.model import PARTITIONS_OF_A_TOPIC_MAX, TopicPartition, check_topic_name
from kactl.model.errors import BadRequest, IllegalState
from kactl.runtime import forks
from kactl.runtime.background import BlockStack, raise_alone
from kactl.runtime.logs import logger
from kactl.runtime.patience import START_TIMEOUT_MS

from .shard import Handler, Shard

if TYPE_CHECKING:
    from kactl.participant.handlers.handler import PartitionHandler
    from kactl.participant.handlers.hosting import MakeHandler
    from kactl.participant.leases.terms import LeaseConfig
    from kactl.participant.participant import Participant
    from kactl.stores.base import Store
    from kactl.transports.base import Network

log = logger(__name__)

DEFAULT_STORE: Final = Path(".kactl", "workers.db")
# How long shards of a killed worker wait for another one: long enough for a worker on a busy machine.
SESSION_TIMEOUT_MS: Final = 6_000


class WorkerKeywords(TypedDict, total=False):
    """Keywords of `kactl.shards` and `kactl.singleton`; see `Worker`."""

    store: "Store | str | os.PathLike[str]"
    controllers: Sequence[str]
    network: "Network"
    standby: int
    weight: int
    rack: str
    session_timeout_ms: int
    start_timeout_ms: int
    lease: "LeaseConfig"


def shards(topic: str, count: int, handler: Handler, **keywords: Unpack[WorkerKeywords]) -> "Worker":
    """Share numbered shards of work among all processes that make this call: each shard has one owner at a time.

        async def work(shard: kactl.Shard) -> None:
            while True:
                shard.check()  # raises as soon as another worker may own the shard
                ...

        kactl.run(kactl.shards("jobs", 12, work))

    A program that does more writes `async with kactl.shards("jobs", 12, work):`. See `Worker`.
    """
    return Worker(topic, count, handler, **keywords)


def singleton(topic: str, handler: Handler, **keywords: Unpack[WorkerKeywords]) -> "Worker":
    """Work in one of all processes that make this call, and in another one when that ends: `shards` with one shard.

    kactl.run(kactl.singleton("nightly", report))
    """
    return Worker(topic, 1, handler, **keywords)


class Worker(forks.OfOneProcess):
    """A process that owns some shards of a topic, and calls the handler for each of them.

        async with kactl.shards("jobs", 12, work) as worker:
            ...  # the rest of the program

    The call of the handler is cancelled when its shard moves. A handler that raises is called again after a pause, here
    or at another worker, and other shards go on. The object may be entered again, also in a process that was forked.

    Args:
        topic: the name of the work.
        count: of shards. A larger one in a later version adds shards; a smaller one has no effect but a warning.
        handler: `async def work(shard)`; or a plain function, which runs in a thread and ends by `shard.check()`; or a
            `PartitionHandler`, which can also prepare, and follow as a standby.
        store: a file on a disk of this host, by default `.kactl/workers.db`; or a store of several hosts.
        controllers: addresses of controllers that run elsewhere, in place of a store.
        network: in place of one on loopback: with TLS, for several hosts.
        standby: how many other workers follow each shard.
        weight: 2 for twice as many shards as others.
        session_timeout_ms: how long shards of a killed worker wait for another one: 6 s, or 9 s without a store.
        start_timeout_ms: how long a start waits for a controller, after the store, which may have a limit of its own.

    Raises:
        BadRequest: an argument cannot be used.
    """

    def __init__(self, topic: str, count: int, handler: Handler, **keywords: Unpack[WorkerKeywords]) -> None:
        given: dict[str, Any] = {"start_timeout_ms": START_TIMEOUT_MS, **keywords}
        if unknown := given.keys() - WorkerKeywords.__annotations__.keys():
            raise TypeError(f"{unknown.pop()!r} is no keyword of a worker: {', '.join(WorkerKeywords.__annotations__)}")
        if not isinstance(topic, str) or (reason := check_topic_name(topic)):
            raise BadRequest("topic", reason if isinstance(topic, str) else f"{topic!r} is no name: give a str")
        if type(count) is not int or not 1 <= count <= PARTITIONS_OF_A_TOPIC_MAX:
            raise BadRequest("count", f"{count!r} is no number of shards: give 1 to {PARTITIONS_OF_A_TOPIC_MAX}")
        _check_handler(handler)
        self.topic = topic
        self.count = count
        self._cluster = _cluster(given.pop("store", None), given.pop("controllers", ()), given.pop("network", None))
        if self._cluster[0] is not None:
            given.setdefault("session_timeout_ms", SESSION_TIMEOUT_MS)
        self._standby = given.pop("standby", None)
        self._handler = handler
        self._make: MakeHandler | None = None
        self._given = given
        self._warned = False
        self._participant: Participant | None = None
        self._stack: BlockStack | None = None
        self._home = forks.home()

    async def __call__(self) -> None:
        """Work until cancelled, as `kactl.run` does by a signal."""
        async with self:
            await self.participant.wait_closed()

    async def __aenter__(self) -> Self:
        """Join the cluster, and work until the end of the block.

        Raises:
            TopicExists: another program uses the name for a topic of another kind.
            KactlError: no controller, or no store, could be reached in time.
        """
        await self._open(interrupts=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        stack, self._stack = self._stack, None
        return None if stack is None else await stack.__aexit__(kind, error, trace)

    async def start(self) -> None:
        """Work until `aclose`, which any task may call: for notebooks, fixtures and hooks of frameworks. If it fails,
        nothing has to be closed."""
        await self._open(interrupts=False)

    async def aclose(self) -> None:
        """Hand all shards over, and leave. Does nothing if the worker is not open."""
        await self.__aexit__(None, None, None)

    @property
    def owned(self) -> list[Shard]:
        """The shards that this worker owns now, by number."""
        return sorted(map(Shard, self.participant.leaderships(self.topic)), key=lambda shard: shard.number)

    @property
    def participant(self) -> "Participant":
        """What this worker is in the cluster. Raises IllegalState before it has joined."""
        if self._participant is None:
            raise IllegalState(f"the worker of {self.topic} has not joined: enter it by `async with`, or call start()")
        return self._participant

    async def _open(self, *, interrupts: bool) -> None:
        if self._stack is not None and not self._home.left:
            raise IllegalState(f"the worker of {self.topic} is open already: make another one by kactl.shards")
        self._home, self._stack = forks.home(), BlockStack(f"the worker of {self.topic}")
        stack = self._stack
        try:
            from kactl.participant.participant import Participant

            from .handlers import handler_maker
            from .membership import joined

            self._make = handler_maker(self._handler)
            store, network = await stack.enter_async_context(joined(*self._cluster))
            participant = Participant(
                store=store, network=network, handler=self._made, groups=[self.topic], **self._given
            )
            await participant.open(interrupts=interrupts)
            stack.push_async_exit(participant.leave)
            await participant.start()
            self._participant = participant
            await participant.ensure_topic(
                self.topic,
                partitions=self.count,
                kind="ownership",
                standby=self._standby,
                timeout_ms=self._given["start_timeout_ms"],
            )
        except BaseException as error:
            self._stack = None
            await stack.__aexit__(type(error), error, error.__traceback__)
            raise_alone(error)

    def _made(self, partition: TopicPartition) -> "PartitionHandler":
        assert self._make is not None, "the participant has been made after it"
        if partition.partition >= self.count and not self._warned:
            self._warned = True
            log.warning(
                "%s has more than the %d shards of this program, as another program or a later version has asked for "
                "them: the handler is called for all of them, since shards are not removed; give the larger number",
                self.topic, self.count,
            )  # fmt: skip
        return self._make(partition)


def _check_handler(handler: Any) -> None:
    """Raises BadRequest if it cannot be called with a shard."""
    if inspect.iscoroutine(handler):
        handler.close()  # nothing will await it
        raise BadRequest("handler", f"is a call of {handler.__qualname__}: give the function without calling it")
    try:
        inspect.signature(handler).bind(object())
    except TypeError as error:
        raise BadRequest("handler", f"cannot be called with a shard ({error}): give `async def work(shard)`") from None
    except ValueError:
        pass  # a function in C, without a signature


def _cluster(store: Any, controllers: Sequence[str], network: Any) -> tuple[Any, Sequence[str], Any]:
    """Returns how to join the cluster that the arguments name. Raises BadRequest if they contradict each other."""
    if isinstance(controllers, str):
        raise BadRequest("controllers", f"is one text, {controllers!r}: give a list of addresses")
    if controllers and not (store is None and network is None):
        raise BadRequest("controllers", "run elsewhere: give neither a store beside them nor a network")
    if store is None and network is None and not controllers:
        store = DEFAULT_STORE
    # The program may change its working directory before it starts.
    return Path(os.path.abspath(store)) if isinstance(store, str | os.PathLike) else store, controllers, network
