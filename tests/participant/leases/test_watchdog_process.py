"""The watchdog of the kind "process" under the rules of the kernel and beside those of the host program."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio
import pytest

from kactl.model.errors import NotReady
from kactl.participant.leases import watchdog, watchdog_child
from kactl.participant.leases.watchdog import ProcessWatchdog

PROGRAM = Path(__file__).with_name("watched_program.py")
PATIENCE_S = 60
MARGIN_NS = 100_000_000
FAR_NS = 2**62
# Commands that run a program as process 1 of a PID namespace.
AS_PROCESS_1: Final = (
    ["unshare", "--pid", "--fork", "--mount-proc"],
    ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"],
)
pytestmark = pytest.mark.anyio

# Makes this process one that its watchdog has to kill at once, and waits for what the kernel does with the signal.
CONDEMNED = """
import os, subprocess, sys, time
from kactl.participant.leases import watchdog, watchdog_child
dog = watchdog.ProcessWatchdog()
dog._margin_ns = 100_000_000
dog._start_child()
dog._shared[watchdog_child.UNTIL] = 1
print("condemned", flush=True)
sys.stdin.read()
"""
REFUSED = """
import anyio, sys
from kactl.model.errors import KactlError
from kactl.participant.leases.watchdog import ProcessWatchdog
from tests.support import seccomp
dog = ProcessWatchdog()
try:
    if sys.argv[3] == "before":
        seccomp.refuse(int(sys.argv[1]), int(sys.argv[2]))
        dog.check()
    else:
        dog.check()
        seccomp.refuse(int(sys.argv[1]), int(sys.argv[2]))
    anyio.run(lambda: dog.start(margin_ns=100_000_000))
except KactlError as error:
    print(type(error).__name__, error)
finally:
    dog.stop()
