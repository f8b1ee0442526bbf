"""`kactl controller` as a child process over a real ZooKeeper."""

import sys
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError

import msgspec

from tests.support.api_access import opened
from tests.support.processes import POLL_S, Process, free_port

# About a second on an idle machine, mostly imports; several times that on a busy one.
START_S: Final = 90.0
STOP_S: Final = 30.0


class KactlController:
    """One instance. It keeps its ports across restarts.

    Attributes:
        arguments: of the command, after those that name its configuration.
        level: the inter-broker protocol version of the next `configure`.
    """

    arguments: tuple[str, ...] = ()

    def __init__(
        self,
        node_id: int,
        *,
        folder: Path,
        zookeeper: str,
        ibp: str = "2.6",
        takeover: bool = False,
        others: Sequence[int] = (),
        visible_on: Sequence[str] = ("INTERNAL",),
        balance_s: float | None = None,
    ) -> None:
        """Prepare the instance; nothing runs before `start`.

        Args:
            takeover: whether to take the controllership from its holder at start.
            others: the ids of the other instances of the cluster.
            visible_on: the listeners whose clients see this instance among the brokers.
            balance_s: interval of the check for leaders that are not preferred; None for no check, also not the first
                one, 5 s after a takeover.
        """
        self.node_id = node_id
        self.folder = folder
        self.port = free_port()
        self.internal_port = free_port()
        self.client_port = free_port()
        self.process: Process | None = None
        self._zookeeper = zookeeper
        self.level = ibp
        self._others = others
        self._balance_s = balance_s
        folder.mkdir(parents=True, exist_ok=True)
        self._config = folder / "kactl.toml"
        self.configure(takeover=takeover, visible_on=visible_on)

    def configure(self, *, takeover: bool, visible_on: Sequence[str] = ("INTERNAL",), sticky: bool = False) -> None:
        """Set the configuration of the next start.

        Args:
            sticky: keep the controllership from brokers permanently; all instances must have the same value.
        """
        listeners = [f"INTERNAL://127.0.0.1:{self.internal_port}", f"CLIENT://127.0.0.1:{self.client_port}"]
        balance = "auto-leader-rebalance = false"
        if self._balance_s is not None:
            balance = f'leader-imbalance-check-interval = "{round(self._balance_s * 1000)}ms"'
        self._config.write_text(
            f"""
node-id = {self.node_id}
cluster = "interop"
[store]
kind = "zookeeper"
connect = "{self._zookeeper}"
session-timeout = "6s"
sticky = {"true" if sticky else "false"}
[controller]
takeover = {"true" if takeover else "false"}
{balance}
[kafka]
ibp = "{self.level}"
listener-name = "INTERNAL"
listeners = {listeners}
visible-on = {list(visible_on)}
controller-ids = {list(self._others)}
num-partitions = 3
default-replication-factor = 3
[api]
listen = "127.0.0.1:{self.port}"
"""
        )

    def start(self, *, active: bool = True) -> None:
        """Start, and wait until it responds; with `active`, until it is the controller and has taken over."""
        self.process = Process(
            [sys.executable, "-m", "kactl.cli", "controller", "--config", str(self._config), *self.arguments],
            output=self.folder / "kactl.log",
        )
        self.until(lambda: self._answers(ready=active), "it answers", START_S)

    def stop(self) -> None:
        """Send SIGTERM, and wait; it resigns."""
        assert self.process is not None
        self.process.stop(STOP_S)

    def kill(self) -> None:
        """Send SIGKILL. Harmless when it does not run."""
        if self.process is not None:
            self.process.kill()

    def get(self, path: str) -> Any:
        """Return the response to GET `path`, as plain values."""
        with opened(f"http://127.0.0.1:{self.port}{path}") as answer:
            return msgspec.json.decode(answer.read())

    def post(self, path: str, **parameters: object) -> Any:
        """Return the response to POST `path`."""
        body = msgspec.json.encode(parameters)
        url = f"http://127.0.0.1:{self.port}{path}"
        with opened(url, data=body, headers={"Content-Type": "application/json"}, timeout=60) as answer:
            return msgspec.json.decode(answer.read())

    def partitions(self) -> dict[str, dict[str, Any]]:
        """Return all partitions by name."""
        partitions: dict[str, dict[str, Any]] = {}
        cursor = ""
        while True:
            page = self.get(f"/v1/partitions?limit=10000{cursor}")
            partitions |= {f"{partition['topic']}-{partition['partition']}": partition for partition in page["items"]}
            if page["next_cursor"] is None:
                return partitions
            cursor = f"&cursor={page['next_cursor']}"

    def until(self, reached: Callable[[], bool], expected: str, timeout_s: float) -> float:
        """Wait for a condition. Returns the seconds that it took.

        Raises:
            HarnessError: the condition was not reached within `timeout_s`, or the process ended.
        """
        began = time.monotonic()
        assert self.process is not None
        while not reached():
            if not self.process.alive or time.monotonic() - began > timeout_s:
                raise self.process.error(f"not within {timeout_s:g} s: {expected}")
            time.sleep(POLL_S)
        return time.monotonic() - began

    @property
    def log(self) -> str:
        """Return the output of its current or last run."""
        return "" if self.process is None else self.process.text

    @property
    def active(self) -> bool:
        """Return the result of its probe for the active controller; False without a response."""
        try:
            self.get("/leader")
        except HTTPError as refused:
            if refused.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return False
        except (URLError, ConnectionError, TimeoutError):
            return False
        return True

    def _answers(self, *, ready: bool) -> bool:
        try:
            return bool(self.get("/v1/controller")["ready"]) or not ready
        except (URLError, ConnectionError, TimeoutError):
            return False
