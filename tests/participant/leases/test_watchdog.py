"""The watchdog ends programs whose leaders run on after their leases, and no others."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kactl.model.errors import BadRequest, NotReady
from kactl.participant import Participant
from kactl.participant.leases.terms import LeaseConfig
from kactl.participant.leases.watchdog import EXIT_CODE, ThreadWatchdog, Watchdog, make_watchdog
from tests.participant.conftest import Network, network

__all__ = ["network"]

PROGRAM = Path(__file__).with_name("watched_program.py")
PATIENCE_S = 60


class Written(Watchdog):
    """Records all writes."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[int] = []

    def write(self, until_ns: int) -> None:
        self.times.append(until_ns)


def test_time_is_written_while_something_is_led() -> None:
    watchdog = Written()

    watchdog.extend(bound_ns=1_000, margin_ns=100)
    watchdog.begin()
    watchdog.extend(bound_ns=2_000, margin_ns=100)
    watchdog.begin()
    watchdog.end()
    watchdog.end()

    assert watchdog.times == [0, 975, 1_975, 1_975, 1_975, 0]


@pytest.mark.anyio
async def test_thread_acts_once_the_time_has_passed() -> None:
    codes: list[int] = []
    ended = threading.Event()
    now_ns = [0]

    def exit_process(code: int) -> None:
        codes.append(code)
        ended.set()

    watchdog = ThreadWatchdog(lambda: now_ns[0], exit_process)
    await watchdog.start(margin_ns=4_000_000)
    watchdog.extend(bound_ns=10_000, margin_ns=4)
    watchdog.begin()
    assert codes == []

    now_ns[0] = 9_999
    assert ended.wait(PATIENCE_S)
    watchdog.stop()

    assert codes == [EXIT_CODE]


@pytest.mark.anyio
async def test_watchdog_of_a_lease_without_a_margin_waits() -> None:
    codes: list[int] = []
    watchdog = ThreadWatchdog(time.monotonic_ns, codes.append)

    await watchdog.start(margin_ns=0)
    watchdog.stop()

    assert codes == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "what", "code"),
    [
        ("thread", "block", EXIT_CODE),
        ("thread", "ignore", EXIT_CODE),
        ("process", "block", -signal.SIGKILL),
        ("process", "hold the GIL", -signal.SIGKILL),
        ("process", "ignore", -signal.SIGKILL),
        ("process", "stop", -signal.SIGKILL),
        ("thread", "wait", 0),
        ("process", "wait", 0),
    ],
)
def test_program_ends_if_its_leader_runs_on(kind: str, what: str, code: int) -> None:
    command = [sys.executable, str(PROGRAM), kind, "wait" if what == "stop" else what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "leads\n"
        if what == "stop":
            program.send_signal(signal.SIGSTOP)

        assert program.wait(PATIENCE_S) == code
        assert program.stdout.read() == ("ended\n" if code == 0 else "")


@pytest.mark.parametrize("kind", ["dev/watchdog", "Thread", ""])
def test_unknown_kind_is_rejected(kind: str) -> None:
    with pytest.raises(BadRequest, match="'off', 'thread', 'process', or a device"):
        make_watchdog(kind, time.monotonic_ns)


def test_device_is_fed_from_the_first_leadership_to_the_last(tmp_path: Path) -> None:
    device = tmp_path / "watchdog"
    device.touch()
    watchdog = make_watchdog(str(device), time.monotonic_ns)

    watchdog.extend(bound_ns=1_000, margin_ns=100)
    assert device.read_bytes() == b""
    watchdog.begin()
    watchdog.extend(bound_ns=2_000, margin_ns=100)
    watchdog.begin()
    watchdog.end()
    watchdog.extend(bound_ns=3_000, margin_ns=100)
    assert device.read_bytes() == b"\n\n"
    watchdog.end()
    watchdog.extend(bound_ns=4_000, margin_ns=100)

    assert device.read_bytes() == b"\n\nV"  # closed for good, not by the end of the process


def test_device_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    watchdog = make_watchdog(str(tmp_path / "none"), time.monotonic_ns)

    for _ in range(2):
        with pytest.raises(NotReady, match="none cannot be opened: No such file"):
            watchdog.begin()
    assert watchdog.leading == 0


def test_process_needs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)

    with pytest.raises(BadRequest, match="needs Linux"):
        make_watchdog("process", time.monotonic_ns)


@pytest.mark.anyio
async def test_watchdog_needs_a_handler(network: Network) -> None:
    with pytest.raises(BadRequest, match="needs a handler"):
        Participant(1, store=network.store, hub=network.hub, lease=LeaseConfig(watchdog="thread"))
