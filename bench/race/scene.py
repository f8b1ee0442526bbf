"""One run's scene: a fresh ZooKeeper with the cluster in it, the stub brokers, and one contender at a time.

A phase is measured between two moments of rest. Its times come from the stub brokers and from ZooKeeper; what it cost
is the difference of what all processes have used, from before the phase until the contender has come to rest again.
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
from .tree import Owner, Tree
from .usage import cpu_s, peak_mb, wait_calm
from .wishes import Said, Wish
from .zookeeper import Server, Work

# After a SIGKILL the session stands for its timeout, and a tick or two.
_GONE_S: Final = SESSION_TIMEOUT_MS / 1000 + 10
_POLL_S: Final = 0.05
_PROCESSOR: Final = "processor"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run can be told.

    Attributes:
        warm_failovers: how often the controllership is taken from the running controller.
        phase_limit_s: for everything that is waited for in a phase.
        stand_by_s: how long a contender stands by before the controllership is free.
        rest_s: how long a contender has to do nothing to count as at rest.
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
    """What processes have used until a moment."""

    work: Work
    own_requests: int
    controllers: dict[int, float]
    zookeeper: float
    stubs: float


class Scene:
    """Made by `staged`.

    Attributes:
        partitions: those that there are still.
        times: seconds, of the phase that was completed last.
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
        """The one that was started last."""
        return self.contenders[-1]

    def start(self) -> float:
        """Start an instance, beside the one that runs if there is one; when."""
        self._started += 1
        number = len(self.contenders)
        folder = self._folder / f"instance-{self._started}"
        at = time.monotonic()
        place = Place(number, folder, self._server.connect, self.shape.partitions)
        self.contenders.append(self._start(place))
        return at

    def stop(self) -> None:
        """Stop the contender in order, and wait until nothing of it is left in ZooKeeper."""
        contender = self.contender
        try:
            contender.stop()
        except HarnessError:
            contender.kill()  # what it had to show was seen; its session ends by itself
        self.contenders.remove(contender)
        deadline = time.monotonic() + _GONE_S
        while self.tree.registered(contender.id) or self.tree.owner() is not None:
            if time.monotonic() > deadline:
                raise HarnessError(f"controller {contender.id} has ended and is still registered")
            time.sleep(_POLL_S)

    def stand_by(self) -> None:
        """Start the contender, or another instance of it, while somebody else is the controller; give it time for
        whatever it does to be ready."""
        self.start()
        self.contender.wait_ready()
        time.sleep(self.settings.stand_by_s)
        self.rest()

    def rest(self) -> None:
        """Wait until the contender does nothing any more."""
        groups = [each.process.pid for each in self.contenders]
        wait_calm(groups, window_s=self.settings.rest_s, limit_s=self.settings.phase_limit_s)

    def elected(self, former: Owner | None) -> Owner:
        """Wait until the contender is the controller."""
        owner = self.tree.next_owner(former, alive=self.require_alive, limit_s=self.settings.phase_limit_s)
        if owner.id not in {each.id for each in self.contenders}:
            raise HarnessError(f"{owner.id} was elected, who does not take part")
        return owner

    def require_alive(self) -> None:
        """Raises HarnessError when the contender has ended."""
        self.contender.require_alive()

    # -- phases --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def phase(self, name: str, wishes: dict[str, Wish]) -> Iterator["Phase"]:
        """A phase, in which brokers are to be told of something; what it cost is added when it has gone well."""
        self.stubs.ask(Mark(wishes))
        before = self._used()
        phase = Phase(self)
        yield phase
        self.rest()
        phase.spent(before, self._used(), sum(peak_mb(each.process.pid) for each in self.contenders))
        self.times = phase.times
        for figure, (unit, value) in phase.figures.items():
            self._found.add(f"{self._path}/{name}/{figure}", unit, value)

    def wait_told(self, optional: frozenset[str] = frozenset()) -> Answer:
        """Wait until brokers have been told all that the phase waits for.

        Args:
            optional: wishes that need not come true.

        Raises:
            HarnessError: something is missing when the phase's limit has passed.
        """
        deadline = time.monotonic() + self.settings.phase_limit_s
        while True:
            self.require_alive()
            self.rest()
            answer = self.stubs.ask(Sums())
            missing = {
                name: each.missing for name, each in answer.wishes.items() if each.missing and name not in optional
            }
            if not missing:
                return answer
            if time.monotonic() > deadline:
                limit = self.settings.phase_limit_s
                raise self.contender.process.error(f"left brokers untold after {limit:g} s: {missing}")

    def _used(self) -> Used:
        return Used(
            self._server.work(),
            self.tree.requests,
            {each.process.pid: cpu_s(each.process.pid) for each in self.contenders},
            cpu_s(self._server.process.pid),
            cpu_s(self.stubs.process.pid),
        )


class Phase:
    """Figures of a phase that is under way: times are seconds after `began`."""

    def __init__(self, scene: Scene) -> None:
        self.figures: dict[str, tuple[Unit, float]] = {}
        self._scene = scene

    def add(self, name: str, unit: Unit, value: float) -> None:
        """One figure."""
        self.figures[name] = (unit, value)

    def told(self, began: float, *, optional: frozenset[str] = frozenset()) -> None:
        """Wait until brokers know, and add when they did: each wish under its name, and what came over the wire."""
        answer = self._scene.wait_told(optional)
        for name, each in answer.wishes.items():
            if each.at is not None and not each.missing:
                self.add(name, "s", each.at - began)
        traffic = answer.traffic
        if traffic.first_at is not None:
            self.add("first request", "s", traffic.first_at - began)
        for said, count in traffic.requests.items():
            self.add(f"{_WORDS[said]} requests", "count", count)
            self.add(f"{_WORDS[said]} sent", "MB", traffic.bytes[said] / 1e6)
        self.add("strange requests", "count", traffic.strange)

    @property
    def times(self) -> dict[str, float]:
        """Seconds from the phase's beginning."""
        return {name: value for name, (unit, value) in self.figures.items() if unit == "s" and not is_use(name)}

    def total(self, *names: str) -> None:
        """The latest of some times is what the phase took."""
        self.add("total", "s", max(self.figures[name][1] for name in names))

    def spent(self, before: Used, after: Used, peak: float) -> None:
        """What all processes have used."""
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
    """Whether a figure under a phase's name is processor time, where other seconds are moments in the phase."""
    return figure.startswith(_PROCESSOR)


_WORDS: Final[dict[Said, str]] = {
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
    """Everything but the contender, which the phases start. All processes have ended when this has.

    Args:
        start: starts the contender.
        path: before the names of all figures.
        keep: a folder for configuration, logs and data; without, they are deleted.
    """
    with contextlib.ExitStack() as stack:
        # Short, since the path of a socket is, too.
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
