"""Real etcd servers on loopback: one member, or several.

    require_etcd()
    with EtcdServer(tmp_path) as server:
        store = EtcdStore([server.url])

The program is Debian's `etcd-server`. Without it tests are skipped with a one-line reason; with KACTL_REQUIRE_INTEROP=1
they fail instead.
"""

import base64
import json
import os
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pytest

from .certificates import Signed
from .jars import REQUIRE
from .processes import POLL_S, HarnessError, Process, free_port

START_S: Final = 60.0
STOP_S: Final = 60.0
REQUEST_S: Final = 60.0
_MISSING: Final = "there is no etcd: install Debian's etcd-server, or put etcd on PATH"


def require_etcd() -> None:
    """Without the program the test is skipped, or fails if KACTL_REQUIRE_INTEROP=1."""
    if shutil.which("etcd") is None:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(_MISSING)
        pytest.skip(_MISSING)


class ServerTls(NamedTuple):
    """The authority's certificate, and what it has signed for a server and for a client."""

    ca: Path
    server: Signed
    client: Signed

    def client_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(*self.client)
        return context


class EtcdServer:
    """One member. `kill` or `stop` and then `start` keep its data, its ports and its leases."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "one",
        peers: Mapping[str, int] | None = None,
        options: Sequence[str] = (),
        tls: ServerTls | None = None,
    ) -> None:
        """Prepare the server. It runs from `start` on.

        Args:
            folder: for data and output; made if absent.
            peers: name and peer port of each member, this one included; None for a cluster of one member.
            options: additional options of etcd.
            tls: serve clients by https, and only those with a certificate of this authority.
        """
        self.folder = folder
        self.name = name
        self.port = free_port()
        self._peers = peers or {name: free_port()}
        self._options = options
        self._tls = tls
        self.process: Process | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start the server without waiting for it."""
        assert self.process is None or not self.process.alive, "already running"
        peer_url = f"http://127.0.0.1:{self._peers[self.name]}"
        members = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in self._peers.items())
        program = shutil.which("etcd")
        if program is None:
            raise HarnessError(_MISSING)
        command = [program, "--name", self.name, "--data-dir", str(self.folder / f"data-{self.name}")]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url]
        command += ["--initial-cluster", members, *self._options]
        if self._tls:
            command += ["--cert-file", str(self._tls.server.cert), "--key-file", str(self._tls.server.key)]
            command += ["--trusted-ca-file", str(self._tls.ca), "--client-cert-auth"]
        self.process = Process(command, output=self.folder / f"etcd-{self.name}.log")

    def start(self) -> None:
        """Start the server and wait until it serves requests.

        Raises:
            HarnessError: it ended, or did not serve within START_S and was killed.
        """
        self.launch()
        self.wait_until_serving()

    def wait_until_serving(self) -> None:
        """Wait until the server serves requests; see `start`."""
        process = self._started()
        deadline = time.monotonic() + START_S
        while not self.serving():
            if not process.alive:
                raise process.error("ended at its start")
            if time.monotonic() > deadline:
                process.kill()
                raise process.error(f"did not serve within {START_S:g} s")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Send SIGTERM and wait."""
        self._started().stop(STOP_S)

    def kill(self) -> None:
        """Send SIGKILL. No effect if it does not run."""
        if self.process is not None:
            self.process.kill()

    def pause(self) -> None:
        """Send SIGSTOP: clients stay connected without responses."""
        self._started().pause()

    def resume(self) -> None:
        """Send SIGCONT."""
        self._started().resume()

    def serving(self) -> bool:
        """Returns whether it serves requests that need a leader."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=REQUEST_S, context=self._context()) as answer:
                return bool(json.load(answer)["health"] == "true")
        except (OSError, ValueError):
            return False

    def call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the response to a call of the JSON gateway. Blocks; use it before clients run, or from a thread."""
        request = urllib.request.Request(self.url + path, data=json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=REQUEST_S, context=self._context()) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def enable_authentication(self) -> None:
        """Require a user: `root`, or `kactl` with the password `secret`, which may access `/kactl/ours/` only."""
        prefix = {"key": _base64("/kactl/ours/"), "range_end": _base64("/kactl/ours0")}
        calls: list[tuple[str, dict[str, Any]]] = [
            ("user/add", {"name": "root", "password": "root"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": "kactl", "password": "secret"}),
            ("role/add", {"name": "kactl"}),
            ("role/grant", {"name": "kactl", "perm": {"permType": "READWRITE", **prefix}}),
            ("user/grant", {"user": "kactl", "role": "kactl"}),
            ("enable", {}),
        ]
        for path, body in calls:
            self.call(f"/v3/auth/{path}", body)

    def _context(self) -> ssl.SSLContext | None:
        return None if self._tls is None else self._tls.client_context()

    def _started(self) -> Process:
        if self.process is None:
            raise HarnessError("etcd was not started")
        return self.process

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


class EtcdEnsemble:
    """Several members of one cluster."""

    def __init__(self, folder: Path, size: int) -> None:
        peers = {f"m{number}": free_port() for number in range(size)}
        self.members = [EtcdServer(folder, name=name, peers=peers) for name in peers]

    @property
    def urls(self) -> list[str]:
        return [member.url for member in self.members]

    def leader(self) -> EtcdServer:
        """Returns the member that leads the others."""
        status = {member: member.call("/v3/maintenance/status", {}) for member in self.members}
        return next(member for member, found in status.items() if found["leader"] == found["header"]["member_id"])

    def __enter__(self) -> Self:
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_until_serving()
        return self

    def __exit__(self, *error: object) -> None:
        for member in self.members:
            member.kill()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
