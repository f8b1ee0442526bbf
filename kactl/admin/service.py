"""The service that routes work on: one controller instance, and the other parts of its process."""

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
    """State of one admin server.

    Attributes:
        participants: the brokers of this process; None if it runs none.
        render_metrics: renders the metrics for Prometheus; None if the server was started without telemetry.
        document: the OpenAPI document.
        capacity: limits of connections and event streams.
        closing: set when the server shuts down; event streams then end.
        streams: number of open event streams.
        answering: number of running handlers, without those of streams.
        frames: frames last sent, by position in the event log, so that streams at the same position share them.
        restarting: participants that are being restarted.
        overrides: held while topic configuration overrides are read, changed and written. Without it a concurrent
            request could overwrite an acknowledged change.
        conditional: locks by path, held while a write with `If-Match` is checked and executed.
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
        """The cluster for reading: the controller's, or on a standby the copy that `prepare` returned."""
        return self.controller.cluster if self.controller.is_active or self._view is None else self._view.cluster

    @property
    def age_ms(self) -> int | None:
        """The time by which `cluster` may be behind the store; None on the controller, where it is current."""
        return None if self.controller.is_active or self._view is None else round(self._view.age_ms)

    async def prepare(self) -> None:
        """Make `cluster` available: the controller's, or a copy of it. Valid until the next `await`.

        Raises:
            NotController: this instance is a standby without a complete copy.
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
        """Returns `min.insync.replicas` by topic number of `cluster`, as far as it is known; see `MinIsr.of_topics`."""
        min_isr = self.controller.min_isr
        if self._view is None:
            cluster = self.controller.cluster
            await min_isr.refresh(cluster, active=self.controller.is_active)
            return min_isr.of_topics(cluster.table)
        await min_isr.refresh(self._view.copied, active=False)
        await self.prepare()
        return min_isr.of_topics(self.controller.cluster.table if self._view is None else self._view.copied.table)

    def known_controller(self) -> ProblemController:
        """Returns the current controller as far as this instance knows it."""
        return ProblemController(id=self.controller.loop.active_id, epoch=self.controller.cluster.fence.epoch)

    def no_partition(self, topic: str, partition: int) -> NotFound:
        """Returns the error for an unknown partition."""
        table = self.cluster.table
        known = table.topic(topic)
        if known is None:
            return NotFound("topic", topic)
        return NoSuchPartition(topic, partition, count=len(table.rows_of(known)))

    def require_active(self) -> None:
        """Raise unless this instance is the active controller. Other instances have no cluster state to return.

        Raises:
            NotController: this instance is not the controller.
            Refused: it is, but its takeover is not complete.
        """
        if not self.controller.is_active:
            raise NotController(self.controller.loop.active_id)
        if not self.controller.loop.controllership.ready:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "Taking over",
                "this instance has just been elected and is still loading the cluster; retry in a moment",
                code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                retriable=True,
            )

    def since_ms(self) -> int | None:
        """Returns the time at which this instance became the controller.

        None if it is not the controller, or if the event log no longer holds the election.
        """
        epoch = self.controller.cluster.fence.epoch
        if not self.controller.is_active or not self.controller.loop.controllership.ready:
            return None
        if self._elected[0] != epoch:
            self._elected = (epoch, self._find_election(epoch))
        return self._elected[1]

    def _find_election(self, epoch: int) -> int | None:
        history = self.controller.history
        seq = history.oldest - 1
        time_ms = None
        while seq < history.seq:
            events, seq = history.read(seq, kinds=("controller",))
            for event in events:
                if event.controller_epoch == epoch:
                    time_ms = event.time_ms
        return time_ms


def version() -> str:
    """Returns kactl's version; empty if it runs without being installed."""
    try:
        return importlib.metadata.version("kactl")
    except importlib.metadata.PackageNotFoundError:
        return ""
