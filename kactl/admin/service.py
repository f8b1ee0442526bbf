"""The service that routes work on: one controller instance, and the other parts of its process."""

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import weakref
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from kactl.actors.handlers.standby import View
from kactl.actors.system import Controller
from kactl.config.settings import Config
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Ints
from kactl.decide.state.table import Table
from kactl.model.errors import ErrorCode, NoSuchPartition, NotController, NotFound
from kactl.telemetry.past_states import PastStates

from .audit_trail import AuditTrail
from .client import Known
from .exposure_report import ExposureReport
from .failure_analysis import FailureAnalysis
from .identity.credentials import Credentials
from .limits import Capacity
from .problem import Refused
from .progress import ProgressWatch
from .schema import AsOf, ProblemController
from .security_watch import SecurityWatch


class LocalBrokers(Protocol):
    """The brokers of this process, as the API uses them."""

    def __len__(self) -> int: ...

    @property
    def ids(self) -> tuple[int, ...]:
        """Returns their ids."""

    async def kill(self, broker: int) -> None:
        """Stop a broker as SIGKILL stops a process."""

    async def restart(self, broker: int) -> None:
        """Restart a broker."""


@dataclasses.dataclass(kw_only=True)
class Surroundings:
    """Parts of a process around the API; they outlive a controller.

    Attributes:
        participants: the brokers of this process; None if it runs none.
        past: earlier states of the cluster; None without a log that can be read back.
        render_metrics: renders the metrics for Prometheus; None if the server was started without telemetry.
        document: the OpenAPI document.
        capacity: limits of connections and event streams.
        prefix: the path under which the application is reached, for links; empty or begins with a slash.
        closing: set when the application shuts down; event streams then end.
        credentials: the tokens of kactl's own server.
        exposure: interfaces of the process without encryption or authentication.
        security: the weaknesses of kactl's own server; None in other programs.
        trail: the audit trail.
    """

    document: bytes
    participants: LocalBrokers | None = None
    render_metrics: Callable[[], bytes] | None = None
    capacity: Capacity = dataclasses.field(default_factory=Capacity)
    prefix: str = ""
    closing: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    credentials: Credentials | None = None
    exposure: ExposureReport | None = None
    security: SecurityWatch | None = None
    trail: AuditTrail = dataclasses.field(default_factory=AuditTrail)
    past: PastStates | None = None


@dataclasses.dataclass(kw_only=True)
class Service(Surroundings):
    """State of one application while one controller exists.

    Attributes:
        heavy: plans and explanations that run, by client.
        streams_of: open event streams, by client.
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
    heavy: Counter[str] = dataclasses.field(default_factory=Counter)
    streams_of: Counter[str] = dataclasses.field(default_factory=Counter)
    streams: int = 0
    answering: int = 0
    frames: dict[tuple[int, int, frozenset[str]], tuple[bytes, int]] = dataclasses.field(default_factory=dict)
    restarting: set[int] = dataclasses.field(default_factory=set)
    overrides: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    conditional: weakref.WeakValueDictionary[str, asyncio.Lock] = dataclasses.field(
        default_factory=weakref.WeakValueDictionary
    )
    progress: ProgressWatch = dataclasses.field(init=False)
    failure_analysis: FailureAnalysis = dataclasses.field(default_factory=FailureAnalysis)
    _view: View | None = None

    def __post_init__(self) -> None:
        self.progress = ProgressWatch(self.controller.clock)

    def follow(self, client: Known | None) -> contextlib.AbstractContextManager[asyncio.Event]:
        """Returns a context with an event that is set when the credential of a client is no longer valid."""
        if client is None or self.credentials is None:
            return contextlib.nullcontext(asyncio.Event())
        return self.credentials.follow(client.token, client.until_ms, client.holds)

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
        """Returns `TopicSettings.min_isr_of_topics` of `cluster`, after the unknown settings are read."""
        table = await self.read_topic_settings()
        return self.controller.topic_settings.min_isr_of_topics(table)

    async def read_topic_settings(self) -> Table:
        """Read the topic settings that are unknown. Returns the table of `cluster`, which they are read for."""
        settings = self.controller.topic_settings
        if self._view is None:
            cluster = self.controller.cluster
            await settings.refresh(cluster, active=self.controller.is_active)
            return cluster.table
        await settings.refresh(self._view.copied, active=False)
        await self.prepare()
        return self.controller.cluster.table if self._view is None else self._view.copied.table

    def known_controller(self) -> ProblemController:
        """Returns the current controller as far as this instance knows it."""
        active_id = self.controller.loop.active_id
        return ProblemController(
            id=active_id,
            epoch=self.controller.cluster.fence.epoch,
            api_url=self.config.api.instances.get(str(active_id), ""),
        )

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
        """Returns the time at which this instance became the controller; None if it is not."""
        loop = self.controller.loop
        if not loop.is_active or not loop.controllership.ready:
            return None
        return loop.controllership.terms.began_ms(self.controller.cluster.fence.epoch)


def version() -> str:
    """Returns kactl's version; empty if it runs without being installed."""
    try:
        return importlib.metadata.version("kactl")
    except importlib.metadata.PackageNotFoundError:
        return ""