"""


@pytest.fixture
async def started() -> AsyncIterator[ProcessWatchdog]:
    dog = ProcessWatchdog()
    await dog.start(margin_ns=MARGIN_NS)
    yield dog
    dog.stop()


def as_process_1() -> list[str]:
    for command in AS_PROCESS_1:
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    pytest.skip("PID namespaces need the program unshare, and root or user namespaces")


def child_of(dog: ProcessWatchdog) -> "subprocess.Popen[bytes]":
    assert dog.child is not None
    return dog.child


async def extended_until_replaced(dog: ProcessWatchdog, pid: int) -> None:
    with anyio.fail_after(PATIENCE_S):
        while child_of(dog).pid == pid:
            dog.extend(bound_ns=FAR_NS, margin_ns=0)
            await anyio.sleep(0.01)


def test_process_1_is_refused_with_the_remedy() -> None:
    command = [*as_process_1(), sys.executable, str(PROGRAM), "process", "block"]

    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert (ran.returncode, ran.stdout) == (1, "")
    assert "BadRequest: lease.watchdog: process 1 cannot be killed from inside its PID namespace" in ran.stderr
    assert "docker run --init" in ran.stderr


def test_signal_that_the_kernel_drops_is_reported() -> None:
    command = [*as_process_1(), sys.executable, "-c", CONDEMNED]

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == b"condemned\n"
        reported = program.stderr.readline()
        program.stdin.close()
        code = program.wait(PATIENCE_S)

    assert code == 0
    assert reported.startswith(b"kactl watchdog: process 1 must not run after its lease, and it has not ended 1000 ms")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("call", "errno", "text"),
    [(434, 38, "Function not implemented"), (424, 1, "Operation not permitted"), (319, 1, "Operation not permitted")],
)
def test_refused_system_call_is_a_named_error(call: int, errno: int, text: str, when: str) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers of system calls are those of x86-64")

    ran = subprocess.run(
        [sys.executable, "-c", REFUSED, str(call), str(errno), when], capture_output=True, text=True, check=False
    )

    assert ran.stdout.startswith(f"NotReady the system refuses a watchdog of the kind 'process': {text}"), ran.stderr
    assert "seccomp profile), or choose 'thread'" in ran.stdout


def test_program_without_standard_streams_is_watched() -> None:
    """The descriptors of the watchdog must not take the numbers of the streams."""
    closed = 'exec "$0" -c "$1" <&- >&- 2>&-'
    program = CONDEMNED.replace('print("condemned", flush=True)\nsys.stdin.read()', "time.sleep(60)")

    ran = subprocess.run(["sh", "-c", closed, sys.executable, program], timeout=PATIENCE_S, check=False)

    assert ran.returncode == -signal.SIGKILL


async def test_child_that_ends_at_its_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that embeds Python, whose `sys.executable` is no interpreter."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    dog = ProcessWatchdog()

    with pytest.raises(NotReady, match=r"the watchdog process \(/bin/false\) ended at its start with code 1"):
        await dog.start(margin_ns=MARGIN_NS)
    assert dog.child is None


async def test_another_time_namespace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog_child, "time_namespace", lambda: "time:[1]")

    with pytest.raises(NotReady, match="has a time namespace of its own"):
        await ProcessWatchdog().start(margin_ns=MARGIN_NS)


async def test_signals_of_a_service_manager_do_not_end_the_child(started: ProcessWatchdog) -> None:
    child = child_of(started)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        child.send_signal(number)
    looks = started._shared[watchdog_child.LOOKS]  # type: ignore[index]
    with anyio.fail_after(PATIENCE_S):
        while started._shared[watchdog_child.LOOKS] < looks + 2:  # type: ignore[index]  # noqa: ASYNC110
            await anyio.sleep(0.01)

    assert child.poll() is None


async def test_child_that_was_killed_is_replaced(started: ProcessWatchdog, caplog: pytest.LogCaptureFixture) -> None:
    """As by an operator, or for lack of memory. Nothing would end a leader that runs on."""
    first = child_of(started)
    started.extend(bound_ns=FAR_NS, margin_ns=100)
    assert child_of(started) is first

    first.kill()
    await extended_until_replaced(started, first.pid)

    assert child_of(started).poll() is None
    assert f"the watchdog process {first.pid} has ended with code {-signal.SIGKILL}" in caplog.text


async def test_child_that_the_host_program_waited_for_is_replaced(started: ProcessWatchdog) -> None:
    first = child_of(started)

    first.kill()
    while os.waitpid(-1, 0)[0] != first.pid:  # noqa: ASYNC222 - as a program does that collects all of its children
        pass  # a child of another test
    started.extend(bound_ns=FAR_NS, margin_ns=100)

    assert child_of(started).pid != first.pid
    assert child_of(started).poll() is None


async def test_child_that_was_stopped_is_replaced(
    started: ProcessWatchdog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_LOOK_NS_MAX", 1)
    monkeypatch.setattr(started, "_margin_ns", 0)
    first = child_of(started)

    first.send_signal(signal.SIGSTOP)
    await extended_until_replaced(started, first.pid)

    assert f"the watchdog process {first.pid} does not look at the time" in caplog.text


def fail_to_start(*_: object, **__: object) -> None:
    raise OSError("no memory")


async def test_leadership_does_not_begin_without_a_child(
    started: ProcessWatchdog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    child_of(started).kill()
    child_of(started).wait(PATIENCE_S)

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", fail_to_start)
        started.extend(bound_ns=FAR_NS, margin_ns=100)
        with pytest.raises(NotReady, match="refuses a watchdog"):
            started.begin()
    assert "leaders are not watched until the next renewal" in caplog.text
    assert started.leading == 0
    started.begin()

    assert (started.leading, child_of(started).poll()) == (1, None)


async def test_no_other_process_is_killed_in_place_of_the_child(started: ProcessWatchdog) -> None:
    """The number of a child that was waited for may belong to another child of the host program."""
    child = child_of(started)
    child.kill()
    os.waitpid(child.pid, 0)  # noqa: ASYNC222
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:  # noqa: ASYNC220
        child.pid = other.pid

        started.stop()

        assert other.poll() is None
        other.kill()
        child.returncode = 0
