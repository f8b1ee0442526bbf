"""What the routes work on: one controller instance, and what this process has besides it."""

import asyncio
import dataclasses
import importlib.metadata
import weakref
from collections.abc import Callable
from http import HTTPStatus

from kactl.actors.system import Controller
from kactl.config import Config
from kactl.errors import ErrorCode, NoSuchPartition, NotController, NotFound
from kactl.participant.group import Participants
from kactl.rows import Ints

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
    _elected: tuple[int, int | None] = (0, None)

    def __post_init__(self) -> None:
        self.progress = ProgressWatch(self.controller.clock)

    def as_of(self) -> AsOf:
        return AsOf(epoch=self.controller.cluster.fence.epoch, seq=self.controller.history.seq)

    async def min_isr(self) -> Ints:
        """`min.insync.replicas` by topic number, as far as it is known; see `MinIsr.of_topics`."""
        controller = self.controller
        await controller.min_isr.refresh(controller.cluster, active=controller.is_active)
        return controller.min_isr.of_topics(controller.cluster.table)

    def who(self) -> ProblemController:
        """Who is the controller, as far as this instance knows."""
        return ProblemController(id=self.controller.loop.active_id, epoch=self.controller.cluster.fence.epoch)

    def no_partition(self, topic: str, partition: int) -> NotFound:
        """The error for a partition that is unknown."""
        known = self.controller.cluster.table.topic(topic)
        if known is None:
            return NotFound("topic", topic)
        return NoSuchPartition(topic, partition, count=len(self.controller.cluster.table.rows_of(known)))

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
