"""`kactl controller` over a real ZooKeeper: active controller, standby and takeover."""

import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kactl.admin.schema import ControllerInfo
from tests.support.api_access import opened
from tests.support.processes import Process, free_port
from tests.support.zookeeper_fixtures import chroot, jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer

from .server import KACTL, START_S, STOP_S, CommandResult, kactl

__all__ = ["chroot", "jars", "zookeeper"]  # fixtures
pytestmark = pytest.mark.interop


class Node:
    """One controller instance."""

    def __init__(self, folder: Path, node_id: int, connect: str, *options: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        file = folder / f"{node_id}.toml"
        # No session ends here, however busy the machine is: a takeover does not wait for the end of one.
        file.write_text(
            f'node-id = {node_id}\n[store]\nkind = "zookeeper"\nconnect = "{connect}"\nsession-timeout = "40s"\n'
            f'[api]\nlisten = "{self.url.removeprefix("http://")}"\n'
        )
        command = [*KACTL, "controller", "--config", str(file), *options]
        self.process = Process(command, output=folder / f"{node_id}.log")
        self.process.wait_for_line("serves its API at", START_S)

    def __call__(self, *arguments: str) -> CommandResult:
        return kactl("--server", self.url, *arguments)

    @property
    def info(self) -> ControllerInfo:
        return self("get", "controller", "-o", "json").json(ControllerInfo)

    def probe(self, path: str) -> int:
        try:
            with opened(self.url + path) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


@pytest.fixture
def started_nodes() -> Iterator[list[Node]]:
    nodes: list[Node] = []
    yield nodes
    for node in nodes:
        node.process.kill()


def test_standby_takes_over_from_the_active_controller(
    zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path, started_nodes: list[Node]
) -> None:
    first = Node(tmp_path, 101, zookeeper.connect(chroot))
    started_nodes.append(first)
    first.process.wait_for_line("controller 101 is active under epoch 1", START_S)
    second = Node(tmp_path, 102, zookeeper.connect(chroot))
    started_nodes.append(second)
    second.process.wait_for_line("controller 101 is active; this instance stands by", START_S)

    standby, refused = second.info, second("get", "topics")
    probes = first.probe("/leader"), second.probe("/leader")
    third = Node(tmp_path, 103, zookeeper.connect(chroot), "--takeover")
    started_nodes.append(third)
    third.process.wait_for_line("controller 103 is active under epoch 2", START_S)
    first.process.wait_for_line("resigned from epoch 1", START_S)
    third.process.signal(signal.SIGINT)
    code = third.process.wait(STOP_S)

    assert (standby.is_active, standby.active_id) == (False, 101)
    assert refused.code == 6
    assert "the controller is 101 (NOT_CONTROLLER)" in refused.err
    assert probes == (200, 503)
    assert code == 0
    assert "Traceback" not in first.process.text + third.process.text
