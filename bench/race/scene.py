"""Setup of one run: a new ZooKeeper with the cluster, the stub brokers, and one contender at a time.

A phase is measured between two idle moments. Its times come from the stub brokers and from ZooKeeper. Its cost is the
resource use of all processes from before the phase until the contender is idle again.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from bench.clusters import Shape
from bench.figures import Found, Unit
from tests.support.processes import HarnessError

from .contenders import SESSION_TIMEOUT_MS, Contender, Place
from .control import Answer, Mark, Stubs, Sums
from .expectations import Expectation, RequestName
from .tree import Owner, Tree
from .usage import cpu_s, peak_mb, wait_calm
from .zookeeper import Server, Work

# After a SIGKILL the session stands for its timeout, and a tick or two.
_GONE_S: Final = SESSION_TIMEOUT_MS / 1000 + 10
_POLL_S: Final = 0.05
_PROCESSOR: Final = "processor"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a run.

    Attributes:
        warm_failovers: number of failovers to a standby.
        phase_limit_s: limit of each wait in a phase.
        stand_by_s: time for which a contender stands by before the controllership becomes free.
        rest_s: time without work after which a contender counts as idle.
        skip: phases that are left out.
        until: the last phase.
    """

    warm_failovers: int = 2
    phase_limit_s: float = 300.0
    stand_by_s: float = 10.0
    rest_s: float = 0.5
    zookeeper_heap_mb: int = 2048
    skip: tuple[str, ...] = ()
    until: str = "topic deletion"


class Used(msgspec.Struct, frozen=True):
    """Resource use of the processes up to a time."""

    work: Work
    own_requests: int
    controllers: dict[int, float]
    zookeeper: float
    stubs: float


