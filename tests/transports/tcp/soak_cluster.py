"""Cluster of the soak test: three participants and two controllers over etcd, with a proxy in front of each of them.

    participant 1 ──▶ proxies ──▶ controllers, etcd    its session is with the store
    participant 2 ──▶ proxies ──▶ controllers          it also creates topics
    participant 3 ──▶ proxies ──▶ controllers          it is never killed
    controllers   ──▶ proxies ──▶ etcd                 100 is never killed

The processes that are never killed show whether anything grows.
"""

import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from kactl.testing.fault_proxy import FaultProxy, carry_out
from tests.support.etcd_server import EtcdServer
from tests.support.processes import HarnessError, Process

from .process_cluster import CONTROLLERS, NAMES, PATIENCE_S, Cluster

SESSIONS: Final = {1: "store", 2: "controller", 3: "controller"}
ALL: Final = " ".join(map(str, SESSIONS))
# Topics that participant 2 creates, and ensures again and again.
LOAD: Final = {2: ["--load", "10"]}
# From the end of the faults to a cluster in which all replicas are in sync.
HEALED_S: Final = 180.0
# A process has more tasks and connections for moments: what it uses at rest is the least of several measurements.
MEASUREMENTS: Final = 6
MEASURE_S: Final = 0.2


class ThreadProxy:
    """A fault proxy in the thread of a portal."""

    def __init__(self, portal: BlockingPortal, to: str) -> None:
        host, _, port = to.rpartition(":")
        self._portal = portal
        self._proxy = FaultProxy((host, int(port)))
        self.context = portal.wrap_async_context_manager(self._proxy)

    @property
    def address(self) -> str:
        return self._proxy.address

    def tell(self, command: str) -> None:
        self._portal.call(carry_out, self._proxy, command)


class Resources(NamedTuple):
    """What a process uses."""

    tasks: int
    descriptors: int
    kib: int


class SoakCluster:
    """The processes, started by its block.

    Args:
        session_ms: of the participants.

    Attributes:
        to_controllers: proxies of each participant to the controllers.
        to_store: proxies to the store, by the name of the process.
    """

    def __init__(self, folder: Path, *, session_ms: int) -> None:
        options = ["--session-ms", str(session_ms), "--lag-ms", str(session_ms), "--balance-ms", str(2 * session_ms)]
        self.cluster = Cluster(folder, "controller", options=options)
        self.etcd = EtcdServer(folder / "etcd")
        self.to_controllers: dict[int, list[ThreadProxy]] = {}
        self.to_store: dict[str, ThreadProxy] = {}
        self._preferred: dict[str, int] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())

            def proxy(to: str) -> ThreadProxy:
                made = ThreadProxy(portal, to)
                stack.enter_context(made.context)
                return made

            stack.enter_context(self.etcd)
            stack.callback(self.cluster.kill_all)
            etcd = f"127.0.0.1:{self.etcd.port}"
            for name in (*map(controller_name, CONTROLLERS), participant_name(1)):
                self.to_store[name] = proxy(etcd)
            for broker in SESSIONS:
                self.to_controllers[broker] = [proxy(address) for address in self.cluster.addresses.values()]
            for node in CONTROLLERS:
                self.start_controller(node)
            for broker in SESSIONS:
                self.start_participant(broker)
            self.wait_until_whole()
            (loading,) = LOAD
            self.cluster.participants[loading].wait_for_line("loaded", PATIENCE_S)
            self._preferred = self.cluster.leaders()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start_controller(self, node: int) -> None:
        self.cluster.start_controller(node, store=self._store(controller_name(node)))

    def start_participant(self, broker: int) -> None:
        options = [*LOAD.get(broker, [])]
        if participant_name(broker) in self.to_store:
            options += ["--participant-store", self._store(participant_name(broker))]
        self.cluster.start_participant(broker, *options, behind=self.to_controllers[broker], sessions=SESSIONS[broker])

    def _store(self, name: str) -> str:
        return f"etcd:soak@http://{self.to_store[name].address}"

    def proxies_of(self, broker: int) -> list[ThreadProxy]:
        """Returns all proxies of a participant."""
        to_store = self.to_store.get(participant_name(broker))
        return self.to_controllers[broker] + ([to_store] if to_store is not None else [])

    # -- what it looks like --------------------------------------------------------------------------------------------

    def is_whole(self) -> bool:
        """Returns whether all partitions are led, all replicas in sync, and all participants linked."""
        cluster = self.cluster
        return cluster.leaders().keys() == set(NAMES) and cluster.in_sync() == cluster.linked() == ALL

    def wait_until_whole(self) -> float:
        """Returns after how many seconds `is_whole` is true."""
        return wait(self.is_whole, "a cluster in which all replicas are in sync", HEALED_S)

    @property
    def processes(self) -> dict[str, Process]:
        """All processes. The names of controllers have their role, whose parts are others."""
        active = self.cluster.active()
        found = {participant_name(broker): process for broker, process in self.cluster.participants.items()}
        for node, process in self.cluster.controllers.items():
            found[f"{'active' if node == active else 'standby'} {controller_name(node)}"] = process
        return found

    def at_rest(self) -> dict[str, Resources]:
        """Returns what each process uses, once the preferred replicas lead."""
        self.wait_until_whole()
        wait(lambda: self.cluster.leaders() == self._preferred, "leaders that are the preferred replicas", HEALED_S)
        found: dict[str, Resources] = {}
        for _ in range(MEASUREMENTS):
            for name, now in resources(self.processes).items():
                found[name] = Resources(*map(min, found.get(name, now), now))
            time.sleep(MEASURE_S)
        return found


def participant_name(broker: int) -> str:
    return f"participant {broker}"


def controller_name(node: int) -> str:
    return f"controller {node}"


def resources(processes: Mapping[str, Process]) -> dict[str, Resources]:
    """Returns what processes report that they use."""
    known = {name: len(_reports(process)) for name, process in processes.items()}
    for process in processes.values():
        process.signal(signal.SIGUSR1)
    for name, process in processes.items():
        wait(lambda: len(_reports(process)) > known[name], f"resources of {name}", PATIENCE_S)  # noqa: B023 - waits here
    return {name: Resources(*map(int, _reports(process)[-1].split()[1:])) for name, process in processes.items()}


def _reports(process: Process) -> list[str]:
    return [line for line in process.text.splitlines() if line.startswith("resources")]


def wait(condition: Callable[[], object], what: str, limit_s: float) -> float:
    """Wait for a condition. Returns the seconds.

    Raises:
        HarnessError: it is not true in time.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit_s:
            raise HarnessError(f"no {what} within {limit_s:g} s")
        time.sleep(0.05)
    return time.monotonic() - began


def tell(proxies: Iterable[ThreadProxy], command: str) -> None:
    for proxy in proxies:
        proxy.tell(command)
