"""Two instances of `kactl up`, or of `kactl controller` for ZooKeeper, over one store, in processes."""

import itertools
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kactl.admin.schema import ControllerInfo
from tests.support.etcd_server import EtcdServer
from tests.support.processes import Process, free_port
from tests.support.zookeeper_server import ZooKeeperServer

from .server import POLL_S, QUICK, START_S, CommandResult, kactl, program

INSTANCES = (100, 101)
_clusters = itertools.count(1)


def over_etcd(server: EtcdServer) -> dict[str, str]:
    """Returns the settings of a store that no other test uses."""
    prefix = f"/instances-{next(_clusters)}"
    return {"KACTL_STORE__KIND": "etcd", "KACTL_STORE__ENDPOINTS": server.url, "KACTL_STORE__PREFIX": prefix}


def over_zookeeper(server: ZooKeeperServer) -> dict[str, str]:
    """Returns the settings of a store that no other test uses."""
    return {"KACTL_STORE__KIND": "zookeeper", "KACTL_STORE__CONNECT": server.connect(f"/instances-{next(_clusters)}")}


class Instances:
    """The instances. Their logs are printed at the end, and shown if the test has failed.

    Args:
        store: settings of a store that both share, from `over_etcd` or `over_zookeeper`. None for a SQLite file in the
            folder, which belongs to one process at a time.
    """

    def __init__(self, folder: Path, store: Mapping[str, str] | None) -> None:
        self.folder = folder
        self.is_shared = store is not None
        self.store = {"KACTL_LOG__FOLDER": "", **(store or {})}
        self.api = {node: free_port() for node in INSTANCES}
        self.network = {node: free_port() for node in INSTANCES}
        self.running: dict[int, Process] = {}
        self.start(INSTANCES[0])

    def start(self, node: int) -> None:
        """Start an instance without participants of its own. It ends unless it is the controller within a minute."""
        listen = f"127.0.0.1:{self.api[node]}"
        data = self.folder / (f"data-{node}" if self.is_shared else "data")
        own = {"KACTL_NODE_ID": str(node), "KACTL_NETWORK__LISTEN": f"127.0.0.1:{self.network[node]}"}
        command: tuple[str | Path, ...] = ("up", "--participants", "0", "--data-dir", data, "--listen", listen)
        if self.store.get("KACTL_STORE__KIND") == "zookeeper":
            (config := self.folder / "kactl.toml").touch()
            command, own["KACTL_API__LISTEN"] = ("controller", "--config", config), listen
        self.running[node] = Process(
            program(*command),
            output=self.folder / f"up-{node}.log",
            env={**QUICK, **self.store, **own},
        )

    def kill(self, node: int) -> None:
        self.running[node].kill()

    def replace_controller(self) -> None:
        """Kill the active instance, and start the other one in its place."""
        killed = self.active()
        (other,) = set(INSTANCES) - {killed}
        self.kill(killed)
        self.start(other)
        assert self.active() == other

    def active(self) -> int:
        """Returns the instance that is active. Waits until one is."""
        self.until(lambda: any(map(self._is_ready, INSTANCES)), "an instance is active")
        return next(node for node in INSTANCES if self._is_ready(node))

    def is_standby(self, node: int) -> bool:
        """Returns whether an instance runs, and another is the controller."""
        answer = self.at(node, "get", "controller", "-o", "json")
        return answer.code == 0 and answer.json(ControllerInfo).active_id not in (None, node)

    def info(self, node: int) -> ControllerInfo:
        return self.at(node, "get", "controller", "-o", "json").json(ControllerInfo)

    def _is_ready(self, node: int) -> bool:
        if node not in self.running or not self.running[node].alive:
            return False
        answer = self.at(node, "get", "controller", "-o", "json")
        return answer.code == 0 and answer.json(ControllerInfo).ready

    def at(self, node: int, *arguments: str) -> CommandResult:
        """Run a command at one instance."""
        return kactl("--server", f"http://127.0.0.1:{self.api[node]}", *arguments)

    def __call__(self, *arguments: str) -> CommandResult:
        """Run a command at the active instance."""
        return self.at(self.active(), *arguments)

    def until(self, reached: Callable[[], bool], condition: str) -> None:
        deadline = time.monotonic() + START_S
        while not reached():
            assert time.monotonic() < deadline, f"timed out waiting until {condition}"
            time.sleep(POLL_S)

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
        for path in sorted(self.folder.glob("*.log")):
            print(path.name, path.read_text(), sep="\n")