class Scene:
    """A running setup, created by `staged`.

    Attributes:
        partitions: the existing partitions.
        times: times of the last completed phase, in seconds.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        *,
        start: Callable[[Place], Contender],
        server: Server,
        tree: Tree,
        stubs: Stubs,
        found: Found,
        path: str,
    ) -> None:
        self.settings = settings
        self.shape = tree.shape
        self.tree = tree
        self.stubs = stubs
        self.partitions = list(range(self.shape.partitions))
        self.contenders: list[Contender] = []
        self._folder = folder
        self._start = start
        self._server = server
        self._found = found
        self._path = path
        self._started = 0
        self.times: dict[str, float] = {}

    # -- the contender -------------------------------------------------------------------------------------------------

    @property
    def contender(self) -> Contender:
        """The instance that was started last."""
        return self.contenders[-1]

    def start(self) -> float:
        """Starts an instance, beside a running one if there is one; returns the time of the start."""
        self._started += 1
        number = len(self.contenders)
        folder = self._folder / f"instance-{self._started}"
        at = time.monotonic()
        place = Place(number, folder, self._server.connect, self.shape.partitions)
        self.contenders.append(self._start(place))
        return at

    def stop(self) -> None:
        """Stops the contender and waits until it is no longer in ZooKeeper."""
        contender = self.contender
        try:
            contender.stop()
        except HarnessError:
            contender.kill()  # its measurements are complete; its session expires
        self.contenders.remove(contender)
        deadline = time.monotonic() + _GONE_S
        while self.tree.registered(contender.id) or self.tree.owner() is not None:
            if time.monotonic() > deadline:
                raise HarnessError(f"controller {contender.id} has ended and is still registered")
            time.sleep(_POLL_S)

    def stand_by(self) -> None:
        """Starts an instance while another one is the controller, and waits until it is ready."""
        self.start()
        self.contender.wait_ready()
        time.sleep(self.settings.stand_by_s)
        self.rest()

    def rest(self) -> None:
        """Waits until the contender is idle."""
        groups = [contender.process.pid for contender in self.contenders]
        wait_calm(groups, window_s=self.settings.rest_s, limit_s=self.settings.phase_limit_s)

    def elected(self, former: Owner | None) -> Owner:
        """Waits until the contender is the controller; returns the new owner of the controllership."""
        owner = self.tree.next_owner(former, alive=self.require_alive, limit_s=self.settings.phase_limit_s)
        if owner.id not in {contender.id for contender in self.contenders}:
            raise HarnessError(f"{owner.id} was elected, which is no contender")
        return owner

    def require_alive(self) -> None:
        """Raises HarnessError if the contender has ended."""
        self.contender.require_alive()

    # -- phases --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def phase(self, name: str, expectations: dict[str, Expectation]) -> Iterator["Phase"]:
        """Measures the block as a phase; its cost is added if it succeeds."""
        self.stubs.ask(Mark(expectations))
        before = self._used()
        phase = Phase(self)
        yield phase
        self.rest()
        phase.spent(before, self._used(), sum(peak_mb(contender.process.pid) for contender in self.contenders))
        self.times = phase.times
        for figure, (unit, value) in phase.figures.items():
            self._found.add(f"{self._path}/{name}/{figure}", unit, value)

    def wait_received(self, optional: frozenset[str] = frozenset()) -> Answer:
        """Waits until the brokers have received all expected requests.

        Args:
            optional: expectations that need not be met.

        Raises:
            HarnessError: requests are missing at the phase's limit.
        """
        deadline = time.monotonic() + self.settings.phase_limit_s
        while True:
            self.require_alive()
            self.rest()
            answer = self.stubs.ask(Sums())
            missing = {
                name: progress.missing
                for name, progress in answer.expectations.items()
                if progress.missing and name not in optional
            }
            if not missing:
                return answer
            if time.monotonic() > deadline:
                limit = self.settings.phase_limit_s
                raise self.contender.process.error(f"brokers lack requests after {limit:g} s: {missing}")

    def _used(self) -> Used:
        return Used(
            self._server.work(),
            self.tree.requests,
            {contender.process.pid: cpu_s(contender.process.pid) for contender in self.contenders},
            cpu_s(self._server.process.pid),
            cpu_s(self.stubs.process.pid),
        )


class Phase:
    """Figures of a running phase; times are seconds after `began`."""

    def __init__(self, scene: Scene) -> None:
        self.figures: dict[str, tuple[Unit, float]] = {}
        self._scene = scene

    def add(self, name: str, unit: Unit, value: float) -> None:
        """Adds a figure."""
        self.figures[name] = (unit, value)

    def received(self, began: float, *, optional: frozenset[str] = frozenset()) -> None:
        """Waits for the expected requests; adds the time of each expectation and the traffic."""
        answer = self._scene.wait_received(optional)
        for name, progress in answer.expectations.items():
            if progress.at is not None and not progress.missing:
                self.add(name, "s", progress.at - began)
        traffic = answer.traffic
        if traffic.first_at is not None:
            self.add("first request", "s", traffic.first_at - began)
        for request, count in traffic.requests.items():
            self.add(f"{_TITLES[request]} requests", "count", count)
            self.add(f"{_TITLES[request]} sent", "MB", traffic.bytes[request] / 1e6)
        self.add("strange requests", "count", traffic.strange)

    @property
    def times(self) -> dict[str, float]:
        """Times in seconds after the start of the phase."""
        return {name: value for name, (unit, value) in self.figures.items() if unit == "s" and not is_use(name)}

    def total(self, *names: str) -> None:
        """Adds the latest of some times as the duration of the phase."""
        self.add("total", "s", max(self.figures[name][1] for name in names))

    def spent(self, before: Used, after: Used, peak: float) -> None:
        """Adds the resource use of all processes."""
        controllers = sum(now - before.controllers.get(pid, 0.0) for pid, now in after.controllers.items())
        self.add(f"{_PROCESSOR} controller", "s", controllers)
        self.add(f"{_PROCESSOR} ZooKeeper", "s", after.zookeeper - before.zookeeper)
        self.add(f"{_PROCESSOR} stub brokers", "s", after.stubs - before.stubs)
        own = after.own_requests - before.own_requests
        self.add("ZooKeeper requests", "count", after.work.requests - before.work.requests - own)
        self.add("ZooKeeper transactions", "count", after.work.transactions - before.work.transactions)
        self.add("ZooKeeper received", "MB", after.work.received_mb - before.work.received_mb)
        self.add("peak memory", "MB", peak)


def is_use(figure: str) -> bool:
    """Returns whether a figure of a phase is processor time; other seconds are times in the phase."""
    return figure.startswith(_PROCESSOR)


_TITLES: Final[dict[RequestName, str]] = {
    "leader_and_isr": "LeaderAndIsr",
    "update_metadata": "UpdateMetadata",
    "stop_replica": "StopReplica",
}


@contextlib.contextmanager
def staged(
    shape: Shape,
    settings: Settings,
    *,
    start: Callable[[Place], Contender],
    found: Found,
    path: str,
    keep: Path | None = None,
) -> Iterator[Scene]:
    """Yields a setup without a contender, which the phases start. All processes are stopped at the end.

    Args:
        start: starts the contender.
        path: prefix of the names of all figures.
        keep: folder for configuration, logs and data; without it, they are deleted.
    """
    with contextlib.ExitStack() as stack:
        # A short name, because the length of a socket's path is limited.
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="race-")))
        folder.mkdir(parents=True, exist_ok=True)
        server = stack.enter_context(Server(folder / "zookeeper", heap_mb=settings.zookeeper_heap_mb))
        tree = stack.enter_context(Tree(server.connect, shape))
        tree.load()
        tree.warm()
        stubs = stack.enter_context(
            Stubs(folder, shape, zookeeper_port=server.port, session_timeout_ms=SESSION_TIMEOUT_MS)
        )
        scene = Scene(folder, settings, start=start, server=server, tree=tree, stubs=stubs, found=found, path=path)
        try:
            yield scene
        finally:
            for contender in scene.contenders:
                contender.kill()
