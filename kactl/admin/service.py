"""What the routes work on: one controller instance, and what this process has besides it."""

import asyncio
import dataclasses
import importlib.metadata
import weakref
from collections.abc import Callable
from http import HTTPStatus

from kactl.actors.handlers.standby import View
from kactl.actors.system import Controller
from kactl.config.settings import Config
from kactl.errors import ErrorCode, NoSuchPartition, NotController, NotFound
from kactl.participant.group import Participants
from kactl.state.cluster import Cluster
from kactl.state.rows import Ints

from .limits import Capacity
from .problem import Refused
from .progress import ProgressWatch
from .schema import AsOf, ProblemController


@dataclasses.dataclass(slots=True)
class Service:
    """One server.

    Attributes:
        participants: the brokers of this process; None if it runs none.
        render_metrics: the text for Prometheus; None if the server was started without.
        document: the OpenAPI document.
        capacity: how many event streams there may be.
        closing: set when the server is about to end; streams end then.
        streams: how many event streams are open.
        answering: how many handlers are at work, those of streams excepted.
        frames: what was last made for a stream, so that it is made once for all that stand at the same place.
        restarting: participants that are being restarted now.
        overrides: held while overrides of topics are read, changed and written; what is acknowledged would be lost
            to whoever had read before it.
        conditional: by path, held by writes with `If-Match` while they are checked and carried out.
    """

    controller: Controller
    config: Config
    participants: Participants | None
    render_metrics: Callable[[], bytes] | None
    document: bytes
    capacity: Capacity
    closing: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    streams: int = 0
    answering: int = 0
    frames: dict[tuple[int, int, frozenset[str]], tuple[bytes, int]] = dataclasses.field(default_factory=dict)
    restarting: set[int] = dataclasses.field(default_factory=set)
    overrides: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    conditional: weakref.WeakValueDictionary[str, asyncio.Lock] = dataclasses.field(
        default_factory=weakref.WeakValueDictionary
    )
    progress: ProgressWatch = dataclasses.field(init=False)
    _view: View | None = None
    _elected: tuple[int, int | None] = (0, None)

    def __post_init__(self) -> None:
        self.progress = ProgressWatch(self.controller.clock)

    @property
    def cluster(self) -> Cluster:
        """The cluster for reading: the controller's, or on an instance that stands by, what `prepare` found."""
        return self.controller.cluster if self.controller.is_active or self._view is None else self._view.cluster

    @property
    def age_ms(self) -> int | None:
        """For how long `cluster` may have been behind the store; None on the controller, where it is not."""
        return None if self.controller.is_active or self._view is None else round(self._view.age_ms)

    async def prepare(self) -> None:
        """See that `cluster` is that of a controller, or a copy of it. Valid until the next `await`.

        Raises:
            NotController: neither; the copy of an instance that stands by is not complete, or it keeps none.
            Refused: the takeover is not complete.
            StoreError: the brokers cannot be read.
        """
        if not self.controller.is_active:
            view = await self.controller.loop.standby.view()
            if not self.controller.is_active:
                if view is None:
                    raise NotController(self.controller.loop.active_id)
                self._view = view
                return
        self._view = None
        self.require_active()

    def as_of(self) -> AsOf:
        controller, age_ms = self.controller, self.age_ms
        if age_ms is None:
            return AsOf(epoch=controller.cluster.fence.epoch, seq=controller.history.seq)
        terms = controller.controllerships()
        epoch = terms[-1].epoch if terms and terms[-1].controller_id == controller.loop.active_id else 0
        return AsOf(epoch=epoch, seq=controller.history.seq, standby=True, age_ms=age_ms)

    async def min_isr(self) -> Ints:
        """`min.insync.replicas` by topic number of `cluster`, as far as it is known; see `MinIsr.of_topics`."""
        min_isr = self.controller.min_isr
        if self._view is None:
            cluster = self.controller.cluster
            await min_isr.refresh(cluster, active=self.controller.is_active)
            return min_isr.of_topics(cluster.table)
        await min_isr.refresh(self._view.copied, active=False)
        await self.prepare()
        return min_isr.of_topics(self.controller.cluster.table if self._view is None else self._view.copied.table)

    def who(self) -> ProblemController:
        """Who is the controller, as far as this instance knows."""
        return ProblemController(id=self.controller.loop.active_id, epoch=self.controller.cluster.fence.epoch)

    def no_partition(self, topic: str, partition: int) -> NotFound:
        """The error for a partition that is unknown."""
        table = self.cluster.table
        known = table.topic(topic)
        if known is None:
            return NotFound("topic", topic)
        return NoSuchPartition(topic, partition, count=len(table.rows_of(known)))

    def require_active(self) -> None:
        """Only the controller knows the cluster; others have nothing, and must not answer as if there were nothing.

        Raises:
            NotController: this instance is not the controller.
            Refused: it is, and has not yet taken over wholly.
        """
        if not self.controller.is_active:
            raise NotController(self.controller.loop.active_id)
        if not self.controller.loop.controllership.ready:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "Taking over",
                "this instance has just been elected and is still loading the cluster; ask again in a moment",
                code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                retriable=True,
            )

    def since_ms(self) -> int | None:
        """Since when this instance is the controller; None if it is not, or the event of it is no longer kept."""
        epoch = self.controller.cluster.fence.epoch
        if not self.controller.is_active or not self.controller.loop.controllership.ready:
            return None
        if self._elected[0] != epoch:
            self._elected = (epoch, self._find_election(epoch))
        return self._elected[1]

    def _find_election(self, epoch: int) -> int | None:
        history = self.controller.history
        at = history.oldest - 1
        found = None
        while at < history.seq:
            events, at = history.read(at, kinds=("controller",))
            for event in events:
                if event.controller_epoch == epoch:
                    found = event.time_ms
        return found


def version() -> str:
    """kactl's own; empty where it runs without having been installed."""
    try:
        return importlib.metadata.version("kactl")
    except importlib.metadata.PackageNotFoundError:
        return ""
